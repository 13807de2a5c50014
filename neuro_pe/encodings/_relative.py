"""Relative encodings: a learned vector for each difference of two regions' indices."""

import torch
from torch import nn

from neuro_pe.encodings._base import AttentionEncoding, EncodingInputs, Places, register

__all__ = ["CausalRelative", "Relative"]

CLIP = 16  # of Shaw et al., who found no gain from more


@register("relative")
class Relative(AttentionEncoding):
    """Learned vectors of the difference of two indices, added to keys and to values.

    Differences beyond 16 either way count as 16. Each block has its vectors, shared by its heads.

    Parameters
    ----------
    inputs : EncodingInputs

    References
    ----------
    Shaw et al. (2018), "Self-attention with relative position representations", NAACL,
    equations 3 and 4.
    """

    def __init__(self, inputs: EncodingInputs) -> None:
        super().__init__(inputs)
        self.clip = min(CLIP, inputs.n_regions - 1)
        shape = (inputs.n_blocks, 2 * self.clip + 1, inputs.head_width)
        self.keys, self.values = (nn.Parameter(torch.empty(shape)) for _ in range(2))
        self.reset_parameters(torch.Generator().manual_seed(0))

    def reset_parameters(self, generator: torch.Generator) -> None:
        """Draw the start as for a linear map of a head."""
        for vectors in (self.keys, self.values):
            bound = self.inputs.head_width**-0.5
            nn.init.uniform_(vectors, -bound, bound, generator=generator)

    def scores(self, query: torch.Tensor, key: torch.Tensor, at: Places) -> torch.Tensor:
        """Return the scores of queries with keys, to which the vectors are added."""
        plain = super().scores(query, key, at)
        by_place = query @ self.keys[at.block].T.to(query.dtype)  # (batch, head, row, difference)
        place = self._numbers(at).expand_as(plain)
        return plain + by_place.gather(-1, place) / query.shape[-1] ** 0.5

    def attend(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, at: Places
    ) -> torch.Tensor:
        """Attend to values, to which the vectors are added."""
        weights = self.scores(query, key, at).softmax(dim=-1)
        place = self._numbers(at).expand_as(weights)
        # The sum of weights over all columns at the same difference, times its vector.
        n_places = self.values.shape[1]
        summed = weights.new_zeros(*weights.shape[:-1], n_places).scatter_add(-1, place, weights)
        values = self.values[at.block].to(weights.dtype)
        return weights @ value.to(weights.dtype) + summed @ values

    def _numbers(self, at: Places) -> torch.Tensor:
        """Return the number of the vector for each row and column, the same for all heads."""
        return at.difference.clamp(-self.clip, self.clip)[:, None] + self.clip


@register("relative-causal")
class CausalRelative(AttentionEncoding):
    """Learned vectors of the distance to earlier indices; later ones are not attended to.

    This is the form in the public code of Ito et al. (2025), after Huang et al. (2019). A region
    before all that it may attend to gets zeros.

    Parameters
    ----------
    inputs : EncodingInputs

    References
    ----------
    Huang et al. (2019), "Music transformer", ICLR.
    """

    def __init__(self, inputs: EncodingInputs) -> None:
        super().__init__(inputs)
        shape = (inputs.n_blocks, inputs.n_regions, inputs.head_width)
        self.keys = nn.Parameter(torch.empty(shape))
        self.reset_parameters(torch.Generator().manual_seed(0))

    def reset_parameters(self, generator: torch.Generator) -> None:
        """Draw the start from a standard normal distribution."""
        nn.init.normal_(self.keys, generator=generator)

    def scores(self, query: torch.Tensor, key: torch.Tensor, at: Places) -> torch.Tensor:
        """Return the scores; minus infinity where the column is later than the row."""
        plain = super().scores(query, key, at)
        distance = -at.difference[:, None]
        place = distance.clamp(min=0).expand_as(plain)
        by_place = query @ self.keys[at.block].T.to(query.dtype)  # (batch, head, row, distance)
        total = plain + by_place.gather(-1, place) / query.shape[-1] ** 0.5
        return total.masked_fill(distance < 0, -torch.inf)

    def attend(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, at: Places
    ) -> torch.Tensor:
        """Attend to earlier regions."""
        # A row without any has no softmax: scores of zero there, and zeros out.
        scores = self.scores(query, key, at)
        nothing = scores.isneginf().all(dim=-1, keepdim=True)
        weights = scores.masked_fill(nothing, 0).softmax(dim=-1).masked_fill(nothing, 0)
        return weights @ value.to(weights.dtype)
