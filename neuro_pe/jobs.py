"""Many jobs, each done once: on the cores of this machine or on a Dask cluster, in one table.

Nothing here knows what a job is about. The table is written by the process that was called and
by no other, anew after each job, so that a kill at any moment leaves every finished row.
"""

import errno
import json
import os
import re
import shutil
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import Any

import pandas as pd

from neuro_pe._job_dask import DaskCluster, connect, run_on_dask
from neuro_pe._job_lock import LOCK, folder_lock
from neuro_pe._job_pool import n_cores, run_in_processes
from neuro_pe._job_table import MISSING, TABLE, Table
from neuro_pe._job_worker import Job, Outcome, Work
from neuro_pe.derivatives import NOT_WRITABLE, check_output_dir
from neuro_pe.errors import InputError

__all__ = [
    "DESCRIPTION",
    "TABLE",
    "DaskCluster",
    "Job",
    "JobProgress",
    "check_described",
    "check_task",
    "read_description",
    "read_jobs",
    "run_jobs",
]

DESCRIPTION = "sweep.json"
JOB_LOCKS = ".sweep_locks"


@dataclass(frozen=True, kw_only=True)
class JobProgress:
    """Where a sweep stands.

    Parameters
    ----------
    total, done, failed, running : int
        Numbers of jobs.
    newest : str or None
        Name of the job that has just ended.
    error : str
        Why it failed; empty if it is done.
    """

    total: int
    done: int
    failed: int
    running: int
    newest: str | None = None
    error: str = ""


def run_jobs(
    jobs: Sequence[Job],
    work: Work,
    *,
    output_dir: str | os.PathLike[str],
    prepare: Callable[[], Any] | None = None,
    is_there: Callable[[Job], bool] | None = None,
    n_workers: int | None = None,
    dask: DaskCluster | None = None,
    progress: Callable[[JobProgress], None] | None = None,
) -> pd.DataFrame:
    """Do the jobs that are not done yet, and keep their results in one table.

    A job that raises is recorded with its error and does not stop the others; the next call
    tries it again. A job whose process is killed is given to another, three times at most.

    Parameters
    ----------
    jobs : sequence of Job
    work : callable
        ``work(job, context)`` returns a dict of numbers and texts. A function at the top level
        of a module that can be imported. It may be called again for a job that was killed.
    output_dir : path-like
        Where the table ``sweep.tsv`` is kept.
    prepare : callable or None
        Returns the `context`, which is sent to each process once. Called only if a job is missing.
    is_there : callable or None
        Whether what a job of the table left still stands; if not, it is done again.
    n_workers : int or None
        Processes on this machine; None is one a core. Each computes with one thread.
    dask : DaskCluster or None
        Takes the place of processes on this machine.
    progress : callable or None
        Called when the first jobs have been started and when a job ends.

    Returns
    -------
    DataFrame
        ``name, status, error``, arguments and results; one row a job, in order.

    Raises
    ------
    InputError
        If another sweep is at work in the folder, or the table has other arguments for a job.
    OSError
        If the disk is full. Finished rows are intact; the same call goes on.

    Examples
    --------
    >>> from neuro_pe.jobs import Job, run_jobs
    >>> jobs = [Job(name=f"seed-{seed}", arguments={"seed": seed}) for seed in range(15)]
    >>> table = run_jobs(jobs, work, output_dir="results")  # doctest: +SKIP
    """
    _check(jobs, work, n_workers, dask)
    folder = Path(output_dir)
    with _output_folder(folder) as lock:
        table = Table.read(folder)
        table.check(jobs)
        missing = [job for job in jobs if not table.has(job) or (is_there and not is_there(job))]
        if lock is None:
            _refuse_or_warn(folder, is_mistake=bool(missing))
        elif missing:
            with _runner(missing, work, prepare, n_workers, dask, folder, lock) as runner:
                _collect(runner, table, jobs, progress)
            shutil.rmtree(folder / JOB_LOCKS, ignore_errors=True)
        return read_jobs(folder, [job.name for job in jobs])


