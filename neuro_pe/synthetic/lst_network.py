"""The transformer of Ito et al. (2025) that solves Latin Square Task puzzles."""

from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional

from neuro_pe.encodings import PositionalEncoding
from neuro_pe.transformer import Block, EncodedTransformer

__all__ = ["LatinSquareTransformer"]


class _Block(Block):
    """A block whose MLP has a GELU after its second layer too."""

    def _mlp(self, tokens: torch.Tensor) -> torch.Tensor:
        return functional.gelu(super()._mlp(tokens))


class LatinSquareTransformer(EncodedTransformer):
    """Read a puzzle, one token a cell, and answer from the last token.

    Post-norm blocks, encodings added in every block, a linear readout of the token of the last
    cell, wherever the target is.

    Parameters
    ----------
    size : int
        Rows, columns and symbols of the square.
    width, layers, heads : int
    encodings : sequence of PositionalEncoding
        One at the input, or one for each block.
    generator : torch.Generator
        Draws the start of all weights.

    References
    ----------
    Ito et al. (2025), "Learning interpretable positional encodings in transformers depends on
    initialization", ICML, arXiv 2406.08272; https://github.com/ljhearne/LSTNN_public.
    """

    def __init__(
        self,
        *,
        size: int,
        width: int,
        layers: int,
        heads: int,
        encodings: Sequence[PositionalEncoding],
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.size = size
        self.embed = nn.Linear(size + 1, width)
        self.encodings = nn.ModuleList(encodings)
        self.encoder = nn.ModuleList(_Block(width, heads, "post") for _ in range(layers))
        self.readout = nn.Linear(width, size)
        self.reset_parameters(generator)

    def forward(self, cells: torch.Tensor) -> torch.Tensor:
        """Return how likely each symbol is at the target.

        In the last block only the token that is read out is updated: nothing else would be used.

        Parameters
        ----------
        cells : Tensor of int64, shape (batch, cell)
            0 for a blank, 1 to size for a symbol, size + 1 for the target; row by row.

        Returns
        -------
        Tensor, shape (batch, symbol)
            Logits.
        """
        tokens, regions = self._tokens(cells)
        return self.readout(self._encode(tokens, regions, last_only=True)[:, -1])

    def attention_maps(self, cells: torch.Tensor) -> torch.Tensor:
        """Return the attention between cells, block by block.

        Parameters
        ----------
        cells
            See :meth:`forward`.

        Returns
        -------
        Tensor, shape (block, batch, head, cell, cell)
            Each row sums to 1.
        """
        maps: list[torch.Tensor] = []
        self._encode(*self._tokens(cells), maps)
        return torch.stack(maps)

    def _tokens(self, cells: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Embed one-hot symbols, a blank being all zeros; number the cells."""
        one_hot = functional.one_hot(cells, self.size + 2)[..., 1:].to(self.embed.weight.dtype)
        regions = torch.arange(cells.shape[1], device=cells.device).expand(len(cells), -1)
        return self.embed(one_hot), regions
