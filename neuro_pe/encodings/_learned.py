"""Encodings that start from random numbers, and no encoding at all."""

import torch
from torch import nn

from neuro_pe.encodings._base import EncodingInputs, PositionalEncoding, register

__all__ = ["LearnedEncoding", "NoEncoding", "RandomEncoding"]


@register("learn")
class LearnedEncoding(PositionalEncoding):
    """A learned vector a region, started from a normal distribution.

    Parameters
    ----------
    inputs : EncodingInputs
        `sigma` is the standard deviation of the start.

    References
    ----------
    Ito et al. (2025), "Learning interpretable positional encodings in transformers depends on
    initialization", ICML, arXiv 2406.08272.
    """

    def __init__(self, inputs: EncodingInputs) -> None:
        super().__init__()
        self.sigma = inputs.sigma
        self.vectors = nn.Parameter(torch.empty(inputs.n_regions, inputs.width))
        self.reset_parameters(torch.Generator().manual_seed(0))

    def reset_parameters(self, generator: torch.Generator) -> None:
        """Draw the start from a normal distribution of standard deviation sigma."""
        with torch.no_grad():
            self.vectors.normal_(0, self.sigma, generator=generator)

    def extra_repr(self) -> str:
        """Add sigma."""
        return f"{super().extra_repr()}, sigma={self.sigma:g}"


@register("random")
class RandomEncoding(LearnedEncoding):
    """A random vector a region that is never learned: it tells regions apart, no more.

    Parameters
    ----------
    inputs : EncodingInputs
        `sigma` is the standard deviation.
    """

    def __init__(self, inputs: EncodingInputs) -> None:
        super().__init__(inputs)
        self.vectors.requires_grad_(False)


@register("nope")
class NoEncoding(PositionalEncoding):
    """No encoding: all regions look alike but for their signal.

    References
    ----------
    Kazemnejad et al. (2023), "The impact of positional encoding on length generalization in
    transformers", NeurIPS.
    """

    def __init__(self, inputs: EncodingInputs) -> None:
        super().__init__()
        self.register_buffer("vectors", torch.zeros(inputs.n_regions, inputs.width))
