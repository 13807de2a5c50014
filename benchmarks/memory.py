"""Memory and time against the number of subjects: one epoch on 20, 200 and 2,000 of them.

    python benchmarks/memory.py --bids-dir DIR --work-dir DIR [--subjects 20,200,2000]

The subjects are made from those of the first DIR: shifted in time, with 5 % noise. Each fit is a
process of its own: ``neuro-pe train --cache-dir``, windows 100 TRs apart, 2 subjects for
validation, 4 for the test, all else at the defaults. The first row of a size makes the cache, the
second uses it.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd

from neuro_pe import RegionTimeSeries, load_bids
from neuro_pe.model_folder import find_model_folders

SCRIPT = Path(sys.executable).parent / "neuro-pe"


def make_cohort(source: str, folder: Path, n_subjects: int) -> None:
    """Write a derivative of `n_subjects` made from the runs of another one."""
    cohort = load_bids(source)
    rng = np.random.default_rng(0)
    for number in range(n_subjects):
        run = cohort[number % len(cohort)]
        place = folder / f"sub-{number:04d}" / "func"
        place.mkdir(parents=True, exist_ok=True)
        stem = place / f"sub-{number:04d}_task-rest_atlas-Glasser_timeseries"
        write_series(stem, run, number // len(cohort), rng)


def write_series(stem: Path, run: RegionTimeSeries, turn: int, rng: np.random.Generator) -> None:
    """Write a shifted, noisy copy of a run as ``.ptseries.nii`` with its sidecar."""
    import nibabel as nib

    values = np.roll(run.values, 37 * turn, axis=0)
    values = values + 0.05 * values.std() * rng.standard_normal(values.shape, dtype=np.float32)
    image = nib.load(run.source)
    axes = [image.header.get_axis(index) for index in (0, 1)]
    order = [f"{name}_ROI" for name in run.regions] == list(axes[1].name)
    if not order:
        msg = f"{run.source}: regions in another order than the atlas."
        raise ValueError(msg)
    nib.Cifti2Image(values, axes).to_filename(f"{stem}.ptseries.nii")
    Path(f"{stem}.json").write_text(f'{{"RepetitionTime": {run.tr}}}')


def fit(folder: Path, output_dir: Path, cache_dir: Path) -> dict:
    """Run one epoch in a process of its own; return what it took."""
    command = [str(SCRIPT), "train", "--bids-dir", str(folder), "--cache-dir", str(cache_dir)]
    command += ["--output-dir", str(output_dir), "--epochs", "1", "--test-subjects", "4"]
    command += ["--validation-subjects", "2", "--stride", "100"]
    started = time.monotonic()
    process = subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"})
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(status)
    (model,) = find_model_folders([output_dir])
    epoch = model.metrics.loc[model.metrics["split"] == "train", "seconds"].iloc[0]
    n_training = (model.subjects["split"] == "train").sum()
    return {
        "peak_mib": usage.ru_maxrss / 1024,
        "epoch_core_s_per_subject": epoch / n_training,
        "other_core_s": usage.ru_utime + usage.ru_stime - epoch,
        "wall_s": time.monotonic() - started,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bids-dir", required=True)
    parser.add_argument("--work-dir", type=Path, required=True)
    parser.add_argument("--subjects", default="20,200,2000")
    options = parser.parse_args()
    rows = []
    for n_subjects in map(int, options.subjects.split(",")):
        folder = options.work_dir / f"subjects-{n_subjects}"
        if not folder.exists():
            make_cohort(options.bids_dir, folder, n_subjects)
        for pass_ in ("makes the cache", "uses the cache"):
            place = options.work_dir / f"fit-{n_subjects}-{pass_.split()[0]}"
            row = fit(folder, place, options.work_dir / "cache")
            rows.append({"subjects": n_subjects, "run": pass_, **row})
            print(pd.DataFrame(rows).round(3).to_string(index=False), flush=True)


if __name__ == "__main__":
    sys.exit(main())
