"""What sweeps of all synthetic tasks share: doing the jobs, and the spread over seeds."""

import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from neuro_pe._job_table import DONE, MISSING, Table, damaged
from neuro_pe.derivatives import read_table, write_json
from neuro_pe.encodings import registered_modules
from neuro_pe.errors import InputError
from neuro_pe.jobs import DESCRIPTION, TABLE, Job, check_task, run_jobs
from neuro_pe.model_folder import SETTINGS, check_files, read_settings
from neuro_pe.settings import FitSettings
from neuro_pe.synthetic.page import FIGURES, PAGE

__all__ = ["as_asked", "check_done", "job_settings", "mean_interval", "output_folder", "run_fits"]


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
    for path in (path_of(job, folder) for job in jobs):
        if path.exists() and not (path / SETTINGS).is_file():
            msg = f"{path}: no model folder, but its name is that of a fit; move it or delete it."
            raise InputError(msg)

    def prepare() -> dict[str, Any]:
        write_json({"format_version": 1, "task": task}, folder / DESCRIPTION)
        return {"output_dir": os.fspath(folder), "modules": registered_modules()}

    return run_jobs(
        jobs,
        work,
        output_dir=output_dir,
        prepare=prepare,
        is_there=lambda job: path_of(job, folder).is_dir(),
        **how,
    )


def check_done(
    folder: Path,
    *,
    job_of: Callable[[FitSettings, Mapping[str, str], Mapping[str, Any]], Job],
    path_of: Callable[[Job, Path], Path],
    results_of: Callable[[pd.DataFrame], dict[str, float]],
    fault: Callable[[Mapping[str, str]], str | None] = lambda row: None,
) -> list[tuple[Job, Path]]:
    """Refuse rows of ``sweep.tsv`` that are not what the model folders of their names say.

    Parameters
    ----------
    folder : Path
    job_of : callable
        Settings as asked, row, and data of ``settings.json`` to the job.
    path_of : callable
        Job and folder to its model folder.
    results_of : callable
        ``metrics.tsv`` to the results that it holds.
    fault : callable
        Row to the name of the first cell that holds no result, or None.

    Returns
    -------
    list of Job and Path
        Of each finished fit.
    """
    table = Table.read(folder)
    done = []
    for row in (row for row in table.rows.values() if row["status"] == DONE):
        name = row["name"]
        places = {folder / name, *folder.glob(f"*/{name}")}
        found = [place for place in places if (place / SETTINGS).is_file()]
        if len(found) != 1:
            raise damaged(table.file, f"{name} has no model folder")
        path = found[0]
        settings, data = read_settings(path)
        check_files(path)
        try:
            job = job_of(as_asked(settings, row), row, data)
        except (KeyError, ValueError):
            raise damaged(table.file, f"options of {name} cannot be read") from None
        if job.name != name or path != path_of(job, folder):
            raise damaged(table.file, f"{name} is not named by its options")
        results = results_of(read_table(path / "metrics.tsv"))
        whole = replace(job, arguments={**job.arguments, **results})
        if (differs := table.difference(whole)) is not None:
            raise damaged(table.file, f"{differs[0]} of {name} is {differs[1]!r}")
        if (cell := fault(row)) is not None:
            raise damaged(table.file, f"{cell} of {name} is {row.get(cell, '')!r}")
        done.append((job, path))
    return done


def as_asked(settings: FitSettings, row: Mapping[str, Any]) -> FitSettings:
    """Return the settings of a finished fit, with what it had to resolve as the row has it."""
    resolved = {name: row[name] for name in ("device", "precision")}
    for name in ("epochs", "stride"):
        resolved[name] = None if row[name] in (None, MISSING) else int(float(row[name]))
    return replace(settings, **resolved)


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
