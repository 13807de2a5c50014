"""Sinusoidal encodings of the region's index, of its cell in a grid, of its place in the brain."""

import math

import torch

from neuro_pe.encodings._base import EncodingInputs, PositionalEncoding, register

__all__ = [
    "RandomizedSinusoids",
    "Sinusoids1d",
    "Sinusoids2d",
    "Sinusoids3d",
    "index_frequencies",
    "place_frequencies",
    "sinusoids",
]

# Wavelengths over MNI coordinates in mm: from twice the spacing of fine parcels to twice the
# length of the brain, so that every dimension varies between regions.
SHORTEST, LONGEST = 20.0, 400.0
RANDOMIZED_RANGE = 4  # positions a region, to draw from


def index_frequencies(count: int) -> torch.Tensor:
    """Return `count` frequencies over an index, in radians a step.

    Wavelengths from 2 pi to nearly 10,000 * 2 pi (Vaswani et al. 2017, section 3.5).
    """
    return 10_000.0 ** -(torch.arange(count).double() / max(count, 1))


def place_frequencies(count: int) -> torch.Tensor:
    """Return `count` frequencies over a coordinate, in radians a mm: wavelengths 20 to 400 mm."""
    wavelengths = torch.logspace(
        math.log10(SHORTEST), math.log10(LONGEST), count, dtype=torch.float64
    )
    return 2 * math.pi / wavelengths


def sinusoids(positions: torch.Tensor, frequencies: torch.Tensor) -> torch.Tensor:
    """Return sines, then cosines, of positions.

    Parameters
    ----------
    positions : Tensor, shape (region,)
    frequencies : Tensor, shape (frequency,)
        In radians a unit of position.

    Returns
    -------
    Tensor, shape (region, 2 * frequency)
    """
    angles = positions[:, None].double() * frequencies.double()
    return torch.cat([angles.sin(), angles.cos()], dim=1).float()


def _fill(vectors: torch.Tensor, width: int) -> torch.Tensor:
    """Cut or zero-pad to the width, which need not be a multiple of what sinusoids come in."""
    vectors = vectors[:, :width]
    return torch.nn.functional.pad(vectors, (0, width - vectors.shape[1]))


class _Sinusoids(PositionalEncoding):
    """Fixed sinusoids of positions, each axis in its share of the width."""

    vectors: torch.Tensor

    def __init__(
        self, inputs: EncodingInputs, positions: torch.Tensor, frequencies: torch.Tensor
    ) -> None:
        super().__init__(inputs)
        axes = [sinusoids(axis, frequencies) for axis in positions.T]
        self.register_buffer("vectors", _fill(torch.cat(axes, dim=1), inputs.width))

    def forward(self) -> torch.Tensor:
        """Return the vectors, shape (region, width)."""
        return self.vectors


@register("1d-fixed")
class Sinusoids1d(_Sinusoids):
    """Sinusoids of the region's index in the table, wavelengths 2 pi to 10,000 * 2 pi.

    Parameters
    ----------
    inputs : EncodingInputs

    References
    ----------
    Vaswani et al. (2017), "Attention is all you need", NeurIPS, section 3.5.
    """

    def __init__(self, inputs: EncodingInputs) -> None:
        frequencies = index_frequencies(math.ceil(inputs.width / 2))
        super().__init__(inputs, torch.arange(inputs.n_regions)[:, None], frequencies)


@register("2d-fixed")
class Sinusoids2d(_Sinusoids):
    """Sinusoids of row and column of a grid, half of the width each.

    Parameters
    ----------
    inputs : EncodingInputs
        `grid`.

    Raises
    ------
    InputError
        If the tokens are on no grid.

    References
    ----------
    Parmar et al. (2018), "Image transformer", ICML.
    """

    def __init__(self, inputs: EncodingInputs) -> None:
        frequencies = index_frequencies(math.ceil(inputs.width / 4))
        super().__init__(inputs, inputs.need_grid("2d-fixed"), frequencies)


@register("3d-fixed")
class Sinusoids3d(_Sinusoids):
    """Sinusoids of MNI x, y and z, a third of the width each, wavelengths 20 to 400 mm.

    Parameters
    ----------
    inputs : EncodingInputs
        `coordinates` in mm.

    Raises
    ------
    InputError
        If there are no coordinates.
    """

    def __init__(self, inputs: EncodingInputs) -> None:
        frequencies = place_frequencies(max(1, inputs.width // 6))
        super().__init__(inputs, inputs.need_coordinates("3d-fixed"), frequencies)


@register("randomized")
class RandomizedSinusoids(Sinusoids1d):
    """Sinusoids of sorted positions, drawn anew in every training step from a longer range.

    The order of regions is all that stays the same: what is learned cannot hang on the distance.
    The range is four times the number of regions. Outside training positions are evenly spaced
    over it (the original draws them there too).

    Parameters
    ----------
    inputs : EncodingInputs

    References
    ----------
    Ruoss et al. (2023), "Randomized positional encodings boost length generalization of
    transformers", ACL.
    """

    redrawn: torch.Tensor

    def __init__(self, inputs: EncodingInputs) -> None:
        super().__init__(inputs)
        even = torch.arange(inputs.n_regions) * RANDOMIZED_RANGE
        self.vectors.copy_(self._at(even))
        self.register_buffer("redrawn", self.vectors.clone(), persistent=False)

    def resample(self, generator: torch.Generator) -> None:
        """Draw the positions of a training step."""
        n_regions = self.inputs.n_regions
        positions = torch.randperm(RANDOMIZED_RANGE * n_regions, generator=generator)[:n_regions]
        self.redrawn.copy_(self._at(positions.sort().values))

    def _at(self, positions: torch.Tensor) -> torch.Tensor:
        width = self.inputs.width
        return _fill(sinusoids(positions, index_frequencies(math.ceil(width / 2))), width)

    def forward(self) -> torch.Tensor:
        """Return the vectors, shape (region, width)."""
        return self.redrawn if self.training else self.vectors
