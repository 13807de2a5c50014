"""Which regions of a window are hidden."""

import torch

__all__ = ["grouped_masks", "n_visible_regions", "some_regions", "uniform_masks"]


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
    return _cut(order, mask_ratio)


def grouped_masks(
    n_masks: int, groups: torch.Tensor, mask_ratio: float, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw masks that hide whole groups of regions, one group after the other in random order.

    The group with which the share is reached is hidden in part, at random, so that every mask
    hides the same number of regions.

    Parameters
    ----------
    n_masks : int
    groups : Tensor of int64, shape (region,)
        The group (network, hemisphere) of each region, from 0.
    mask_ratio : float
        Share of regions to hide.
    generator : torch.Generator

    Returns
    -------
    visible, hidden
        As :func:`uniform_masks`.

    Examples
    --------
    >>> import torch
    >>> from neuro_pe.masking import grouped_masks
    >>> halves = torch.tensor([0, 0, 0, 1, 1, 1])
    >>> grouped_masks(1, halves, 0.5, torch.Generator().manual_seed(0))[1]
    tensor([[3, 4, 5]])
    """
    ranks = torch.rand(n_masks, int(groups.max()) + 1, generator=generator).argsort(dim=1)
    within = torch.rand(n_masks, len(groups), generator=generator)
    return _cut((ranks[:, groups] + within).argsort(dim=1), mask_ratio)


def some_regions(regions: torch.Tensor, count: int, generator: torch.Generator) -> torch.Tensor:
    """Draw some of the regions of each row.

    Parameters
    ----------
    regions : Tensor of int64, shape (mask, region)
        Ascending.
    count : int
        How many; all, if there are no more.
    generator : torch.Generator

    Returns
    -------
    Tensor of int64, shape (mask, drawn region)
        Ascending.
    """
    if count >= regions.shape[1]:
        return regions
    drawn = torch.rand(regions.shape, generator=generator).argsort(dim=1)[:, :count]
    return regions.gather(1, drawn.sort(dim=1).values)


def _cut(order: torch.Tensor, mask_ratio: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Let the first regions of each order be visible, the rest hidden."""
    n_visible = n_visible_regions(order.shape[1], mask_ratio)
    return order[:, :n_visible].sort(dim=1).values, order[:, n_visible:].sort(dim=1).values
