"""The masked-region transformer: encode the visible regions, ask for the hidden ones.

Hidden regions cost little: only visible tokens attend to each other, and each hidden position
reads them once by cross-attention (the asymmetry of masked autoencoders, He et al. 2022, CVPR).
"""

from typing import cast

import torch
from torch import nn
from torch.nn import functional

from neuro_pe.encodings import PositionalEncoding

__all__ = ["Block", "MaskedRegionTransformer", "take_regions"]


class Block(nn.Module):
    """Pre-norm attention of queries over a context, then an MLP.

    Parameters
    ----------
    width, heads : int

    References
    ----------
    Xiong et al. (2020), "On layer normalization in the transformer architecture", ICML.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_query = nn.LayerNorm(width)
        self.norm_context = nn.LayerNorm(width)
        self.norm_mlp = nn.LayerNorm(width)
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.out = nn.Linear(width, width)
        self.mlp_in = nn.Linear(width, 4 * width)
        self.mlp_out = nn.Linear(4 * width, width)

    def forward(self, tokens: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
        """Update tokens from a context.

        Parameters
        ----------
        tokens : Tensor, shape (batch, token, width)
        context : Tensor, shape (batch, context token, width)

        Returns
        -------
        Tensor, shape (batch, token, width)
        """
        seen = self.norm_context(context)
        attended = _attend(
            self._split(self.query(self.norm_query(tokens))),
            self._split(self.key(seen)),
            self._split(self.value(seen)),
        )  # (batch, head, token, width / heads)
        tokens = tokens + self.out(attended.transpose(1, 2).flatten(2))
        return tokens + self.mlp_out(functional.gelu(self.mlp_in(self.norm_mlp(tokens))))

    def attention(self, tokens: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
        """Return how much each token attends to each context token.

        Parameters
        ----------
        tokens, context : Tensor
            See :meth:`forward`, which does not compute this map: its attention is fused.

        Returns
        -------
        Tensor, shape (batch, head, token, context token)
            Each row sums to 1.
        """
        query = self._split(self.query(self.norm_query(tokens)))
        key = self._split(self.key(self.norm_context(context)))
        return (query @ key.mT / query.shape[-1] ** 0.5).softmax(dim=-1)

    def _split(self, tokens: torch.Tensor) -> torch.Tensor:
        """Reshape (batch, token, width) to (batch, head, token, width / heads)."""
        return tokens.unflatten(-1, (self.heads, -1)).transpose(1, 2)


class MaskedRegionTransformer(nn.Module):
    """Reconstruct the windows of hidden regions from the visible ones.

    Parameters
    ----------
    window : int
        TRs in a window.
    width, layers, heads : int
        `layers` counts the encoder; one cross-attention block decodes.
    encoding : PositionalEncoding
    generator : torch.Generator
        Draws the start of all weights.
    """

    def __init__(
        self,
        *,
        window: int,
        width: int,
        layers: int,
        heads: int,
        encoding: PositionalEncoding,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.embed = nn.Linear(window, width)
        self.encoding = encoding
        self.hidden_token = nn.Parameter(torch.empty(width))
        self.encoder = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.decoder = Block(width, heads)
        self.norm = nn.LayerNorm(width)
        self.readout = nn.Linear(width, window)
        self.reset_parameters(generator)

    def reset_parameters(self, generator: torch.Generator) -> None:
        """Draw every weight from `generator`: the encoding first, so it depends on it alone."""
        self.encoding.reset_parameters(generator)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                # PyTorch's own default for nn.Linear, from our generator.
                bound = module.in_features**-0.5
                nn.init.uniform_(module.weight, -bound, bound, generator=generator)
                nn.init.uniform_(module.bias, -bound, bound, generator=generator)
        nn.init.normal_(self.hidden_token, std=0.02, generator=generator)

    def forward(
        self, windows: torch.Tensor, visible: torch.Tensor, hidden: torch.Tensor
    ) -> torch.Tensor:
        """Predict hidden regions; their values are never read.

        Parameters
        ----------
        windows : Tensor, shape (batch, region, time)
        visible : Tensor of int64, shape (batch, visible region)
        hidden : Tensor of int64, shape (batch, hidden region)

        Returns
        -------
        Tensor, shape (batch, hidden region, time)
        """
        encoded = self.encode(windows, visible)
        queries = self.hidden_token + self.encoding()[hidden]  # (batch, hidden, width)
        return self.readout(self.norm(self.decoder(queries, encoded)))

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
        tokens = self.embed(take_regions(windows, visible)) + self.encoding()[visible]
        for block in self.encoder:
            tokens = block(tokens, tokens)
        return tokens

    def attention_maps(self, windows: torch.Tensor, visible: torch.Tensor) -> torch.Tensor:
        """Return the attention between visible regions, layer by layer of the encoder.

        Parameters
        ----------
        windows, visible
            See :meth:`encode`.

        Returns
        -------
        Tensor, shape (layer, batch, head, visible region, visible region)
        """
        tokens = self.embed(take_regions(windows, visible)) + self.encoding()[visible]
        maps = []
        for block in self.encoder:
            maps.append(cast(Block, block).attention(tokens, tokens))
            tokens = block(tokens, tokens)
        return torch.stack(maps)

    def block_matrices(self) -> list[nn.Parameter]:
        """Weight matrices inside the blocks, which Muon may train."""
        blocks = [*self.encoder, self.decoder]
        return [
            parameter for block in blocks for parameter in block.parameters() if parameter.ndim == 2
        ]


def _attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Attend; on a CPU in float32, since the backward pass is many times slower in bfloat16."""
    if query.device.type != "cpu":
        return functional.scaled_dot_product_attention(query, key, value)
    with torch.autocast("cpu", enabled=False):
        return functional.scaled_dot_product_attention(query.float(), key.float(), value.float())


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
