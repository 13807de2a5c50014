"""Twelve short fits: `neuro-pe sweep` on two cores beside one fit after the other on two threads.

    .venv/bin/python benchmarks/sweep_speed.py --output build/sweep_speed.tsv

One after the other is a loop in the shell that starts `neuro-pe train` for each fit (what a grid
needs without a sweep), and one `neuro-pe train --seeds 12`, which starts once and has its
baselines once. All make the same fits of the bundled data, baselines and start-up included. The
numbers count only on a machine that does nothing else; user time shows whether it did.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pandas as pd

SCRIPT = Path(sys.executable).parent / "neuro-pe"


def timed(commands: list[list[str]], threads: int) -> dict[str, float]:
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    for command in commands:
        subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "wall_seconds": time.monotonic() - start,
        "user_seconds": after.ru_utime - before.ru_utime,
        "system_seconds": after.ru_stime - before.ru_stime,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fits", type=int, default=12)
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--repetitions", type=int, default=1)
    parser.add_argument("--output", type=Path, help="Table of times.")
    options = parser.parse_args()
    seeds = ["--seeds", str(options.fits)]
    ways = {
        "train, each fit": (2, [["train", "--seed", str(fit)] for fit in range(options.fits)]),
        "train, all seeds": (2, [["train", *seeds]]),
        "sweep": (1, [["sweep", *seeds, "--workers", "2"]]),
    }
    rows = []
    for repetition in range(options.repetitions):
        for way, (threads, commands) in ways.items():
            with tempfile.TemporaryDirectory() as folder:
                more = ["--epochs", str(options.epochs), "--patience", "1000"]
                more += ["--demo", "--output-dir", folder]
                times = timed([[str(SCRIPT), *each, *more] for each in commands], threads)
            load = os.getloadavg()[0]
            rows.append({"repetition": repetition, "way": way, **times, "load": load})
            print(rows[-1], flush=True)
    table = pd.DataFrame(rows)
    print(table.to_string(index=False, float_format="%.1f"))
    wall = table.groupby("way")["wall_seconds"].median()
    for way in list(ways)[:2]:
        print(f"{way} / sweep: {wall[way] / wall['sweep']:.2f}")
    if options.output is not None:
        table.to_csv(options.output, sep="\t", index=False, float_format="%.3f")


if __name__ == "__main__":
    main()
