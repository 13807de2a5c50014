"""Rotary encodings: queries and keys are turned by angles that grow with position."""

import torch

from neuro_pe.encodings._base import (
    EncodingInputs,
    Places,
    PositionalEncoding,
    fused_attention,
    register,
)
from neuro_pe.encodings._sinusoids import index_frequencies, place_frequencies
from neuro_pe.errors import InputError

__all__ = ["Rotary", "rotary_1d", "rotary_2d", "rotary_3d"]


class Rotary(PositionalEncoding):
    """Turn pairs of a head's dimensions by angle = position * frequency.

    The score of two regions then depends on the difference of their positions only. With several
    axes, each has its share of the pairs; pairs that are left over are not turned.

    Parameters
    ----------
    inputs : EncodingInputs
    angles : Tensor, shape (region, pair)
        In radians.

    References
    ----------
    Su et al. (2021), "RoFormer: enhanced transformer with rotary position embedding",
    arXiv 2104.09864. Axial: Heo et al. (2024), "Rotary position embedding for vision
    transformer", ECCV.
    """

    angles: torch.Tensor

    def __init__(self, inputs: EncodingInputs, angles: torch.Tensor) -> None:
        super().__init__(inputs)
        self.register_buffer("angles", angles.float())

    def turn(self, heads: torch.Tensor, regions: torch.Tensor) -> torch.Tensor:
        """Turn queries or keys.

        Parameters
        ----------
        heads : Tensor, shape (batch, head, token, dimension)
        regions : Tensor of int64, shape (batch, token)
        """
        angles = self.angles[regions][:, None]  # (batch, 1, token, pair)
        n_pairs = angles.shape[-1]
        first, second, rest = heads.float().tensor_split([n_pairs, 2 * n_pairs], dim=-1)
        cosine, sine = angles.cos(), angles.sin()
        turned = [first * cosine - second * sine, first * sine + second * cosine, rest]
        return torch.cat(turned, dim=-1)

    def scores(self, query: torch.Tensor, key: torch.Tensor, at: Places) -> torch.Tensor:
        """Return the scores of turned queries and keys."""
        return super().scores(self.turn(query, at.rows), self.turn(key, at.columns), at)

    def attend(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, at: Places
    ) -> torch.Tensor:
        """Attend with turned queries and keys."""
        query, key = self.turn(query, at.rows), self.turn(key, at.columns)
        return fused_attention(query.to(value.dtype), key.to(value.dtype), value)


def _pairs(inputs: EncodingInputs, name: str, n_axes: int) -> int:
    """Pairs of dimensions that each axis gets in a head."""
    count = inputs.head_width // (2 * n_axes)
    if count == 0:
        msg = (
            f"heads: found {inputs.head_width} dimensions a head; encoding {name!r} expected at "
            f"least {2 * n_axes}; take fewer heads or a larger width."
        )
        raise InputError(msg)
    return count


@register("rope")
def rotary_1d(inputs: EncodingInputs) -> Rotary:
    """Build the rotary encoding of the region's index in the table."""
    frequencies = index_frequencies(_pairs(inputs, "rope", 1))
    return Rotary(inputs, torch.arange(inputs.n_regions)[:, None] * frequencies)


@register("rope-2d")
def rotary_2d(inputs: EncodingInputs) -> Rotary:
    """Build the axial rotary encoding of row and column of a grid."""
    cells = inputs.need_grid("rope-2d")
    frequencies = index_frequencies(_pairs(inputs, "rope-2d", 2))
    return Rotary(inputs, (cells[:, :, None] * frequencies).flatten(1))


@register("rope-3d")
def rotary_3d(inputs: EncodingInputs) -> Rotary:
    """Build the axial rotary encoding of MNI x, y and z, wavelengths 20 to 400 mm."""
    places = inputs.need_coordinates("rope-3d")
    frequencies = place_frequencies(_pairs(inputs, "rope-3d", 3))
    return Rotary(inputs, (places[:, :, None] * frequencies).flatten(1))
