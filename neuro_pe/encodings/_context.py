"""Encodings that look at the scores themselves, along the order of regions in the table."""

from dataclasses import replace

import torch
from torch import nn
from torch.nn import functional

from neuro_pe.encodings._base import AttentionEncoding, EncodingInputs, Places, register
from neuro_pe.encodings._distance import alibi_slopes

__all__ = ["ContextualPositions", "Dape"]

COPE_POSITIONS = 64  # of Golovneva et al.
DAPE_HIDDEN, DAPE_KERNEL = 32, 3  # of Zheng et al.


class _InTableOrder(AttentionEncoding):
    """An encoding whose scores depend on which columns are neighbors in the table."""

    def ordered_scores(self, query: torch.Tensor, key: torch.Tensor, at: Places) -> torch.Tensor:
        """Return the scores; as :meth:`scores`, but columns are ascending."""
        raise NotImplementedError

    def scores(self, query: torch.Tensor, key: torch.Tensor, at: Places) -> torch.Tensor:
        """Return the scores, columns as they were given."""
        order, ordered = _in_order(at)
        scores = self.ordered_scores(query, _take(key, order), ordered)
        place = order.argsort(dim=1)[:, None, None]  # where each given column went
        return scores.gather(-1, place.expand_as(scores))

    def attend(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, at: Places
    ) -> torch.Tensor:
        """Attend; the sum over columns does not need them back in the order that was given."""
        order, ordered = _in_order(at)
        query, key, value = query.float(), _take(key, order).float(), _take(value, order).float()
        # In float32: sums of gates would be lost in bfloat16, and its backward pass is slow.
        with torch.autocast(query.device.type, enabled=False):
            scores = self.ordered_scores(query, key, ordered)
            return scores.softmax(dim=-1) @ value


def _in_order(at: Places) -> tuple[torch.Tensor, Places]:
    """Return the order in which columns ascend, and the places with columns in it."""
    order = at.columns.argsort(dim=1)
    return order, replace(at, columns=at.columns.gather(1, order))


def _take(heads: torch.Tensor, order: torch.Tensor) -> torch.Tensor:
    """Put the tokens of keys or values in another order."""
    return heads.gather(2, order[:, None, :, None].expand_as(heads))


@register("cope")
class ContextualPositions(_InTableOrder):
    """Positions that are counted: how many regions between two matter to the one that asks.

    A gate, the sigmoid of the score, says how much each region counts. The position of a region
    is the sum of the gates from it to the one that asks, both with it, in the order of the table.
    The query's product with the vector of that position, interpolated between whole ones, is added
    to the score. Positions end at 63. The original looks back only; here earlier and later
    regions have vectors of their own. Each block has its vectors, shared by its heads.

    Parameters
    ----------
    inputs : EncodingInputs

    References
    ----------
    Golovneva et al. (2024), "Contextual position encoding: learning to count what's important",
    arXiv 2405.18719, section 4.
    """

    def __init__(self, inputs: EncodingInputs) -> None:
        super().__init__(inputs)
        self.n_positions = min(COPE_POSITIONS, inputs.n_regions + 1)
        shape = (inputs.n_blocks, 2, self.n_positions, inputs.head_width)
        self.vectors = nn.Parameter(torch.empty(shape))  # of earlier, then of later regions
        self.reset_parameters(torch.Generator().manual_seed(0))

    def reset_parameters(self, generator: torch.Generator) -> None:
        """Draw the start as for a linear map of a head (the authors start from zero)."""
        bound = self.inputs.head_width**-0.5
        nn.init.uniform_(self.vectors, -bound, bound, generator=generator)

    def ordered_scores(self, query: torch.Tensor, key: torch.Tensor, at: Places) -> torch.Tensor:
        """Return the scores with what their positions add."""
        plain = AttentionEncoding.scores(self, query, key, at)
        gates = plain.sigmoid()
        asking, asked = at.rows[:, None, :, None], at.columns[:, None, None, :]
        is_later = asked > asking  # (batch, 1, row, column)
        until = gates.cumsum(dim=-1)  # from the first region to each, with it
        until_self = gates.masked_fill(is_later, 0).sum(dim=-1, keepdim=True)
        before_self = gates.masked_fill(asked >= asking, 0).sum(dim=-1, keepdim=True)
        position = torch.where(is_later, until - before_self, until_self - until + gates)
        position = position.clamp(0, self.n_positions - 1)
        below = position.detach().long()
        above = (below + 1).clamp(max=self.n_positions - 1)
        vectors = self.vectors[at.block].flatten(0, 1).to(query.dtype)
        by_place = query @ vectors.T / query.shape[-1] ** 0.5  # (batch, head, row, 2 * position)
        first = self.n_positions * is_later
        low, high = (by_place.gather(-1, number + first) for number in (below, above))
        return plain + torch.lerp(low, high, (position - below).to(low.dtype))


@register("dape")
class Dape(_InTableOrder):
    """ALiBi that adapts to the data: a convolution over the scores and the bias of all heads.

    What two convolutions along the columns (3 regions wide, 32 channels between them) make of
    scores and bias is added to them. The original looks back only; here both directions count.
    Each block has its convolutions.

    Parameters
    ----------
    inputs : EncodingInputs

    References
    ----------
    Zheng et al. (2024), "DAPE V2: process attention score as feature map for length
    extrapolation", arXiv 2410.04798, with ALiBi (Press et al. 2022) as its bias.
    """

    slopes: torch.Tensor

    def __init__(self, inputs: EncodingInputs) -> None:
        super().__init__(inputs)
        self.register_buffer("slopes", alibi_slopes(inputs.heads))
        n_blocks, heads = inputs.n_blocks, inputs.heads
        shapes = {
            "weight_in": (n_blocks, DAPE_HIDDEN, 2 * heads, 1, DAPE_KERNEL),
            "bias_in": (n_blocks, DAPE_HIDDEN),
            "weight_out": (n_blocks, heads, DAPE_HIDDEN, 1, DAPE_KERNEL),
            "bias_out": (n_blocks, heads),
        }
        self.layers = nn.ParameterDict(
            {name: nn.Parameter(torch.empty(shape)) for name, shape in shapes.items()}
        )
        self.reset_parameters(torch.Generator().manual_seed(0))

    def reset_parameters(self, generator: torch.Generator) -> None:
        """Draw the convolutions' start: PyTorch's own default, from our generator."""
        for side in ("in", "out"):
            weight, bias = (self.layers[f"{kind}_{side}"] for kind in ("weight", "bias"))
            bound = weight[0, 0].numel() ** -0.5
            for parameter in (weight, bias):
                nn.init.uniform_(parameter, -bound, bound, generator=generator)

    def ordered_scores(self, query: torch.Tensor, key: torch.Tensor, at: Places) -> torch.Tensor:
        """Return scores, bias and what the convolutions make of both."""
        plain = AttentionEncoding.scores(self, query, key, at)
        distance = at.difference.abs()[:, None]
        bias = (-self.slopes[:, None, None] * distance).to(plain.dtype)
        maps = torch.cat([plain, bias], dim=1)
        hidden = functional.leaky_relu(self._convolve(maps, "in", at.block))
        return plain + bias + self._convolve(hidden, "out", at.block)

    def _convolve(self, maps: torch.Tensor, side: str, block: int) -> torch.Tensor:
        weight, bias = (self.layers[f"{kind}_{side}"][block] for kind in ("weight", "bias"))
        weight, bias = weight.to(maps.dtype), bias.to(maps.dtype)
        return functional.conv2d(maps, weight, bias, padding=(0, DAPE_KERNEL // 2))
