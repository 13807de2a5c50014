"""Puzzles a second of the paper's recipe, beside a network of the usual building blocks.

    python benchmarks/lst_throughput.py [--turns 5] [--steps 10]

Both have the weights of the paper's network (1.25 million), take the same batches of 128 puzzles
and the same AdamW steps. The other is built as the published code is: ``nn.MultiheadAttention`` in
checkpointed blocks that compute every token to the end. Times are core-seconds of one thread; the
two take turns, and the fastest turn of each counts.
"""

import argparse
import sys
import time

import pandas as pd
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from neuro_pe.synthetic import lst_settings, split_puzzles
from neuro_pe.synthetic.lst import LatinSquareTask, new_lst_network
from neuro_pe.training import make_optimizers


class UsualBlock(nn.Module):
    """Post-norm block with an encoding of its own."""

    def __init__(self, width: int, heads: int, sigma: float) -> None:
        super().__init__()
        self.encoding = nn.Parameter(sigma * torch.randn(16, width))
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.GELU()
        )

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Update all tokens."""
        tokens = tokens + self.encoding
        added, _ = self.attention(tokens, tokens, tokens)
        tokens = self.norms[0](tokens + added)
        return self.norms[1](tokens + self.mlp(tokens))


class UsualNetwork(nn.Module):
    """One-hot symbols in, log-probabilities of the last token out."""

    def __init__(self, width: int = 160, heads: int = 1, layers: int = 4) -> None:
        super().__init__()
        self.embed = nn.Linear(5, width)
        self.blocks = nn.ModuleList(UsualBlock(width, heads, 0.2) for _ in range(layers))
        self.readout = nn.Linear(width, 4)

    def forward(self, cells: torch.Tensor) -> torch.Tensor:
        """Answer from the last token."""
        tokens = self.embed(functional.one_hot(cells, 6)[..., 1:].float())
        for block in self.blocks:
            tokens = checkpoint(block, tokens, use_reentrant=False)
        return functional.log_softmax(self.readout(tokens[:, -1]), dim=-1)


def seconds_a_step(model: nn.Module, optimizers: list, batches: list, *, half: bool) -> float:
    started = time.process_time()
    for cells, symbols in batches:
        for optimizer in optimizers:
            optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=half):
            loss = functional.cross_entropy(model(cells).float(), symbols)
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
    return (time.process_time() - started) / len(batches)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--steps", type=int, default=10)
    options = parser.parse_args()
    torch.set_num_threads(1)
    settings = lst_settings("paper")
    task = LatinSquareTask(split_puzzles().train, settings, torch.device("cpu"))
    batches = task.batches(torch.Generator().manual_seed(0))[: options.steps]
    rows = []
    for half in (True, False):
        ours = new_lst_network(settings, size=4)
        usual = UsualNetwork()
        models = {
            "neuro_pe": (ours, make_optimizers(ours, settings)),
            "usual": (usual, [torch.optim.AdamW(usual.parameters(), lr=1e-4, weight_decay=0.0)]),
        }
        best = dict.fromkeys(models, float("inf"))
        for turn in range(options.turns + 1):
            for name, (model, optimizers) in models.items():
                seconds = seconds_a_step(model, optimizers, batches, half=half)
                if turn:  # the first one warms up
                    best[name] = min(best[name], seconds)
        rows.append(
            {
                "format": "bfloat16" if half else "float32",
                **{f"{name} puzzles a s": len(batches[0][0]) / best[name] for name in models},
                "ratio": best["usual"] / best["neuro_pe"],
            }
        )
    print(pd.DataFrame(rows).round(2).to_string(index=False))


if __name__ == "__main__":
    sys.exit(main())