@contextmanager
def _runner(
    jobs: Sequence[Job],
    work: Work,
    prepare: Callable[[], Any] | None,
    n_workers: int | None,
    dask: DaskCluster | None,
    folder: Path,
    lock: int,
) -> Iterator[Iterator[tuple[Outcome | None, int]]]:
    """Give an iterator over the outcomes of jobs."""
    prepare = prepare or (lambda: None)
    if dask is None:
        count = min(n_workers or n_cores(), len(jobs))
        yield run_in_processes(jobs, work, prepare(), n_workers=count, lock=lock)
        return

    with connect(dask) as client:  # before the data are read
        locks = folder / JOB_LOCKS
        yield run_on_dask(jobs, work, prepare(), client=client, cluster=dask, locks=locks)


def _collect(
    runner: Iterator[tuple[Outcome | None, int]],
    table: Table,
    jobs: Sequence[Job],
    progress: Callable[[JobProgress], None] | None,
) -> None:
    """Write each outcome into the table as it comes."""
    seen: set[str] = set()
    failed: set[str] = set()
    with closing(runner):  # type: ignore[type-var]
        for outcome, running in runner:
            if outcome is not None:
                if outcome.disk_full:
                    msg = f"{outcome.error} Make room; the same command goes on."
                    raise OSError(msg)
                table.add(outcome, jobs)
                if outcome.error:
                    failed.add(outcome.job.name)
                for text in outcome.warnings:
                    if text not in seen:
                        warnings.warn(text, stacklevel=3)
                seen.update(outcome.warnings)
            if progress is not None:
                newest = None if outcome is None else outcome.job.name
                done = sum(table.has(job) for job in jobs)
                progress(
                    JobProgress(
                        total=len(jobs),
                        done=done,
                        failed=len(failed),
                        running=running,
                        newest=newest,
                        error="" if outcome is None else outcome.error,
                    )
                )


def read_jobs(
    output_dir: str | os.PathLike[str], names: Sequence[str] | None = None
) -> pd.DataFrame:
    """Read the table of a sweep.

    Parameters
    ----------
    output_dir : path-like
    names : sequence of str or None
        Jobs wanted, in this order; None takes all rows.

    Returns
    -------
    DataFrame
        Columns that hold only numbers are numbers.

    Raises
    ------
    InputError
        If there is no table, or it is damaged.
    """
    table = Table.read(Path(output_dir), must_exist=True)
    rows = (
        table.rows
        if names is None
        else {name: table.rows[name] for name in names if name in table.rows}
    )
    frame = pd.DataFrame(list(rows.values()), columns=table.columns)
    frame = frame.where(frame != MISSING)
    for column in frame.columns:
        if column in ("name", "status", "error"):
            frame[column] = frame[column].fillna("")
            continue
        try:
            frame[column] = pd.to_numeric(frame[column])
        except (ValueError, TypeError):
            continue
    return frame


def check_task(output_dir: str | os.PathLike[str], task: str | None) -> None:
    """Refuse a folder whose table holds jobs of another task; see :func:`check_described`."""
    check_described(output_dir, task)
    for row in Table.read(Path(output_dir)).rows.values():
        _compare_task(output_dir, row.get("task"), task)


def check_described(output_dir: str | os.PathLike[str], task: str | None = None) -> None:
    """Refuse a folder that is no place for fits of a task.

    Parameters
    ----------
    output_dir : path-like
    task : str or None
        The argument ``task`` of the jobs; None for jobs without one.

    Raises
    ------
    InputError
        If it is a file, someone else's data set, a model folder, or describes another task.
    """
    folder = Path(output_dir)
    check_output_dir(folder)
    if (folder / "settings.json").is_file():
        msg = f"--output-dir {folder}: it is a model folder; expected a folder to hold several."
        raise InputError(msg)
    if (description := read_description(folder)) is not None:
        _compare_task(output_dir, description.get("task"), task)


