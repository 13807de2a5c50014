"""Which regions of a window are hidden."""

import torch

__all__ = ["n_visible_regions", "uniform_masks"]


def n_visible_regions(n_regions: int, mask_ratio: float) -> int:
    """Return how many regions stay visible: at least one, and at least one is hidden."""
    return min(max(1, round((1 - mask_ratio) * n_regions)), n_regions - 1)


def uniform_masks(
    n_masks: int, n_regions: int, mask_ratio: float, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw masks that hide the same number of regions, every region equally often on average.

    Parameters
    ----------
    n_masks, n_regions : int
    mask_ratio : float
        Share of regions to hide.
    generator : torch.Generator

    Returns
    -------
    visible : Tensor of int64, shape (mask, visible region)
    hidden : Tensor of int64, shape (mask, hidden region)
        Indices of regions, ascending.

    Examples
    --------
    >>> import torch
    >>> from neuro_pe.masking import uniform_masks
    >>> visible, hidden = uniform_masks(3, 10, 0.9, torch.Generator().manual_seed(0))
    >>> visible.shape, hidden.shape
    (torch.Size([3, 1]), torch.Size([3, 9]))
    """
    order = torch.rand(n_masks, n_regions, generator=generator).argsort(dim=1)
    n_visible = n_visible_regions(n_regions, mask_ratio)
    return order[:, :n_visible].sort(dim=1).values, order[:, n_visible:].sort(dim=1).values
