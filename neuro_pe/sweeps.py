"""Sweeps over the settings of masked-region models: a grid in, one table of fits out."""

import hashlib
import importlib
import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields, replace
from numbers import Integral
from pathlib import Path
from typing import Any

import pandas as pd

from neuro_pe._job_table import TABLE, damaged
from neuro_pe._sweep_source import Source
from neuro_pe._sweep_summary import SweepSummary, summarize_sweep, sweep_text
from neuro_pe.derivatives import atomic_path, check_output_dir, write_table
from neuro_pe.errors import InputError
from neuro_pe.jobs import DaskCluster, Job, JobProgress, check_task, read_jobs, run_jobs
from neuro_pe.settings import FitSettings, kind_of, uses_sigma
from neuro_pe.timeseries import Cohort

__all__ = [
    "SweepSummary",
    "encoding_parts",
    "fit_name",
    "grid_settings",
    "name_of_parts",
    "option_parts",
    "seeded",
    "spell",
    "sweep",
    "sweep_text",
]

SUMMARY = "sweep_settings.tsv"
FIGURE = Path("figures") / "sweep_sigma.png"
BASELINES = "baselines"
NAMED = ("encoding", "sigma", "mask_ratio", "seed")  # stand in every name
MOST_FITS = 100_000
MOST_CHARACTERS = 180  # of a name without its seed: names of folders end at 255
ERRORS = ("validation_mse", "test_mse")
NUMBERS = ("best_epoch", "core_seconds", *ERRORS, "n_validation", "n_test")


def grid_settings(
    grid: Mapping[str, Sequence[Any]], rows: Sequence[Mapping[str, Any]] = ({},)
) -> list[FitSettings]:
    """Return every combination of the grid's values, each once.

    Parameters
    ----------
    grid : mapping of str to sequence
        Values of options of :class:`FitSettings`; all others have their defaults.
    rows : sequence of mapping
        Combinations that the grid is crossed with.

    Returns
    -------
    list of FitSettings
        Sigma has no meaning for an encoding that starts from no noise: such combinations are one.

    Raises
    ------
    InputError
        If an option is unknown, has no value, or a value is out of range.

    Examples
    --------
    >>> from neuro_pe.sweeps import grid_settings
    >>> settings = grid_settings({"encoding": ["learn", "nope"], "sigma": [0.1, 1.0]})
    >>> [(each.encoding, each.sigma) for each in settings]
    [('learn', 0.1), ('learn', 1.0), ('nope', 0.1)]
    """
    known = [option.name for option in fields(FitSettings)]
    for name in dict.fromkeys([*grid, *(name for row in rows for name in row)]):
        if name not in known:
            msg = f"{name}: no option of a fit; expected some of {', '.join(known)}."
            raise InputError(msg)
    for name, values in grid.items():
        if isinstance(values, str) or not isinstance(values, Sequence) or not len(values):
            msg = f"{name}: found {values!r}; expected a list of values."
            raise InputError(msg)
    found: dict[FitSettings, None] = {}
    for row in rows:
        for values in itertools.product(*grid.values()):
            settings = FitSettings(**dict(zip(grid, values, strict=True)) | dict(row))
            found.setdefault(_without_idle_sigma(settings))
    return list(found)


def _without_idle_sigma(settings: FitSettings) -> FitSettings:
    if uses_sigma(settings.encoding):
        return settings
    return replace(settings, sigma=FitSettings.sigma)


def fit_name(settings: FitSettings) -> str:
    """Name a fit by its settings: no two of different settings have the same name.

    Parameters
    ----------
    settings : FitSettings

    Returns
    -------
    str
        :attr:`FitSettings.name`, with every further option that is not at its default.

    Examples
    --------
    >>> from neuro_pe.settings import FitSettings
    >>> from neuro_pe.sweeps import fit_name
    >>> fit_name(FitSettings(sigma=0.2, width=64))
    'encoding-learn_sigma-0.2_mask-0.9_width-64_seed-0'
    """
    parts = encoding_parts(settings)
    parts.append(f"mask-{spell(settings.mask_ratio)}")
    parts += option_parts(settings, FitSettings(), leave_out=NAMED)
    return name_of_parts(parts, seed=settings.seed)


def name_of_parts(parts: Sequence[str], *, seed: int) -> str:
    """Join the parts of the name of a fit, seed last; the end of a long one is a checksum."""
    name = "_".join(parts)
    if len(name) > MOST_CHARACTERS:
        checksum = hashlib.sha256(name.encode()).hexdigest()[:8]
        name = f"{name[: MOST_CHARACTERS - len(checksum) - 1]}_{checksum}"
    return f"{name}_seed-{seed}"


def encoding_parts(settings: FitSettings) -> list[str]:
    """Return the parts of a name that say the encoding and, where it counts, sigma."""
    sigma = [f"sigma-{spell(settings.sigma)}"] if uses_sigma(settings.encoding) else []
    return [f"encoding-{settings.encoding}", *sigma]


