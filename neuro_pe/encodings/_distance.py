"""Attention biases by the distance of two regions: in the table, or in the brain."""

import math

import torch
from torch import nn
from torch.nn import functional

from neuro_pe.encodings._base import (
    EncodingInputs,
    Places,
    PositionalEncoding,
    fused_attention,
    register,
)

__all__ = ["Alibi", "T5Bias", "alibi_1d", "alibi_3d", "alibi_slopes", "t5_1d", "t5_3d"]

T5_BUCKETS, T5_LONGEST = 32, 128  # of Raffel et al.


class _Bias(PositionalEncoding):
    """Add to each score a number that depends on the two regions alone."""

    def bias(self, at: Places) -> torch.Tensor:
        """Return what is added to the scores, shape (batch, head, row, column)."""
        raise NotImplementedError

    def scores(self, query: torch.Tensor, key: torch.Tensor, at: Places) -> torch.Tensor:
        """Return the scores with their bias."""
        plain = super().scores(query, key, at)
        return plain + self.bias(at)

    def attend(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, at: Places
    ) -> torch.Tensor:
        """Attend with the bias."""
        return fused_attention(query, key, value, self.bias(at))


class Alibi(_Bias):
    """Take a multiple of the distance from each score: far regions are attended to less.

    Each head has its slope, from 1/2 to 1/256 with 8 heads; nothing is learned. The original
    looks back only; here both directions count alike.

    Parameters
    ----------
    inputs : EncodingInputs
    distance : Tensor, shape (region, region)

    References
    ----------
    Press et al. (2022), "Train short, test long: attention with linear biases enables input
    length extrapolation", ICLR.
    """

    distance: torch.Tensor
    slopes: torch.Tensor

    def __init__(self, inputs: EncodingInputs, distance: torch.Tensor) -> None:
        super().__init__(inputs)
        self.register_buffer("distance", distance.float())
        self.register_buffer("slopes", alibi_slopes(inputs.heads))

    def bias(self, at: Places) -> torch.Tensor:
        """Return minus slope times distance, shape (batch, head, row, column)."""
        return -self.slopes[:, None, None] * at.pick(self.distance)[:, None]


class T5Bias(_Bias):
    """Add to each score a learned number for the distance of the two regions, by head.

    Distances up to half of the buckets have a bucket each, longer ones share buckets of growing
    size, and from 128 on there is one. Each block has its numbers (the original shares them).

    Parameters
    ----------
    inputs : EncodingInputs
    bucket : Tensor of int64, shape (region, region)
        Number of the bucket of rows' and columns' regions, under 32.

    References
    ----------
    Raffel et al. (2020), "Exploring the limits of transfer learning with a unified text-to-text
    transformer", JMLR 21(140), section 2.1.
    """

    bucket: torch.Tensor

    def __init__(self, inputs: EncodingInputs, bucket: torch.Tensor) -> None:
        super().__init__(inputs)
        self.register_buffer("bucket", bucket)
        self.table = nn.Parameter(torch.empty(inputs.n_blocks, T5_BUCKETS, inputs.heads))
        self.reset_parameters(torch.Generator().manual_seed(0))

    def reset_parameters(self, generator: torch.Generator) -> None:
        """Draw the numbers, of standard deviation 1 / sqrt(width) as in the authors' code."""
        nn.init.normal_(self.table, std=self.inputs.width**-0.5, generator=generator)

    def bias(self, at: Places) -> torch.Tensor:
        """Return the numbers of the buckets, shape (batch, head, row, column)."""
        numbers = functional.embedding(at.pick(self.bucket), self.table[at.block])
        return numbers.permute(0, 3, 1, 2)


def alibi_slopes(heads: int) -> torch.Tensor:
    """Return the slope of each head: the geometric series of ALiBi.

    A number of heads that is no power of two takes those of the power below it, then every second
    one of the power above, as in the authors' code.

    Examples
    --------
    >>> from neuro_pe.encodings import alibi_slopes
    >>> alibi_slopes(8)[[0, 1, 7]]
    tensor([0.5000, 0.2500, 0.0039])
    """
    below = 2 ** math.floor(math.log2(heads))
    slopes = [2 ** (-8 * (head + 1) / below) for head in range(below)]
    above = [2 ** (-8 * (head + 1) / (2 * below)) for head in range(0, 2 * below, 2)]
    return torch.tensor((slopes + above)[:heads])


@register("alibi")
def alibi_1d(inputs: EncodingInputs) -> Alibi:
    """Build ALiBi over the difference of two regions' indices in the table."""
    return Alibi(inputs, _differences(inputs).abs())


@register("alibi-3d")
def alibi_3d(inputs: EncodingInputs) -> Alibi:
    """Build ALiBi over distances in the brain; the unit is that of nearest neighbors, median."""
    return Alibi(inputs, _distances(inputs, "alibi-3d"))


@register("t5")
def t5_1d(inputs: EncodingInputs) -> T5Bias:
    """Build T5's bias over the difference of indices; later regions have buckets of their own."""
    difference = _differences(inputs)
    half = T5_BUCKETS // 2
    return T5Bias(inputs, _buckets(difference.abs(), half) + half * (difference > 0))


@register("t5-3d")
def t5_3d(inputs: EncodingInputs) -> T5Bias:
    """Build T5's bias over distances in the brain, in quarters of those of nearest neighbors.

    Whole ones would leave most buckets empty: a brain is some 20 neighbors across.
    """
    quarters = (4 * _distances(inputs, "t5-3d")).round()
    return T5Bias(inputs, _buckets(quarters, T5_BUCKETS))


def _differences(inputs: EncodingInputs) -> torch.Tensor:
    """Return the index of the column minus that of the row."""
    index = torch.arange(inputs.n_regions)
    return index[None, :] - index[:, None]


def _distances(inputs: EncodingInputs, name: str) -> torch.Tensor:
    """Return Euclidean distances over the median distance of nearest neighbors."""
    places = inputs.need_coordinates(name)
    distance = torch.cdist(places, places, compute_mode="donot_use_mm_for_euclid_dist")
    others = distance.clone().fill_diagonal_(torch.inf)
    return distance / others.amin(dim=1).median()


def _buckets(distance: torch.Tensor, count: int) -> torch.Tensor:
    """Return the bucket, under `count`, of whole distances of 0 or more."""
    exact = count // 2
    share = (distance.double() / exact).clamp(min=1).log2() / math.log2(T5_LONGEST / exact)
    far = exact + ((count - exact) * share).long()
    return torch.where(distance < exact, distance.long(), far.clamp(max=count - 1))
