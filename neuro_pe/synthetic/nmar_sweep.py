"""Sweeps over simulated networks: which encodings find the modules that connectivity hides."""

import functools
import hashlib
import json
import os
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from neuro_pe._baseline_cache import cached_errors
from neuro_pe.building import build_network
from neuro_pe.comparison import matrix_correlation
from neuro_pe.derivatives import read_table, write_table
from neuro_pe.errors import InputError
from neuro_pe.experiment import train_models
from neuro_pe.fitting import resolve_machine
from neuro_pe.jobs import DaskCluster, Job, JobProgress
from neuro_pe.model_folder import ModelFolder, add_tables, check_files
from neuro_pe.reconstruction import EvaluationSet
from neuro_pe.report import compare_fits
from neuro_pe.settings import FitSettings
from neuro_pe.sweeps import (
    encoding_parts,
    grid_settings,
    name_of_parts,
    option_parts,
    seeded,
    spell,
)
from neuro_pe.synthetic._checks import check_list, check_noise, check_whole
from neuro_pe.synthetic._fits import (
    FinishedFit,
    finished_fits,
    job_data,
    job_settings,
    output_folder,
    run_fits,
)
from neuro_pe.synthetic.nmar import (
    MOST_SUBJECTS,
    MOST_TIMES,
    ModularNetwork,
    make_network,
    simulate_cohort,
)
from neuro_pe.synthetic.nmar_ceiling import NoiseCeiling
from neuro_pe.synthetic.nmar_results import (
    CEILING,
    STATISTICS,
    f_tests,
    long_table,
    summarize_nmar,
)
from neuro_pe.timeseries import Cohort
from neuro_pe.windows import WindowSource

__all__ = [
    "NETWORK",
    "NmarSweep",
    "modules_of",
    "nmar_job",
    "nmar_settings",
    "sweep_nmar",
]

# A small network needs a small model; half the regions are hidden, as they say little of others.
SMALL = {"width": 64, "heads": 4, "window": 4, "batch_size": 64, "epochs": 22}
HALF = {"mask_ratio": 0.5, "test_mask_ratio": 0.5, "target_ratio": 0.5}
NETWORK: dict[str, Any] = {
    "n_regions": 40,
    "n_modules": 4,
    "within": 0.3,
    "between": 0.015,
    "spectral_radius": 0.9,
    "n_subjects": 10,
    "n_times": 2000,
}
SPLIT: dict[str, Any] = {"test_subjects": 0.2, "validation_subjects": 0.1}
BASELINES = "baselines"
TRUTH = "truth.tsv"  # what a model folder says of the true network
N_PERMUTATIONS = 200


@dataclass(frozen=True, kw_only=True, eq=False)
class NmarSweep:
    """What came of a sweep.

    Parameters
    ----------
    table : DataFrame
        A row a fit asked for: ``name, status, error``, options, results (``sweep.tsv``).
    fits : list of FinishedFit
        All fits of the folder: ``job``, ``path`` of the model folder, and ``results``.
    results : DataFrame
        ``nmar.tsv``: for each fit a row a predictor (errors on unseen subjects) and a row a
        source (``pe``, ``change``, ``fc``: what it says of the modules).
    settings : DataFrame
        A row a setting (:func:`summarize_nmar`).
    tests : DataFrame
        ``network, f, df_between, df_within, p``: one-way F-test of the model's MSE over
        settings, for every kind of network.
    """

    table: pd.DataFrame
    fits: list[FinishedFit]
    results: pd.DataFrame
    settings: pd.DataFrame
    tests: pd.DataFrame

    @property
    def failed(self) -> pd.DataFrame:
        """Rows of the fits that failed."""
        return self.table[self.table["status"] != "done"]


def nmar_settings(**options: Any) -> FitSettings:
    """Return settings that suit a simulated network of some dozens of regions.

    Parameters
    ----------
    **options
        Fields of :class:`neuro_pe.settings.FitSettings` that shall differ.

    Examples
    --------
    >>> from neuro_pe.synthetic import nmar_settings
    >>> nmar_settings(sigma=0.2).window
    4
    """
    return FitSettings(**{**SMALL, **HALF, **options})


