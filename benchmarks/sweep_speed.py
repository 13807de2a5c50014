"""Twelve short fits: `neuro-pe sweep` on two cores beside `neuro-pe train` with two threads.

    .venv/bin/python benchmarks/sweep_speed.py --output build/sweep_speed.tsv

Both make the same fits of the bundled data, baselines and start-up included. The numbers count
only on a machine that does nothing else; user time shows whether it did.
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


def timed(command: list[str], threads: int) -> dict[str, float]:
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
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
    rows = []
    for repetition in range(options.repetitions):
        for way, threads, more in (("train", 2, []), ("sweep", 1, ["--workers", "2"])):
            with tempfile.TemporaryDirectory() as folder:
                command = [str(SCRIPT), way, "--demo", "--seeds", str(options.fits), *more]
                command += ["--epochs", str(options.epochs), "--patience", "1000"]
                times = timed([*command, "--output-dir", folder], threads)
            load = os.getloadavg()[0]
            rows.append({"repetition": repetition, "way": way, **times, "load": load})
            print(rows[-1], flush=True)
    table = pd.DataFrame(rows)
    print(table.to_string(index=False, float_format="%.1f"))
    wall = table.groupby("way")["wall_seconds"].median()
    print(f"one after the other / sweep: {wall['train'] / wall['sweep']:.2f}")
    if options.output is not None:
        table.to_csv(options.output, sep="\t", index=False, float_format="%.3f")


if __name__ == "__main__":
    main()
