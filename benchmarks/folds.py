"""The model beside linear predictors on every subject: 5 folds by subject, paired.

    python benchmarks/folds.py --bids-dir DIR --output-dir DIR [--set epochs=116 ...]

Each fold tests on a fifth of the subjects, validates on two others and trains on the rest. The
imputers are fitted on the training subjects of the same fold, their ridges chosen by the
validation subjects, and judged on the same hidden values. ``--set`` gives options of
`FitSettings`; all else has its defaults. The same command goes on where it was stopped.
"""

import argparse
import multiprocessing
import os
import sys
from pathlib import Path
from typing import Any

import pandas as pd

N_VALIDATION = 2


def fit(job: tuple[str, Path, list[str], list[str], dict[str, Any]]) -> None:
    """Fit one seed of one fold, in a process of its own."""
    import neuro_pe as npe
    from neuro_pe.settings import FitSettings

    bids_dir, folder, test, validation, options = job
    cohort = npe.load_bids(bids_dir, cache_dir=folder.parent / "cache")
    npe.train_models(
        cohort,
        output_dir=folder,
        settings=FitSettings(**options),
        test_subjects=test,
        validation_subjects=validation,
        baselines_dir=folder / "baselines",
        resume=True,
    )
    print(f"{folder.name} seed {options['seed']} done", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bids-dir", required=True)
    parser.add_argument("--output-dir", type=Path, required=True)
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--set", nargs="*", default=[], metavar="OPTION=VALUE")
    options = parser.parse_args()
    # Before the numeric libraries start: one thread a process.
    os.environ["OMP_NUM_THREADS"] = "1"
    import neuro_pe as npe
    from neuro_pe.cli._options import parse_values

    chosen = {}
    for each in options.set:
        name, _, text = each.partition("=")
        [chosen[name]] = parse_values(name, [text])
    subjects = npe.load_bids(options.bids_dir).subjects
    jobs = []
    for seed in range(options.seeds):
        for fold in range(options.folds):
            test = subjects[fold :: options.folds]
            rest = subjects[fold + 1 :] + subjects[:fold]
            validation = [each for each in rest if each not in test][:N_VALIDATION]
            folder = options.output_dir / f"fold-{fold}"
            settings = {**chosen, "seed": seed}
            jobs.append((options.bids_dir, folder, test, validation, settings))
    with multiprocessing.get_context("spawn").Pool(options.workers, maxtasksperchild=1) as pool:
        pool.map(fit, jobs, chunksize=1)
    report(options.output_dir)


def report(folder: Path) -> None:
    """Print errors by fold and over all subjects, and what they cost."""
    from neuro_pe.comparison import compare_predictors
    from neuro_pe.model_folder import find_model_folders

    errors, rows = [], []
    for place in sorted(folder.glob("fold-*")):
        models = find_model_folders([place])
        for model in models:
            test = model.metrics.query("split == 'test'").set_index("predictor")
            row = {"fold": place.name, "seed": model.settings.seed, **test["mse"].to_dict()}
            rows.append({**row, "core_seconds": test.loc["model", "seconds"]})
        own = pd.concat([model.region_errors for model in models])
        errors.append(own)
        print(f"\n{place.name}\n{compare_predictors(own).round(4).to_string(index=False)}")
    table = pd.DataFrame(rows)
    table.to_csv(folder / "folds.tsv", sep="\t", index=False, float_format="%.6g")
    print(f"\n{table.round(4).to_string(index=False)}")
    pooled = pd.concat(errors)
    print(f"\nall subjects\n{compare_predictors(pooled).round(4).to_string(index=False)}")


if __name__ == "__main__":
    sys.exit(main())
