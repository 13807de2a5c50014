"""What sweeps of all synthetic tasks share: doing the jobs, and the spread over seeds."""

import importlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from neuro_pe._job_table import Table, damaged
from neuro_pe.derivatives import write_json
from neuro_pe.encodings import registered_modules
from neuro_pe.errors import InputError
from neuro_pe.jobs import DESCRIPTION, TABLE, Job, check_task, run_jobs
from neuro_pe.model_folder import SETTINGS, check_files, partial_path, read_settings
from neuro_pe.settings import FitSettings
from neuro_pe.synthetic.page import FIGURES, PAGE

__all__ = [
    "FinishedFit",
    "finished_fits",
    "job_data",
    "job_settings",
    "mean_interval",
    "output_folder",
    "run_fits",
    "without_sigma",
]


def run_fits(
    jobs: Sequence[Job],
    work: Callable[[Job, Any], dict[str, Any]],
    *,
    output_dir: str | os.PathLike[str],
    path_of: Callable[[Job, Path], Path],
    leaves: Sequence[str],
    **how: Any,
) -> pd.DataFrame:
    """Do the jobs whose model folder is missing; return the table of all.

    ``sweep.json`` says which task the folder is of.

    Parameters
    ----------
    jobs : sequence of Job
    work : callable
        Its context is ``{"output_dir": ..., "modules": ...}`` (see :func:`job_settings`).
    output_dir : path-like
    path_of : callable
        Job and folder to its model folder.
    leaves : sequence of str
        Names of the tables that come of the fits.
    **how
        ``n_workers``, ``dask`` and ``progress`` of :func:`neuro_pe.jobs.run_jobs`.
    """
    folder = Path(output_dir).resolve()
    task = jobs[0].arguments["task"]
    check_task(output_dir, task)
    if (folder / "dataset_description.json").exists():
        msg = f"--output-dir {output_dir}: it holds fits of brain data; choose another folder."
        raise InputError(msg)
    is_known = (folder / DESCRIPTION).exists() or (folder / TABLE).exists()
    for place in (folder / name for name in (*leaves, *PAGE)):
        is_right_kind = place.is_dir() == (place.name == FIGURES)
        if place.exists() and not (is_known and is_right_kind):
            msg = (
                f"{place}: found a {'folder' if place.is_dir() else 'file'} that is not of this "
                "command, which would replace it; move it, or choose another --output-dir."
            )
            raise InputError(msg)
    for job in jobs:
        path = path_of(job, folder)
        partial = partial_path(path)
        if partial.exists() and not partial.is_dir():
            msg = f"{partial}: found a file; expected a folder. Move it or delete it."
            raise InputError(msg)
        if path.exists() and _name_of(path) not in (None, job.name):
            msg = f"{path}: not the fit of that name; move it, and the same command fits it."
            raise InputError(msg)

    def describe() -> None:
        if not (folder / DESCRIPTION).exists():
            write_json({"format_version": 1, "task": task}, folder / DESCRIPTION)

    def prepare() -> dict[str, Any]:
        describe()
        return {"output_dir": os.fspath(folder), "modules": registered_modules()}

    table = run_jobs(
        jobs,
        work,
        output_dir=output_dir,
        prepare=prepare,
        is_there=lambda job: path_of(job, folder).is_dir() and bool(_name_of(path_of(job, folder))),
        **how,
    )
    if os.access(folder, os.W_OK):
        describe()
    return table


def _name_of(path: Path) -> str | None:
    """Return the name of the finished fit in a folder; None for one whose results are missing."""
    if not (path / SETTINGS).is_file():
        return ""
    return dict(read_settings(path)[1].get("job", {})).get("name")


@dataclass(frozen=True, kw_only=True)
class FinishedFit:
    """A fit of a synthetic task as it stands on disk.

    Parameters
    ----------
    job : Job
        Its name, and what was asked.
    path : Path
        Its model folder.
    results : dict
        As in ``sweep.tsv``, by column.
    """

    job: Job
    path: Path
    results: dict[str, float]


