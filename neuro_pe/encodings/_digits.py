"""Encodings that read a position as a sequence of digits."""

import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import skip_init

from neuro_pe.encodings._base import (
    EncodingInputs,
    PositionalEncoding,
    fused_attention,
    register,
    reset_linear,
)

__all__ = ["DigitSequences", "seqpe_1d", "seqpe_3d"]

WIDTH, HEADS, LAYERS = 32, 4, 2  # of the encoder of digits


class _DigitLayer(nn.Module):
    """A small pre-norm transformer layer; its norms have no parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.pairs = skip_init(nn.Linear, WIDTH, 3 * WIDTH)
        self.joined = skip_init(nn.Linear, WIDTH, WIDTH)
        self.mlp_in = skip_init(nn.Linear, WIDTH, 4 * WIDTH)
        self.mlp_out = skip_init(nn.Linear, 4 * WIDTH, WIDTH)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Update tokens, shape (region, token, width)."""
        made = self.pairs(_norm(tokens)).unflatten(-1, (3, HEADS, -1))
        query, key, value = made.permute(2, 0, 3, 1, 4)  # (region, head, token, dimension)
        attended = fused_attention(query, key, value).transpose(1, 2).flatten(2)
        tokens = tokens + self.joined(attended)
        return tokens + self.mlp_out(functional.gelu(self.mlp_in(_norm(tokens))))


def _norm(tokens: torch.Tensor) -> torch.Tensor:
    return functional.layer_norm(tokens, tokens.shape[-1:])


class DigitSequences(PositionalEncoding):
    """A position written in digits, read by a small attention encoder.

    Each digit is a token, with a vector for the digit and one for where it stands; the encoder's
    (2 layers, width 32) last token, which ends the sequence, becomes the region's vector.

    The original has two more losses: one that makes distances of vectors follow those of
    positions, and one that teaches positions beyond those of the training. They are left out: the
    second has nothing to do with a fixed set of regions, and the first would tell the encoding
    what it is to find out. The original's encoder is causal; here digits see each other.

    Parameters
    ----------
    inputs : EncodingInputs
    positions : Tensor of int64, shape (region, axis)
        0 or more.

    References
    ----------
    Li et al. (2025), "SeqPE: transformer with sequential position encoding", arXiv 2506.13277.
    """

    digits: torch.Tensor

    def __init__(self, inputs: EncodingInputs, positions: torch.Tensor) -> None:
        super().__init__(inputs)
        n_places = len(str(int(positions.max())))
        powers = 10 ** torch.arange(n_places - 1, -1, -1)
        digits = (positions[:, :, None] // powers % 10).flatten(1)  # (region, axis * place)
        self.register_buffer("digits", digits)
        self.of_digit = nn.Parameter(torch.empty(10, WIDTH))
        self.of_place = nn.Parameter(torch.empty(digits.shape[1] + 1, WIDTH))  # and of the end
        self.layers = nn.ModuleList(_DigitLayer() for _ in range(LAYERS))
        self.out = skip_init(nn.Linear, WIDTH, inputs.width)
        self.reset_parameters(torch.Generator().manual_seed(0))

    def reset_parameters(self, generator: torch.Generator) -> None:
        """Draw the vectors and the encoder."""
        for vectors in (self.of_digit, self.of_place):
            nn.init.normal_(vectors, std=0.5, generator=generator)
        for layer in self.modules():
            if isinstance(layer, nn.Linear):
                reset_linear(layer, generator)

    def forward(self) -> torch.Tensor:
        """Return the vectors, shape (region, width)."""
        read = functional.embedding(self.digits, self.of_digit)
        tokens = functional.pad(read, (0, 0, 0, 1)) + self.of_place  # (region, token, width)
        for layer in self.layers:
            tokens = layer(tokens)
        return self.out(_norm(tokens[:, -1]))


@register("seqpe")
def seqpe_1d(inputs: EncodingInputs) -> DigitSequences:
    """Build SeqPE over the region's index in the table."""
    return DigitSequences(inputs, torch.arange(inputs.n_regions)[:, None])


@register("seqpe-3d")
def seqpe_3d(inputs: EncodingInputs) -> DigitSequences:
    """Build SeqPE over MNI x, y and z in whole mm, counted from the lowest of all regions."""
    places = inputs.need_coordinates("seqpe-3d")
    return DigitSequences(inputs, (places - places.amin(dim=0)).round().long())
