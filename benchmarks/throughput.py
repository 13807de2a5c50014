"""Training steps a second and peak memory beside a plain transformer over all tokens.

    python benchmarks/throughput.py [--regions 100,360,1000] [--mask-ratios 0.5,0.9]

The plain one is `torch.nn.TransformerEncoder` of the same width, heads and number of blocks
(encoder layers and decoder together), pre-norm, over all regions, the hidden ones blanked. Both
train on random windows with the optimizers of `neuro-pe train`. Each measurement is a process of
its own with one thread; both models take turns, and the fastest of several steps counts, so that
other work on the machine disturbs little.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time

import pandas as pd


def measure(kind: str, n_regions: int, mask_ratio: float, precision: str, steps: int) -> dict:
    """Time training steps in this process."""
    import torch
    from torch import nn

    from neuro_pe.building import build_network
    from neuro_pe.masking import uniform_masks
    from neuro_pe.settings import FitSettings
    from neuro_pe.training import make_optimizers
    from neuro_pe.transformer import take_regions

    class Plain(nn.Module):
        """All tokens in every layer."""

        def __init__(self, settings: FitSettings) -> None:
            super().__init__()
            self.embed = nn.Linear(settings.window, settings.width)
            self.vectors = nn.Parameter(0.1 * torch.randn(n_regions, settings.width))
            self.blank = nn.Parameter(0.02 * torch.randn(settings.width))
            layer = nn.TransformerEncoderLayer(
                settings.width,
                settings.heads,
                4 * settings.width,
                dropout=0.0,
                activation="gelu",
                batch_first=True,
                norm_first=True,
            )
            self.blocks = nn.TransformerEncoder(
                layer,
                settings.layers + 1,
                norm=nn.LayerNorm(settings.width),
                enable_nested_tensor=False,
            )
            self.readout = nn.Linear(settings.width, settings.window)

        def forward(
            self, windows: torch.Tensor, visible: torch.Tensor, hidden: torch.Tensor
        ) -> torch.Tensor:
            is_hidden = torch.zeros(windows.shape[:2], dtype=torch.bool)
            is_hidden.scatter_(1, hidden, True)
            tokens = torch.where(is_hidden[..., None], self.blank, self.embed(windows))
            return take_regions(self.readout(self.blocks(tokens + self.vectors)), hidden)

        def block_matrices(self) -> list[nn.Parameter]:
            return [each for each in self.blocks.parameters() if each.ndim == 2]

    settings = FitSettings(mask_ratio=mask_ratio)
    torch.manual_seed(0)
    if kind == "plain":
        model: nn.Module = Plain(settings)
    else:
        model = build_network(settings, n_regions=n_regions, coordinates=None)
    optimizers = make_optimizers(model, settings)
    generator = torch.Generator().manual_seed(0)
    windows = torch.randn(settings.batch_size, n_regions, settings.window, generator=generator)
    seconds = []
    for _ in range(steps + 1):
        visible, hidden = uniform_masks(len(windows), n_regions, mask_ratio, generator)
        started = time.perf_counter()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bfloat16"):
            predicted = model(windows, visible, hidden)
        loss = (predicted.float() - take_regions(windows, hidden)).square().mean()
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        seconds.append(time.perf_counter() - started)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"seconds": min(seconds[1:]), "peak_mib": peak}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--regions", default="100,360,1000")
    parser.add_argument("--mask-ratios", default="0.5,0.9")
    parser.add_argument("--precisions", default="float32,bfloat16")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        kind, n_regions, mask_ratio, precision = json.loads(options.one)
        print(json.dumps(measure(kind, n_regions, mask_ratio, precision, options.steps)))
        return
    rows = []
    for precision in options.precisions.split(","):
        for n_regions in map(int, options.regions.split(",")):
            for mask_ratio in map(float, options.mask_ratios.split(",")):
                found: dict[str, list[dict]] = {"ours": [], "plain": []}
                for _ in range(options.turns):
                    for kind, results in found.items():
                        one = json.dumps([kind, n_regions, mask_ratio, precision])
                        command = [sys.executable, __file__, "--one", one]
                        command += ["--steps", str(options.steps)]
                        done = subprocess.run(
                            command,
                            check=True,
                            capture_output=True,
                            text=True,
                            env={**os.environ, "OMP_NUM_THREADS": "1"},
                        )
                        results.append(json.loads(done.stdout))
                best = {
                    kind: min(result["seconds"] for result in results)
                    for kind, results in found.items()
                }
                row = {"precision": precision, "regions": n_regions, "mask_ratio": mask_ratio}
                row |= {f"steps_per_s_{kind}": 1 / value for kind, value in best.items()}
                row["ratio"] = best["plain"] / best["ours"]
                row |= {f"peak_mib_{kind}": each[0]["peak_mib"] for kind, each in found.items()}
                rows.append(row)
                print(pd.DataFrame(rows).round(2).to_string(index=False), flush=True)


if __name__ == "__main__":
    sys.exit(main())