def sweep_nmar(
    *,
    output_dir: str | os.PathLike[str],
    grid: Mapping[str, Sequence[Any]] | None = None,
    noises: Sequence[float] = (1.0,),
    network: Mapping[str, Any] | None = None,
    n_seeds: int = 1,
    n_workers: int | None = None,
    dask: DaskCluster | None = None,
    progress: Callable[[JobProgress], None] | None = None,
) -> NmarSweep:
    """Simulate a network a seed, fit a model for every setting, and look for the modules.

    The same call again does only what is missing.

    Parameters
    ----------
    output_dir : path-like
        Gets a folder a simulated network (``noise-1_seed-0``) with ``modules.tsv``, which
        ``compare-networks`` takes as a partition, and a model folder a fit; ``sweep.tsv`` and
        ``nmar.tsv``.
    grid : mapping of str to sequence
        Values of options of :class:`neuro_pe.settings.FitSettings`, as ``{"sigma": [0.1, 1]}``.
    noises : sequence of float
        Standard deviations of each region's own noise.
    network : mapping or None
        ``n_regions``, ``n_modules``, ``within``, ``between``, ``spectral_radius`` (see
        :func:`make_network`), ``n_subjects`` and ``n_times`` (see :func:`simulate_cohort`), where
        they shall differ from :data:`NETWORK`.
    n_seeds : int
        Each draws a network, its noise and a model.
    n_workers : int or None
        Processes on this machine, each with one thread; None is one a core.
    dask : DaskCluster or None
        Takes the place of processes on this machine.
    progress : callable or None
        Called when fits have been started and when one ends.

    Raises
    ------
    InputError
        If options are wrong, or the folder holds something else.

    Examples
    --------
    >>> from neuro_pe.synthetic import sweep_nmar
    >>> result = sweep_nmar(output_dir="nmar", n_seeds=10, grid={
    ...     "encoding": ["learn", "random", "nope"], "sigma": [0.1, 1]})  # doctest: +SKIP
    """
    jobs = _jobs(dict(grid or {}), noises, dict(network or {}), n_seeds)
    folder = output_folder(output_dir)
    how: dict[str, Any] = {"n_workers": n_workers, "dask": dask, "progress": progress}
    how |= {"path_of": _model_path, "leaves": ("nmar.tsv",)}
    table = run_fits(jobs, nmar_job, output_dir=folder, **how)
    fits = finished_fits(folder, path_of=_model_path, results_of=_results)
    for fit in fits:
        _keep_modules(_network(fit.job.arguments, fit.job.arguments["seed"]), fit.path.parent)
    results = long_table(fits)
    if os.access(folder, os.W_OK):  # else it has been said
        write_table(results, folder / "nmar.tsv")
    return NmarSweep(
        table=table,
        fits=fits,
        results=results,
        settings=summarize_nmar(results),
        tests=f_tests(results),
    )


def _jobs(
    grid: dict[str, Any], noises: Sequence[float], network: dict[str, Any], n_seeds: int
) -> list[Job]:
    unknown = sorted(set(network) - set(NETWORK))
    if unknown:
        msg = f"network: unknown option {unknown[0]!r}; expected some of {', '.join(NETWORK)}."
        raise InputError(msg)
    network = {**NETWORK, **network}
    usual = {name: [value] for name, value in asdict(nmar_settings()).items()}
    settings = seeded(grid_settings({**usual, **grid}), n_seeds)
    # Refused before anything is written.
    for each in settings:
        _network(network, each.seed)
        check_whole("n_subjects", network["n_subjects"], 3, MOST_SUBJECTS)
        check_whole("n_times", network["n_times"], 3, MOST_TIMES)
        if network["n_times"] < each.window:
            msg = f"n_times: found {network['n_times']}, under the window of {each.window} steps."
            raise InputError(msg)
    for each in dict.fromkeys(replace(each, seed=0) for each in settings):
        n_regions = network["n_regions"]
        build_network(
            resolve_machine(each),
            n_regions=n_regions,
            coordinates=None,
            connectivity=np.eye(n_regions),
        )
    jobs: dict[str, Job] = {}
    check_list("noises", noises)
    for noise in noises:
        check_noise(noise)
        for job in (_named(each, network, noise) for each in settings):
            jobs[job.name] = job
    return list(jobs.values())


def _named(settings: FitSettings, network: Mapping[str, Any], noise: float) -> Job:
    name = _name(settings, noise=noise, network=network)
    arguments = {"task": "nmar", "noise": float(noise), **network, **asdict(settings)}
    return Job(name=name, arguments=arguments)


def _name(settings: FitSettings, *, noise: float, network: Mapping[str, Any]) -> str:
    parts = [*encoding_parts(settings), *_data_parts({**network, "noise": noise})]
    named = ("encoding", "sigma", "seed")
    parts += option_parts(settings, nmar_settings(), leave_out=named)
    return name_of_parts(parts, seed=settings.seed)


def _model_path(job: Job, folder: Path) -> Path:
    """Each simulated network has a folder of its own: its fits are of the same data."""
    parts = [*_data_parts(job.arguments), f"seed-{job.arguments['seed']}"]
    return folder / "_".join(parts) / job.name


def _data_parts(options: Mapping[str, Any]) -> list[str]:
    """Return the parts of a name that say what was simulated."""
    changed = [
        f"{name.removeprefix('n_').replace('_', '-')}-{spell(options[name])}"
        for name in NETWORK
        if options[name] != NETWORK[name]
    ]
    return [f"noise-{spell(options['noise'])}", *changed]