def finished_fits(
    folder: Path,
    *,
    path_of: Callable[[Job, Path], Path],
    results_of: Callable[[Path], dict[str, float]],
) -> list[FinishedFit]:
    """Read all finished fits of a folder, those asked for earlier too.

    Parameters
    ----------
    folder : Path
    path_of : callable
        Job and folder to its model folder.
    results_of : callable
        Model folder to its results.

    Returns
    -------
    list of FinishedFit
        In the order of ``sweep.tsv``, then by name.

    Raises
    ------
    InputError
        If a fit is damaged, or its row in ``sweep.tsv`` says something else.
    """
    table = Table.read(folder)
    found: dict[str, FinishedFit] = {}
    for file in sorted((*folder.glob(f"*/{SETTINGS}"), *folder.glob(f"*/*/{SETTINGS}"))):
        path = file.parent
        if not path.name.startswith("encoding-") or path.suffix == ".partial":
            continue
        data = read_settings(path)[1]
        if "job" not in data:  # stopped before its results were added
            continue
        job = Job(**data["job"])
        if path != path_of(job, folder):  # a copy
            continue
        check_files(path)
        fit = FinishedFit(job=job, path=path, results=results_of(path))
        said = replace(job, arguments={**job.arguments, **fit.results})
        if table.has(job) and (differs := table.difference(said)) is not None:
            raise damaged(table.file, f"{differs[0]} of {job.name} is {differs[1]!r}")
        found[job.name] = fit
    order = [name for name in table.rows if name in found]
    return [found[name] for name in dict.fromkeys([*order, *sorted(found)])]


def job_data(job: Job) -> dict[str, Any]:
    """Return what ``settings.json`` says of the job that a fit is of."""
    return {"job": {"name": job.name, "arguments": job.arguments}}


def without_sigma(fit: str) -> str:
    """Return what a setting's name says beside its encoding and sigma.

    Examples
    --------
    >>> from neuro_pe.synthetic._fits import without_sigma
    >>> without_sigma("encoding-learn_sigma-0.2_heads-1_size-4")
    'heads-1, size-4'
    """
    return ", ".join(part for part in fit.split("_")[1:] if not part.startswith("sigma-"))


def output_folder(output_dir: str | os.PathLike[str]) -> Path:
    """Return the folder of a sweep; refuse an empty name, which would be the current one."""
    if not os.fspath(output_dir).strip():
        msg = "output_dir: found an empty name; expected a folder, such as '.' for this one."
        raise InputError(msg)
    return Path(output_dir).expanduser()


def job_settings(job: Job, context: dict[str, Any]) -> FitSettings:
    """Return the settings of a job, once the modules of a user's own encodings are imported."""
    for module in context["modules"]:
        importlib.import_module(module)
    names = [option.name for option in fields(FitSettings)]
    return FitSettings.from_mapping({name: job.arguments[name] for name in names})


def mean_interval(
    values: np.ndarray | pd.Series, *, limits: tuple[float, float] = (-np.inf, np.inf)
) -> tuple[float, float, float]:
    """Return the mean and its 95 % interval (t distribution); NaN for that of a single value.

    Parameters
    ----------
    values : ndarray or Series
    limits : tuple of float
        Beyond which the interval cannot go.

    Examples
    --------
    >>> import numpy as np
    >>> from neuro_pe.synthetic._fits import mean_interval
    >>> [round(number, 3) for number in mean_interval(np.array([0.9, 1.0, 1.1]))]
    [1.0, 0.752, 1.248]
    """
    values = np.asarray(values, dtype=float)
    mean, half = float(values.mean()) if len(values) else np.nan, np.nan
    if len(values) > 1:
        half = float(stats.t.ppf(0.975, len(values) - 1) * stats.sem(values))
    low, high = np.clip([mean - half, mean + half], *limits).tolist()
    return mean, low, high