def option_parts(
    settings: FitSettings, usual: FitSettings, *, leave_out: Sequence[str]
) -> list[str]:
    """Return the parts of a name that say which options are not as usual."""
    return [
        f"{option.name.replace('_', '-')}-{spell(value)}"
        for option in fields(settings)
        if option.name not in leave_out
        and (value := getattr(settings, option.name)) != getattr(usual, option.name)
    ]


def spell(value: Any) -> str:
    """Spell a value in a name: short, and so that no two values are spelled alike."""
    short = f"{value:g}" if isinstance(value, float) else str(value)
    return short if not isinstance(value, float) or float(short) == value else repr(value)


def sweep(
    data: Cohort | str | os.PathLike[str],
    *,
    output_dir: str | os.PathLike[str],
    grid: Mapping[str, Sequence[Any]] | None = None,
    settings: Sequence[FitSettings] | None = None,
    n_seeds: int = 1,
    test_subjects: float | int | Sequence[str] = 0.2,
    validation_subjects: float | int | Sequence[str] = 0.15,
    group_column: str | None = None,
    filters: Mapping[str, Any] | None = None,
    n_workers: int | None = None,
    dask: DaskCluster | None = None,
    progress: Callable[[JobProgress], None] | None = None,
) -> SweepSummary:
    """Fit a model for every setting and seed, and compare the settings.

    The same call again does what is missing: fits that are done are kept, failed ones are tried
    again, and one that was stopped goes on from its checkpoint.

    Parameters
    ----------
    data : Cohort or path-like
        A BIDS derivative, which each process reads itself; or runs, which are sent to each
        process once.
    output_dir : path-like
        Gets a model folder a fit, ``sweep.tsv`` (a row a fit), ``sweep_settings.tsv`` (a row a
        setting) and ``figures/sweep_sigma.png``.
    grid : mapping of str to sequence, or None
        Values by option, ``{"sigma": [0.1, 1.0], "encoding": ["learn", "random"]}``.
    settings : sequence of FitSettings, or None
        In place of a grid.
    n_seeds : int
        Fits a setting, from its seed on.
    test_subjects, validation_subjects, group_column
        See :func:`neuro_pe.experiment.split_cohort`.
    filters : mapping or None
        Options of :func:`neuro_pe.load_bids`, if `data` is a path.
    n_workers : int or None
        Processes, each with one thread; None is one a core.
    dask : DaskCluster or None
        Takes the place of processes on this machine.
    progress : callable or None
        Called when fits have been started and when one ends.

    Returns
    -------
    SweepSummary

    Raises
    ------
    InputError
        If options are wrong, or the folder holds a sweep of other data or splits.

    Examples
    --------
    >>> import neuro_pe as npe
    >>> result = npe.sweep("derivatives/xcp_d", output_dir="results", n_seeds=15,
    ...                    grid={"sigma": [0.1, 0.2, 1.0]})  # doctest: +SKIP
    """
    fits = _fits(grid, settings, n_seeds)
    if not isinstance(data, (Cohort, str, os.PathLike)):
        kind = type(data).__name__
        msg = f"data: found {kind}; expected a Cohort or the folder of a BIDS derivative."
        raise InputError(msg)
    jobs = [Job(name=fit_name(each), arguments=asdict(each)) for each in fits]
    folder = Path(output_dir).resolve()
    source = Source(
        output_dir=os.fspath(folder),
        cohort=data if isinstance(data, Cohort) else None,
        bids_dir=None if isinstance(data, Cohort) else os.fspath(Path(data).resolve()),
        filters=dict(filters or {}),
        split={
            "test_subjects": test_subjects,
            "validation_subjects": validation_subjects,
            "group_column": group_column,
        },
    )
    _check_folder(folder)
    if differs := source.differs():
        source.check()
    before = _modified(folder)
    table = run_jobs(
        jobs,
        fit_job,
        output_dir=output_dir,
        prepare=lambda: source.prepare(min(each.window for each in fits)),
        is_there=lambda job: (folder / job.name).is_dir(),
        n_workers=n_workers,
        dask=dask,
        progress=progress,
    )
    summary = summarize_sweep(table)
    if os.access(folder, os.W_OK):  # else it has been said
        if differs and not source.is_described():
            source.describe()
        _write(summary, folder, anew=_modified(folder) != before)
    return summary


