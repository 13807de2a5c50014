"""Encodings that start from random numbers, and no encoding at all."""

import torch
from torch import nn

from neuro_pe.encodings._base import EncodingInputs, PositionalEncoding, register
from neuro_pe.errors import InputError

__all__ = ["LearnedEncoding", "NoEncoding", "RandomEncoding"]


@register("learn")
class LearnedEncoding(PositionalEncoding):
    """A learned vector a region, started from random numbers of standard deviation sigma.

    Parameters
    ----------
    inputs : EncodingInputs
        `sigma`; `distribution`, normal or uniform; `rank` of the start.

    References
    ----------
    Ito et al. (2025), "Learning interpretable positional encodings in transformers depends on
    initialization", ICML, arXiv 2406.08272. Low rank: Liu et al. (2024), "How connectivity
    structure shapes rich and lazy learning in neural circuits", ICLR.
    """

    def __init__(self, inputs: EncodingInputs) -> None:
        super().__init__(inputs)
        self.vectors = nn.Parameter(torch.empty(inputs.n_regions, inputs.width))
        self.reset_parameters(torch.Generator().manual_seed(0))

    def reset_parameters(self, generator: torch.Generator) -> None:
        """Draw the start, each number of mean 0 and standard deviation sigma."""
        n_regions, width = self.vectors.shape
        if self.inputs.rank is not None and self.inputs.rank > min(n_regions, width):
            msg = (
                f"rank: found {self.inputs.rank}; expected {min(n_regions, width)} at most, of "
                f"{n_regions} regions and a width of {width}."
            )
            raise InputError(msg)
        rank, sigma = self.inputs.rank, self.inputs.sigma
        with torch.no_grad():
            if rank is None:
                self._draw(self.vectors, sigma, generator)
                return
            # The sum of `rank` products of independent numbers of variances v and w has the
            # variance rank * v * w.
            left = self._draw(torch.empty(n_regions, rank), 1.0, generator)
            right = self._draw(torch.empty(rank, width), sigma / rank**0.5, generator)
            self.vectors.copy_(left @ right)

    def _draw(self, into: torch.Tensor, sigma: float, generator: torch.Generator) -> torch.Tensor:
        if self.inputs.distribution == "uniform":
            bound = 3**0.5 * sigma
            return into.uniform_(-bound, bound, generator=generator)
        return into.normal_(0, sigma, generator=generator)

    def forward(self) -> torch.Tensor:
        """Return the vectors, shape (region, width)."""
        return self.vectors

    def extra_repr(self) -> str:
        """Add sigma."""
        return f"{super().extra_repr()}, sigma={self.inputs.sigma:g}"


@register("random")
class RandomEncoding(LearnedEncoding):
    """A random vector a region that is never learned: it tells regions apart, no more.

    Parameters
    ----------
    inputs : EncodingInputs
        As for ``learn``.
    """

    def __init__(self, inputs: EncodingInputs) -> None:
        super().__init__(inputs)
        self.vectors.requires_grad_(False)


@register("nope")
class NoEncoding(PositionalEncoding):
    """No encoding: all regions look alike but for their signal.

    Parameters
    ----------
    inputs : EncodingInputs

    References
    ----------
    Kazemnejad et al. (2023), "The impact of positional encoding on length generalization in
    transformers", NeurIPS.
    """
