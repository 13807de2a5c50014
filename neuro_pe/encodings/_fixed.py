"""Sinusoidal encodings of the region's index and of its place in the brain."""

import math

import torch

from neuro_pe.encodings._base import EncodingInputs, PositionalEncoding, register
from neuro_pe.errors import InputError

__all__ = ["Sinusoids1d", "Sinusoids3d", "sinusoids"]

# Wavelengths of 3d-fixed in mm: from twice the spacing of fine parcels to twice the
# length of the brain, so that every dimension varies between regions.
SHORTEST, LONGEST = 20.0, 400.0


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


@register("1d-fixed")
class Sinusoids1d(PositionalEncoding):
    """Sinusoids of the region's index in the table, wavelengths 2 pi to 10,000 * 2 pi.

    Parameters
    ----------
    inputs : EncodingInputs

    References
    ----------
    Vaswani et al. (2017), "Attention is all you need", NeurIPS, section 3.5.
    """

    def __init__(self, inputs: EncodingInputs) -> None:
        super().__init__()
        half = math.ceil(inputs.width / 2)
        frequencies = 10_000.0 ** -(torch.arange(half).double() * 2 / inputs.width)
        vectors = sinusoids(torch.arange(inputs.n_regions), frequencies)
        self.register_buffer("vectors", _fill(vectors, inputs.width))


@register("3d-fixed")
class Sinusoids3d(PositionalEncoding):
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
        super().__init__()
        if inputs.coordinates is None:
            msg = (
                "encoding: '3d-fixed' needs MNI coordinates of every region, and at least one "
                "region has none; choose another encoding or an atlas with coordinates."
            )
            raise InputError(msg)
        count = max(1, inputs.width // 6)
        wavelengths = torch.logspace(
            math.log10(SHORTEST), math.log10(LONGEST), count, dtype=torch.float64
        )
        xyz = torch.as_tensor(inputs.coordinates, dtype=torch.float64)
        axes = [sinusoids(axis, 2 * math.pi / wavelengths) for axis in xyz.T]
        self.register_buffer("vectors", _fill(torch.cat(axes, dim=1), inputs.width))
