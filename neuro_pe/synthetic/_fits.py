"""What sweeps of all synthetic tasks share: doing the jobs, and the spread over seeds."""

import importlib
import os
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from neuro_pe.encodings import registered_modules
from neuro_pe.errors import InputError
from neuro_pe.jobs import Job, check_task, run_jobs
from neuro_pe.settings import FitSettings

__all__ = ["job_settings", "mean_interval", "run_fits"]


def run_fits(
    jobs: Sequence[Job],
    work: Callable[[Job, Any], dict[str, Any]],
    *,
    output_dir: str | os.PathLike[str],
    path_of: Callable[[Job, Path], Path],
    **how: Any,
) -> pd.DataFrame:
    """Do the jobs whose model folder is missing; return the table of all.

    Parameters
    ----------
    jobs : sequence of Job
    work : callable
        Its context is ``{"output_dir": ..., "modules": ...}`` (see :func:`job_settings`).
    output_dir : path-like
    path_of : callable
        Job and folder to its model folder.
    **how
        ``n_workers``, ``dask`` and ``progress`` of :func:`neuro_pe.jobs.run_jobs`.
    """
    folder = Path(output_dir).resolve()
    check_task(folder, jobs[0].arguments["task"])
    if (folder / "dataset_description.json").exists():
        msg = f"--output-dir {output_dir}: it holds fits of brain data; choose another folder."
        raise InputError(msg)
    context = {"output_dir": os.fspath(folder), "modules": registered_modules()}
    return run_jobs(
        jobs,
        work,
        output_dir=output_dir,
        prepare=lambda: context,
        is_there=lambda job: path_of(job, folder).is_dir(),
        **how,
    )


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