def _fits(grid: Any, settings: Any, n_seeds: Any) -> list[FitSettings]:
    """Return every setting with every seed, each once."""
    if settings is not None and grid is not None:
        msg = "grid: found settings too; expected one of grid and settings."
        raise InputError(msg)
    if settings is None:
        if not isinstance(grid, Mapping | None):
            kind = type(grid).__name__
            msg = f"grid: found {kind}; expected lists by option, as {{'sigma': [0.1, 1]}}."
            raise InputError(msg)
        settings = grid_settings(grid or {})
    listed = settings if isinstance(settings, Sequence) else [settings]
    wrong = [type(each).__name__ for each in listed if not isinstance(each, FitSettings)]
    if wrong or not listed:
        found = wrong[0] if wrong else "an empty list"
        msg = f"settings: found {found}; expected FitSettings, one at least."
        raise InputError(msg)
    return seeded(listed, n_seeds)


def seeded(settings: Sequence[FitSettings], n_seeds: int) -> list[FitSettings]:
    """Return every setting with every seed, from its own on, each once."""
    if not isinstance(n_seeds, Integral) or n_seeds < 1:
        msg = f"--seeds: found {n_seeds!r}; expected a whole number of 1 or more."
        raise InputError(msg)
    if len(settings) * n_seeds > MOST_FITS:
        msg = (
            f"--seeds: found {n_seeds} for {len(settings)} settings; expected {MOST_FITS:,} fits "
            "at most. Sweep in parts."
        )
        raise InputError(msg)
    return list(
        dict.fromkeys(
            replace(_without_idle_sigma(each), seed=each.seed + number)
            for each in settings
            for number in range(n_seeds)
        )
    )


def _check_folder(folder: Path) -> None:
    """Refuse a folder of another program, and a table that lost columns or holds no numbers."""
    try:
        check_output_dir(folder)
        check_task(folder, None)
        table = read_jobs(folder) if (folder / TABLE).exists() else None
    except PermissionError:  # said where the folder is locked
        return
    if table is None:
        return
    numbers = [option.name for option in fields(FitSettings) if kind_of(option) is not str]
    needed = [option.name for option in fields(FitSettings)]
    if (table["status"] == "done").any():
        needed += ERRORS
    for column in needed:
        if column not in table:
            raise damaged(folder / TABLE, f"its column {column} is missing")
    for column in map(str, table.columns):
        if column not in (*numbers, *NUMBERS) and not column.startswith(
            tuple(f"{name}_" for name in ERRORS)
        ):
            continue
        bad = table[pd.to_numeric(table[column], errors="coerce").isna() & table[column].notna()]
        if len(bad):
            what = f"{column} of {bad['name'].iloc[0]} is {bad[column].iloc[0]!r}"
            raise damaged(folder / TABLE, what)


def _modified(folder: Path) -> float | None:
    file = folder / "sweep.tsv"
    return file.stat().st_mtime_ns if file.exists() else None


def _write(summary: SweepSummary, folder: Path, *, anew: bool) -> None:
    write_table(summary.settings, folder / SUMMARY)
    if not summary.has_curve or (not anew and (folder / FIGURE).exists()):
        return
    from neuro_pe._sweep_figure import plot_sigma_curve

    (folder / FIGURE).parent.mkdir(exist_ok=True)
    with atomic_path(folder / FIGURE) as temporary:
        plot_sigma_curve(summary).savefig(temporary, dpi=150)


def fit_job(job: Job, source: Source) -> dict[str, Any]:
    """Do one fit of a sweep and return its row of the table."""
    import warnings

    from neuro_pe.experiment import train_models

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the coordinator has said it
        cohort = source.load()
    for module in source.modules:
        importlib.import_module(module)
    [folder] = train_models(
        cohort,
        output_dir=source.output_dir,
        settings=FitSettings.from_mapping(job.arguments),
        folder_name=job.name,
        baselines_dir=Path(source.output_dir) / BASELINES,
        resume=True,
        **source.split,
    )
    return fit_results(folder.metrics)


def fit_results(metrics: pd.DataFrame) -> dict[str, Any]:
    """Return the row of a fit: its newest errors beside those of the baselines."""
    history = metrics[metrics["split"] == "train"]
    model = metrics[metrics["predictor"] == "model"]
    results: dict[str, Any] = {
        "best_epoch": None,
        "core_seconds": float(history["seconds"].max()),
        "validation_mse": None,
        "test_mse": None,
        "n_validation": None,
        "n_test": None,
    }
    validation = model[model["split"] == "validation"]
    if len(validation):
        best = validation.iloc[int(validation["mse"].argmin())]
        results |= {"best_epoch": int(best["epoch"]), "validation_mse": float(best["mse"])}
        results["n_validation"] = int(best["n"])
    for row in metrics[metrics["split"] == "test"].to_dict("records"):
        if row["predictor"] == "model":
            results |= {"best_epoch": int(row["epoch"]), "n_test": int(row["n"])}
            results["test_mse"] = float(row["mse"])
    baselines = metrics[(metrics["predictor"] != "model")]
    for row in baselines.to_dict("records"):
        results[f"{row['split']}_mse_{row['predictor']}"] = float(row["mse"])
    return results