def _compare_task(output_dir: str | os.PathLike[str], found: Any, task: str | None) -> None:
    found = None if found == MISSING else found
    if found != task:
        what = "brain data" if found is None else f"the task {found}"
        msg = f"--output-dir {output_dir}: it holds a sweep of {what}; choose another folder."
        raise InputError(msg)


def read_description(folder: Path) -> dict[str, Any] | None:
    """Read ``sweep.json``, which says what the jobs of a folder are about; None if there is none.

    Raises
    ------
    InputError
        If it is damaged.
    """
    file = folder / DESCRIPTION
    try:
        content = dict(json.loads(file.read_text(encoding="utf-8")))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, TypeError):
        content = {}
    if not {"asked", "task"} & set(content):
        msg = (
            f"{file}: damaged; expected what `neuro-pe` wrote. Delete it; the same command writes "
            "it again."
        )
        raise InputError(msg)
    return content


def _check(jobs: Sequence[Job], work: Work, n_workers: Any, dask: Any) -> None:
    if n_workers is not None and (not isinstance(n_workers, Integral) or n_workers < 1):
        msg = f"--workers: found {n_workers}; expected a whole number of 1 or more."
        raise InputError(msg)
    if dask is not None and not isinstance(dask, DaskCluster):
        msg = f"dask: found {dask!r}; expected DaskCluster(address=...) or (scheduler_file=...)."
        raise InputError(msg)
    if work.__module__ == "__main__":
        msg = (
            f"work: {work.__name__} stands in a script; put it into a module that can be imported."
        )
        raise ValueError(msg)
    names: set[str] = set()
    for job in jobs:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,200}", job.name):
            msg = f"job name {job.name!r}: expected letters, digits and any of . _ + -"
            raise ValueError(msg)
        if job.name in names:
            msg = f"job name {job.name!r}: found twice; expected every job to have its own."
            raise ValueError(msg)
        names.add(job.name)


@contextmanager
def _output_folder(folder: Path) -> Iterator[int | None]:
    """Make and lock the folder, and leave no trace if nothing came of it.

    The lock is None for a table in a folder that cannot be written.
    """
    made: list[Path] = []
    before: set[str] | None = None
    try:
        with ExitStack() as stack:
            try:
                check_output_dir(folder)
                made = [place for place in (folder, *folder.parents) if not place.exists()]
                folder.mkdir(parents=True, exist_ok=True)
                before = set(os.listdir(folder))
                if not os.access(folder, os.W_OK):
                    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))
                lock = stack.enter_context(folder_lock(folder))
                # Of a write that was killed (`atomic_path`).
                for leftover in folder.glob(f".{TABLE}.????????.tsv"):
                    leftover.unlink()
            except OSError as error:
                if error.errno not in NOT_WRITABLE:
                    raise
                if not os.path.exists(folder / TABLE):
                    raise _not_writable(folder, f" ({error.strerror})") from None
                lock = None
            yield lock
    finally:
        if before is not None and LOCK not in before and {*os.listdir(folder)} == {*before, LOCK}:
            (folder / LOCK).unlink()
        for place in made:
            if not place.is_dir() or os.listdir(place):
                break
            place.rmdir()


def _not_writable(folder: Path, why: str) -> InputError:
    return InputError(f"--output-dir {folder}: cannot be written{why}; choose another folder.")


def _refuse_or_warn(folder: Path, *, is_mistake: bool) -> None:
    """Say that a folder cannot be written: a mistake only if there is something to do."""
    if is_mistake:
        raise _not_writable(folder, ", but fits are missing")
    msg = f"--output-dir {folder}: cannot be written; the table that stands there is shown."
    warnings.warn(msg, stacklevel=3)
