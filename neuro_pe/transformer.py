"""The masked-region transformer: encode the visible regions, ask for the hidden ones.

Hidden regions cost little: only visible tokens attend to each other, and each hidden position
reads them once by cross-attention (the asymmetry of masked autoencoders, He et al. 2022, CVPR).
The form of BERT, in which all tokens attend to each other in every layer, is an option.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import cast

import torch
from torch import nn
from torch.nn import functional

from neuro_pe.encodings import Places, PositionalEncoding, fused_attention, reset_linear

__all__ = ["Block", "EncodedTransformer", "MaskedRegionTransformer", "take_regions"]

Attend = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


class Block(nn.Module):
    """Attention of queries over a context, then an MLP.

    Parameters
    ----------
    width, heads : int
    norm : {"pre", "post"}
        LayerNorm before attention and MLP, or after what they are added to.

    References
    ----------
    Xiong et al. (2020), "On layer normalization in the transformer architecture", ICML.
    """

    def __init__(self, width: int, heads: int, norm: str = "pre") -> None:
        super().__init__()
        self.heads = heads
        self.is_pre = norm == "pre"
        self.norm_query = nn.LayerNorm(width)
        self.norm_context = nn.LayerNorm(width) if self.is_pre else nn.Identity()
        self.norm_mlp = nn.LayerNorm(width)
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.out = nn.Linear(width, width)
        self.mlp_in = nn.Linear(width, 4 * width)
        self.mlp_out = nn.Linear(4 * width, width)

    def forward(
        self, tokens: torch.Tensor, context: torch.Tensor, attend: Attend = fused_attention
    ) -> torch.Tensor:
        """Update tokens from a context.

        Parameters
        ----------
        tokens : Tensor, shape (batch, token, width)
        context : Tensor, shape (batch, context token, width)
        attend : callable
            Queries, keys and values of the heads to attended values.

        Returns
        -------
        Tensor, shape (batch, token, width)
        """
        value = self._split(self.value(self.norm_context(context)))
        attended = attend(*self.query_and_key(tokens, context), value)
        added = self.out(attended.transpose(1, 2).flatten(2))
        if self.is_pre:
            tokens = tokens + added
            return tokens + self._mlp(self.norm_mlp(tokens))
        tokens = self.norm_query(tokens + added)
        return self.norm_mlp(tokens + self._mlp(tokens))

    def query_and_key(
        self, tokens: torch.Tensor, context: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return what the attention scores are made of.

        Returns
        -------
        tuple of two Tensor, shape (batch, head, token or context token, width / heads)
        """
        asking = self.norm_query(tokens) if self.is_pre else tokens
        return self._split(self.query(asking)), self._split(self.key(self.norm_context(context)))

    def _mlp(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.mlp_out(functional.gelu(self.mlp_in(tokens)))

    def _split(self, tokens: torch.Tensor) -> torch.Tensor:
        """Reshape (batch, token, width) to (batch, head, token, width / heads)."""
        return tokens.unflatten(-1, (self.heads, -1)).transpose(1, 2)


class EncodedTransformer(nn.Module):
    """Blocks over tokens that positional encodings tell apart: what all networks here share.

    A subclass sets ``encodings`` (one at the input, or one for each block) and ``encoder`` (the
    blocks), as :class:`torch.nn.ModuleList`.
    """

    encodings: nn.ModuleList
    encoder: nn.ModuleList

    def reset_parameters(self, generator: torch.Generator) -> None:
        """Draw every weight from `generator`: the encoding first, so it depends on it alone."""
        for encoding in self.encodings:
            cast(PositionalEncoding, encoding).reset_parameters(generator)
        for name, module in self.named_modules():
            if isinstance(module, nn.Linear) and not name.startswith("encodings."):
                reset_linear(module, generator)

    def positional_encoding(self) -> torch.Tensor | None:
        """Return the vectors that are added to tokens, those of all blocks side by side.

        Returns
        -------
        Tensor, shape (region, width) or (region, blocks * width); None if there are none
        """
        vectors = [encoding() for encoding in self.encodings]
        return None if vectors[0] is None else torch.cat(vectors, dim=1)

    def resample(self, generator: torch.Generator) -> None:
        """Draw what an encoding draws anew in every training step."""
        for encoding in self.encodings:
            cast(PositionalEncoding, encoding).resample(generator)

    def block_matrices(self) -> list[nn.Parameter]:
        """Weight matrices inside the blocks, which Muon may train."""
        blocks = [module for module in self.modules() if isinstance(module, Block)]
        return [
            parameter for block in blocks for parameter in block.parameters() if parameter.ndim == 2
        ]

    @property
    def _first(self) -> PositionalEncoding:
        return cast(PositionalEncoding, self.encodings[0])

    def _add(self, tokens: torch.Tensor, number: int, regions: torch.Tensor) -> torch.Tensor:
        """Add an encoding to the tokens of regions."""
        vectors = self.encodings[number]()
        return tokens if vectors is None else tokens + vectors[regions]

    def _encode(
        self,
        tokens: torch.Tensor,
        regions: torch.Tensor,
        maps: list[torch.Tensor] | None = None,
        *,
        last_only: bool = False,
    ) -> torch.Tensor:
        """Add the encodings and run the encoder; leave its attention in `maps` if asked to.

        With `last_only` the last block updates and returns the last token alone.
        """
        for number, block in enumerate(self.encoder):
            if number < len(self.encodings):
                tokens = self._add(tokens, number, regions)
            asking, rows = tokens, regions
            if last_only and number == len(self.encoder) - 1:
                asking, rows = tokens[:, -1:], regions[:, -1:]
            at = Places(rows=rows, columns=regions, block=number)
            if maps is not None:
                pair = cast(Block, block).query_and_key(asking, tokens)
                maps.append(self._first.scores(*pair, at).softmax(dim=-1))
            tokens = block(asking, tokens, partial(self._first.attend, at=at))
        return tokens


class MaskedRegionTransformer(EncodedTransformer):
    """Reconstruct the windows of hidden regions from the visible ones.

    Parameters
    ----------
    window : int
        TRs in a window.
    width, layers, heads : int
        `layers` counts the encoder; one cross-attention block decodes, unless `design` is "bert".
    encodings : sequence of PositionalEncoding
        One at the input, or one for each block.
    generator : torch.Generator
        Draws the start of all weights.
    design : {"cross-attention", "bert"}
        Encode visible regions and let hidden ones ask, or encode all regions together.
    norm : {"pre", "post"}
        See :class:`Block`.
    readout_gain : float
        Multiplies the start of the readout's weights: small is the rich, large the lazy regime.

    References
    ----------
    He et al. (2022), "Masked autoencoders are scalable vision learners", CVPR; Devlin et al.
    (2019), "BERT", NAACL. Gain: Chizat et al. (2019), "On lazy training in differentiable
    programming", NeurIPS.
    """

    def __init__(
        self,
        *,
        window: int,
        width: int,
        layers: int,
        heads: int,
        encodings: Sequence[PositionalEncoding],
        generator: torch.Generator,
        design: str = "cross-attention",
        norm: str = "pre",
        readout_gain: float = 1.0,
    ) -> None:
        super().__init__()
        self.readout_gain = readout_gain
        self.embed = nn.Linear(window, width)
        self.encodings = nn.ModuleList(encodings)
        self.hidden_token = nn.Parameter(torch.empty(width))
        self.encoder = nn.ModuleList(Block(width, heads, norm) for _ in range(layers))
        self.decoder = Block(width, heads, norm) if design == "cross-attention" else None
        self.norm = nn.LayerNorm(width) if norm == "pre" else nn.Identity()
        self.readout = nn.Linear(width, window)
        self.reset_parameters(generator)

    def reset_parameters(self, generator: torch.Generator) -> None:
        """Draw every weight from `generator`: the encoding first, so it depends on it alone."""
        super().reset_parameters(generator)
        with torch.no_grad():
            self.readout.weight.mul_(self.readout_gain)
            self.readout.bias.mul_(self.readout_gain)
        nn.init.normal_(self.hidden_token, std=0.02, generator=generator)

    def forward(
        self, windows: torch.Tensor, visible: torch.Tensor, hidden: torch.Tensor
    ) -> torch.Tensor:
        """Predict hidden regions; their values are never read.

        Parameters
        ----------
        windows : Tensor, shape (batch, region, time)
        visible : Tensor of int64, shape (batch, visible region)
            Ascending, as are the hidden regions.
        hidden : Tensor of int64, shape (batch, hidden region)

        Returns
        -------
        Tensor, shape (batch, hidden region, time)
        """
        seen = self.embed(take_regions(windows, visible))
        blank = self.hidden_token.expand(*hidden.shape, -1)
        if self.decoder is None:
            tokens = torch.cat([seen, blank.to(seen.dtype)], dim=1)
            encoded = self._encode(tokens, torch.cat([visible, hidden], dim=1))
            return self.readout(self.norm(encoded[:, visible.shape[1] :]))
        encoded = self._encode(seen, visible)
        if len(self.encodings) > 1:
            encoded = self._add(encoded, -1, visible)
        asking = self._add(blank, -1, hidden)
        at = Places(rows=hidden, columns=visible, block=len(self.encoder))
        decoded = self.decoder(asking, encoded, partial(self._first.attend, at=at))
        return self.readout(self.norm(decoded))

    def encode(self, windows: torch.Tensor, visible: torch.Tensor) -> torch.Tensor:
        """Encode the visible regions.

        Parameters
        ----------
        windows : Tensor, shape (batch, region, time)
        visible : Tensor of int64, shape (batch, visible region)

        Returns
        -------
        Tensor, shape (batch, visible region, width)
        """
        return self._encode(self.embed(take_regions(windows, visible)), visible)

    def attention_maps(self, windows: torch.Tensor, visible: torch.Tensor) -> torch.Tensor:
        """Return the attention between visible regions, layer by layer of the encoder.

        Parameters
        ----------
        windows, visible
            See :meth:`encode`.

        Returns
        -------
        Tensor, shape (layer, batch, head, visible region, visible region)
            Each row sums to 1.
        """
        maps: list[torch.Tensor] = []
        self._encode(self.embed(take_regions(windows, visible)), visible, maps)
        return torch.stack(maps)


def take_regions(windows: torch.Tensor, regions: torch.Tensor) -> torch.Tensor:
    """Pick regions of each window.

    Parameters
    ----------
    windows : Tensor, shape (batch, region, time)
    regions : Tensor of int64, shape (batch, picked region)

    Returns
    -------
    Tensor, shape (batch, picked region, time)
    """
    return windows.gather(1, regions[..., None].expand(-1, -1, windows.shape[-1]))
