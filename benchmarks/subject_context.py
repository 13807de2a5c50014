"""What knowing the subject is worth: the model told of a subject's own connectivity, in 5 folds.

    python benchmarks/subject_context.py --bids-dir DIR --output-dir DIR
        [--components 0 30] [--seeds N] [--set epochs=96 ...]

The model of `train` learns from many subjects and sees nothing of a new one but the visible
regions of a window. Here it also gets, for each region, how that subject's functional connectivity
departs from the training subjects' mean, on the first components of that mean (0 of them: the model
as it is). Beside it stand the Gaussian imputers, and those with a share of the subject's own lagged
covariances mixed in; validation subjects choose shares and ridges.

Nothing hidden is told: every scan is cut in two, and what is known of the subject in one half
comes from the other half alone, in training as in the test. The same command goes on where it was
stopped; errors by subject are in ``fold-*.tsv``.
"""

import argparse
import multiprocessing
import os
import sys
import time
from copy import copy
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

N_VALIDATION = 2
SHARES = (0.0, 0.15, 0.3, 0.45, 0.6)
RIDGES = (0.05, 0.1, 0.2, 0.4, 0.8)


class Fold(NamedTuple):
    """Whom a fold trains on, validates and tests."""

    bids_dir: str
    train: list[str]
    validation: list[str]
    test: list[str]

    def halves(self, split: str) -> Any:
        """Return the runs of a split, cut in two: 2 i and 2 i + 1 are the halves of run i."""
        import neuro_pe as npe

        cohort = npe.load_bids(self.bids_dir).select_subjects(getattr(self, split))
        pieces = []
        for run in cohort:
            middle = run.n_times // 2
            for values in (run.values[:middle], run.values[middle:]):
                pieces.append(replace(run, values=values))
        return replace(cohort, runs=tuple(pieces))


def evaluation_sets(cohort: Any, settings: Any) -> list[Any]:
    """Return the evaluation set of each half."""
    from neuro_pe.reconstruction import EvaluationSet
    from neuro_pe.windows import WindowSource

    sources = [WindowSource(replace(cohort, runs=(run,)), window=settings.window) for run in cohort]
    return [EvaluationSet(source, mask_ratio=settings.test_mask_ratio) for source in sources]


def errors_of(sets: list[Any], predictors: list[Any], name: str) -> pd.DataFrame:
    """Return the errors on all halves, each with a predictor of its own."""
    from neuro_pe.reconstruction import summarize_errors

    tables = [
        summarize_errors(
            each.errors(predictor),
            subjects=each.source.subjects,
            regions=each.source.cohort.region_names,
            predictor=name,
        )
        for each, predictor in zip(sets, predictors, strict=True)
    ]
    return pd.concat(tables)


def fit_model(job: tuple[Fold, Path, int, int, dict[str, Any]]) -> None:
    """Fit one seed of one fold, in a process of its own."""
    import torch

    from neuro_pe.building import new_network
    from neuro_pe.fitting import resolve_settings
    from neuro_pe.reconstruction import MaskedRegionTask, ModelImputer
    from neuro_pe.settings import FitSettings
    from neuro_pe.training import train
    from neuro_pe.transformer import MaskedRegionTransformer
    from neuro_pe.windows import WindowSource

    fold, file, n_components, seed, chosen = job
    training, test = fold.halves("train"), fold.halves("test")
    mean = training.functional_connectivity().to_numpy()
    values, vectors = np.linalg.eigh(mean)
    order = np.argsort(-values)[:n_components]
    components = vectors[:, order] / np.sqrt(values[order])

    def profiles(cohort: Any) -> torch.Tensor:
        """Departures of the other half's connectivity, shape (half, region, component)."""
        own = [np.corrcoef(run.values.astype(float), rowvar=False) for run in cohort]
        other = [own[number ^ 1] - mean for number in range(len(own))]
        return torch.tensor(np.stack(other) @ components).float()

    known = profiles(training)
    scale = known.std() if n_components else 1.0
    known = known / scale

    class ContextTransformer(MaskedRegionTransformer):
        """The network of `train`, with a linear map of profiles added to the tokens."""

        def _add(self, tokens: Any, number: int, regions: torch.Tensor) -> torch.Tensor:
            profile = self.known.expand(len(regions), -1, -1)
            profile = profile.gather(1, regions[..., None].expand(-1, -1, n_components))
            return super()._add(tokens, number, regions) + profile @ self.context

    class ContextTask(MaskedRegionTask):
        def loss(self, model: Any, batch: Any) -> torch.Tensor:
            model.known = known[batch[0][:, 0]]
            return super().loss(model, batch)

    source = WindowSource(training, window=FitSettings(**chosen).window)
    settings = resolve_settings(FitSettings(seed=seed, **chosen), source)
    network: Any = new_network(settings, training)
    network.__class__ = ContextTransformer
    network.context = torch.nn.Parameter(torch.zeros(n_components, settings.width))
    started = time.process_time()
    train(network, ContextTask(source, None, settings, torch.device("cpu")), settings)
    seconds = time.process_time() - started

    class Told(ModelImputer):
        def __init__(self, profile: torch.Tensor) -> None:
            super().__init__(network)
            self.profile = profile

        def predict(self, *group: np.ndarray) -> np.ndarray:
            self.model.known = self.profile[None]
            return super().predict(*group)

    told = [Told(profile) for profile in profiles(test) / scale]
    table = errors_of(evaluation_sets(test, settings), told, "model")
    save(table.assign(components=n_components, seed=seed, core_seconds=seconds), file)