def _network(options: Mapping[str, Any], seed: int) -> ModularNetwork:
    drawn = ("n_regions", "n_modules", "within", "between", "spectral_radius")
    return make_network(seed=seed, **{name: options[name] for name in drawn})


def nmar_job(job: Job, context: dict[str, Any]) -> dict[str, Any]:
    """Do one fit of a sweep and return its row of the table."""
    settings = job_settings(job, context)
    folder = Path(context["output_dir"])
    key = json.dumps({name: job.arguments[name] for name in (*NETWORK, "noise", "seed")})
    network, cohort = _simulated(key)
    path = _model_path(job, folder)
    path.parent.mkdir(exist_ok=True)
    _keep_modules(network, path.parent)
    baselines = folder / BASELINES
    [model] = train_models(
        cohort,
        output_dir=path.parent,
        settings=settings,
        folder_name=job.name,
        baselines_dir=baselines,
        resume=True,
        **SPLIT,
    )
    if TRUTH not in check_files(path):
        found = {CEILING: _ceiling(network, cohort, model, job, baselines)}
        found |= _structure(model, network)
        truth = pd.DataFrame(found.items(), columns=["result", "value"])
        add_tables(path, {TRUTH: truth}, job_data(job))
    return _results(path)


def _results(path: Path) -> dict[str, float]:
    """Return the row of the table of a fit, from its model folder."""
    metrics = read_table(path / "metrics.tsv")
    table = read_table(path / TRUTH)
    truth = dict(zip(table["result"], table["value"], strict=True))
    test = metrics[metrics["split"] == "test"].set_index("predictor")["mse"]
    errors = {f"mse_{name}": float(error) for name, error in test.items()}
    return {"core_seconds": float(metrics["seconds"].max()), **errors, **truth}


@functools.lru_cache(maxsize=2)
def _simulated(key: str) -> tuple[ModularNetwork, Cohort]:
    options = json.loads(key)
    network = _network(options, options["seed"])
    how = {name: options[name] for name in ("n_subjects", "n_times", "noise", "seed")}
    return network, simulate_cohort(network, **how)


def _keep_modules(network: ModularNetwork, folder: Path) -> None:
    """Write the true modules beside the fits of a network; refuse others that stand there."""
    file = folder / "modules.tsv"
    if not file.exists():
        write_table(network.modules.reset_index(), file)
    try:
        is_same = modules_of(folder).equals(network.modules)
    except (ValueError, KeyError):  # it is no table, or another one
        is_same = False
    if not is_same:
        msg = (
            f"{file}: damaged (not the modules of the simulated network); delete it, and the same "
            "command writes it again."
        )
        raise InputError(msg)


def modules_of(folder: Path) -> pd.Series:
    """Return the true modules of the regions, from the folder of a simulated network."""
    return read_table(folder / "modules.tsv", index="name")["module"]


def _ceiling(
    network: ModularNetwork, cohort: Cohort, model: ModelFolder, job: Job, folder: Path
) -> float:
    """Return the lowest MSE that can be expected on the hidden values of the test subjects."""
    subjects = list(model.subjects.loc[model.subjects["split"] == "test", "subject"])
    window, ratio = model.settings.window, model.settings.test_mask_ratio

    def compute() -> dict[tuple[str, str], tuple[np.ndarray, float]]:
        started = time.process_time()
        imputer = NoiseCeiling(network, noise=job.arguments["noise"])
        held_out = EvaluationSet(
            WindowSource(cohort.select_subjects(subjects), window=window), mask_ratio=ratio
        )
        errors = held_out.errors(imputer)
        return {("test", imputer.name): (errors, time.process_time() - started)}

    content = json.dumps([model.data["fingerprint"], subjects, window, ratio, "noise_ceiling"])
    key = hashlib.sha256(content.encode()).hexdigest()[:16]
    total, _ = cached_errors(folder, key, compute)["test", NoiseCeiling.name]
    return float(total[0].sum() / total[2].sum())


def _structure(model: ModelFolder, network: ModularNetwork) -> dict[str, float]:
    """Say what encoding, learned change and functional connectivity know of modules and weights."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that some encodings leave nothing to compare
        comparison = compare_fits([model], partition=network.modules, n_permutations=N_PERMUTATIONS)
    table = comparison.table
    table = table[(table["network"] == "all") & table["statistic"].isin(STATISTICS)]
    found: dict[str, float] = {}
    for row in table.to_dict("records"):
        found[f"{row['source']}_{row['statistic']}"] = row["value"]
        if row["statistic"] == "ari":
            found |= {
                f"{row['source']}_ari_null": row["null_mean"],
                f"{row['source']}_ari_p": row["p"],
            }
    coupling = np.abs(network.weights) + np.abs(network.weights.T)
    for (_, source), similar in comparison.similarities.items():
        order = list(network.modules.index)
        matrix = similar.loc[order, order].to_numpy()
        found[f"{source}_correlation_with_weights"] = matrix_correlation(matrix, coupling)
    return found
