"""Which parts of the fast Latin Square recipe bring what: one changed at a time.

    python benchmarks/lst_recipe.py --output-dir DIR [--seeds 3] [--only NAME,...]

Puzzles are drawn anew: those to train on, 900 like them, and 108 at a dissimilarity of 0.8 or more
from all of them. The published puzzles choose nothing here. Each variant is the fast recipe with
what its name says; the table has the accuracy on the unlike puzzles, paired by seed with the recipe
itself. The same command goes on where it was stopped.
"""

import argparse
import sys
from pathlib import Path

import pandas as pd

from neuro_pe.synthetic import sweep_lst
from neuro_pe.synthetic._fits import mean_interval

VARIANTS: dict[str, dict[str, list]] = {
    "fast": {},
    "adamw": {"optimizer": ["adamw"]},
    "adamw lr 3e-4": {"optimizer": ["adamw"], "lr": [3e-4], "encoding_lr": [3e-4]},
    "constant rates": {"schedule": ["constant"]},
    "no decay": {"weight_decay": [0.0]},
    "decay 0.03": {"weight_decay": [0.03]},
    "decay 0.3": {"weight_decay": [0.3]},
    "muon lr 2e-3": {"muon_lr": [2e-3]},
    "muon lr 1e-2": {"muon_lr": [1e-2]},
    "encoding lr 1e-4": {"encoding_lr": [1e-4]},
    "encoding lr 3e-3": {"encoding_lr": [3e-3]},
    "encoding lr 1e-2": {"encoding_lr": [1e-2]},
    "batch 64": {"batch_size": [64]},
    "batch 256": {"batch_size": [256]},
    "8 epochs": {"epochs": [8]},
    "30 epochs": {"epochs": [30]},
    "sigma 0.05": {"sigma": [0.05]},
    "sigma 1": {"sigma": [1.0]},
    "sigma 2": {"sigma": [2.0]},
    "rank 2": {"rank": [2]},
    "rank 4": {"rank": [4]},
    "2 heads": {"heads": [2]},
    "4 heads": {"heads": [4]},
    "encoding at the input": {"inject": ["input"]},
    "float32": {"precision": ["float32"]},
    "2d-fixed": {"encoding": ["2d-fixed"]},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output-dir", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--workers", type=int)
    parser.add_argument("--only", help="Some of the variants.")
    options = parser.parse_args()
    names = options.only.split(",") if options.only else list(VARIANTS)
    rows, recipe = [], pd.Series(dtype=float)
    for name in names:
        sweep = sweep_lst(
            output_dir=options.output_dir / name.replace(" ", "-"),
            grid=VARIANTS[name],
            puzzles="generated",
            n_seeds=options.seeds,
            n_workers=options.workers,
        )
        done = sweep.table[sweep.table["status"] == "done"].set_index("seed")
        if name == "fast":
            recipe = done["unlike_accuracy"]
        _, low, high = mean_interval((done["unlike_accuracy"] - recipe).dropna())
        rows.append(
            {
                "variant": name,
                "seeds": len(done),
                "trained on": done["train_accuracy"].mean(),
                "held out": done["heldout_accuracy"].mean(),
                "unlike": done["unlike_accuracy"].mean(),
                "lowest": done["unlike_accuracy"].min(),
                "minus fast": (done["unlike_accuracy"] - recipe).mean(),
                "low": low,
                "high": high,
                "core-s": done["core_seconds"].mean(),
            }
        )
        print(pd.DataFrame(rows).round(4).to_string(index=False), flush=True)


if __name__ == "__main__":
    sys.exit(main())