def fit_imputers(job: tuple[Fold, Path, dict[str, Any]]) -> None:
    """Fit the Gaussian imputers of a fold; validation subjects choose share and ridge."""
    from neuro_pe.baselines import GaussianImputer, SpaceTimeGaussianImputer
    from neuro_pe.settings import FitSettings
    from neuro_pe.timeseries import standardize

    fold, file, chosen = job
    settings = FitSettings(**chosen)
    training, *judged = (fold.halves(split) for split in ("train", "validation", "test"))
    validation, test = (evaluation_sets(cohort, settings) for cohort in judged)
    space_time = SpaceTimeGaussianImputer(window=settings.window)
    tables = []
    for group in (GaussianImputer(), space_time):
        group.fit(standardize(run.values) for run in training)

        def mixed(cohort: Any, share: float, group: Any = group) -> list[Any]:
            """Return an imputer for each half, with a share of the other half's covariances."""
            own = [copy(group).fit([standardize(run.values)]) for run in cohort]
            other = [own[number ^ 1].covariances_ for number in range(len(own))]
            for imputer, covariances in zip(own, other, strict=True):
                imputer.covariances_ = (1 - share) * group.covariances_ + share * covariances
            return own

        found = {}
        for share in SHARES:
            pairs = zip(validation, mixed(judged[0], share), strict=True)
            errors = [each.ridge_errors(imputer, RIDGES) for each, imputer in pairs]
            found |= {
                (share, ridge): e for ridge, e in zip(RIDGES, np.mean(errors, 0), strict=True)
            }
        for name, shares in ((group.name, (0.0,)), (f"{group.name}_own", SHARES)):
            share, ridge = min(product(shares, RIDGES), key=found.__getitem__)
            imputers = mixed(judged[1], share)
            for imputer in imputers:
                imputer.ridge = ridge
            tables.append(errors_of(test, imputers, name).assign(share=share, ridge=ridge))
    save(pd.concat(tables), file)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bids-dir", required=True)
    parser.add_argument("--output-dir", type=Path, required=True)
    parser.add_argument("--components", type=int, nargs="+", default=[0, 30])
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
    options.output_dir.mkdir(parents=True, exist_ok=True)
    folds = []
    for number in range(options.folds):
        test = subjects[number :: options.folds]
        rest = [each for each in subjects[number + 1 :] + subjects[:number] if each not in test]
        folds.append(Fold(options.bids_dir, rest[N_VALIDATION:], rest[:N_VALIDATION], test))
    place = options.output_dir
    models = [
        (fold, place / f"fold-{number}_components-{n}_seed-{seed}.tsv", n, seed, chosen)
        for seed, n, (number, fold) in product(
            range(options.seeds), options.components, enumerate(folds)
        )
    ]
    imputers = [
        (fold, place / f"fold-{number}_imputers.tsv", chosen) for number, fold in enumerate(folds)
    ]
    with multiprocessing.get_context("spawn").Pool(options.workers, maxtasksperchild=1) as pool:
        waiting = [
            pool.apply_async(work, [job])
            for work, jobs in ((fit_imputers, imputers), (fit_model, models))
            for job in jobs
            if not job[1].exists()
        ]
        for each in waiting:
            each.get()
    report(place)


def report(folder: Path) -> None:
    """Print errors over all subjects, and by fold, for every number of components."""
    from neuro_pe.comparison import compare_predictors

    files = sorted(folder.glob("fold-*_*.tsv"))
    table = pd.concat(
        pd.read_csv(file, sep="\t", dtype={"subject": str}).assign(fold=file.name.split("_")[0])
        for file in files
    )
    print(table.groupby(["fold", "predictor"])[["share", "ridge"]].first().dropna().to_string())
    models = table[table["predictor"] == "model"]
    print(models.groupby(["fold", "components", "seed"])["core_seconds"].first().to_string())
    for components, own in models.groupby("components"):
        others = table[table["predictor"] != "model"]
        if components:
            others = pd.concat([others, models[models["components"] == 0].assign(predictor="none")])
        both = pd.concat([own, others])
        for fold, part in [*both.groupby("fold"), ("all subjects", both)]:
            print(f"\n{components:.0f} components, {fold}")
            print(compare_predictors(part).round(4).to_string(index=False))


def save(table: pd.DataFrame, file: Path) -> None:
    """Write the whole table or nothing."""
    partial = file.with_suffix(".partial")
    table.to_csv(partial, sep="\t", index=False, na_rep="n/a", float_format="%.6g")
    partial.replace(file)
    print(f"{file.name} done", flush=True)


if __name__ == "__main__":
    sys.exit(main())
