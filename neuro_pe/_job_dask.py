"""Jobs on a Dask cluster that is running; the caller alone writes."""

from __future__ import annotations

import logging
import os
import pickle
import re
import uuid
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from neuro_pe._job_lock import job_lock
from neuro_pe._job_worker import Job, Outcome, Work, run_job
from neuro_pe.errors import InputError

__all__ = ["DaskCluster", "connect", "run_on_dask"]

# Seconds until a scheduler that does not answer is given up.
PATIENCE = 10
# Above this size (bytes) the context goes to each worker once, not with each job.
LARGE = 100_000
# Host and port; a cluster in this process has neither.
ADDRESS = r"((tcp|tls|ucx|ws|wss)://)?[^/\s]+:\d+/?|inproc://\S+"


@dataclass(frozen=True, kw_only=True)
class DaskCluster:
    """A Dask cluster that is running.

    Parameters
    ----------
    address : str or None
        Of its scheduler, such as ``tcp://10.0.0.1:8786``.
    scheduler_file : path-like or None
        That ``dask scheduler --scheduler-file`` wrote.
    """

    address: str | None = None
    scheduler_file: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        if (self.address is None) == (self.scheduler_file is None):
            msg = "--dask: give either --dask ADDRESS or --dask-scheduler-file FILE."
            raise InputError(msg)
        if self.address is not None and not re.fullmatch(ADDRESS, self.address):
            msg = (
                f"--dask {self.address}: no address of a scheduler; expected a host and a port, "
                "such as tcp://10.0.0.1:8786."
            )
            raise InputError(msg)


@contextmanager
def connect(cluster: DaskCluster) -> Iterator[Any]:
    """Give a client of the cluster.

    Parameters
    ----------
    cluster : DaskCluster

    Raises
    ------
    InputError
        If Dask is not installed or no scheduler answers.
    """
    try:
        import dask
        from distributed import Client
    except ImportError:
        msg = '--dask: the package distributed is missing; pip install "neuro_pe[dask]".'
        raise InputError(msg) from None
    if cluster.scheduler_file is not None and not Path(cluster.scheduler_file).is_file():
        msg = (
            f"--dask-scheduler-file {cluster.scheduler_file}: no such file; `dask scheduler` "
            "writes it."
        )
        raise InputError(msg)
    with dask.config.set({"distributed.comm.timeouts.connect": f"{PATIENCE}s"}):
        # What it logs is told in one line.
        logging.getLogger("distributed").setLevel(logging.CRITICAL)
        try:
            client = Client(
                address=cluster.address,
                scheduler_file=cluster.scheduler_file,
                timeout=PATIENCE,
                set_as_default=False,
            )
        except (OSError, ValueError):
            msg = f"--dask {_place(cluster)}: no scheduler answers there; start `dask scheduler`."
            raise InputError(msg) from None
        try:
            yield client
        finally:
            client.close(timeout=2)


def run_on_dask(
    jobs: Sequence[Job],
    work: Work,
    context: Any,
    *,
    client: Any,
    cluster: DaskCluster,
    locks: Path,
) -> Iterator[tuple[Outcome | None, int]]:
    """Run jobs on a cluster; as :func:`neuro_pe._job_pool.run_in_processes`.

    Parameters
    ----------
    jobs, work, context
        Workers must be able to import the module of `work`.
    client : distributed.Client
    cluster : DaskCluster
    locks : Path
        Folder that all workers see: a job that an earlier caller left running there is waited for.

    Raises
    ------
    OSError
        If the scheduler is lost.
    """
    from distributed import as_completed

    left = len(jobs)
    lost = (
        f"--dask {_place(cluster)}: the scheduler was lost with {{}} jobs to go; start it and its "
        "workers, and the same command goes on."
    )
    try:
        futures = _submit(jobs, work, context, client=client, cluster=cluster, locks=locks)
    except (OSError, RuntimeError, TimeoutError):  # whatever was being said when it fell silent
        raise OSError(lost.format(left)) from None
    yield None, _running(client, left)
    for future in as_completed(futures, loop=client.loop):
        if future.status == "finished":
            outcome = future.result()
        elif future.status == "error":
            outcome = Outcome(job=futures[future], error=_why(future.exception()))
        else:  # cancelled, as all are when the connection is lost
            raise OSError(lost.format(left))
        left -= 1
        yield outcome, _running(client, left)


def _submit(
    jobs: Sequence[Job],
    work: Work,
    context: Any,
    *,
    client: Any,
    cluster: DaskCluster,
    locks: Path,
) -> dict[Any, Job]:
    """Send the context and the jobs; return the job of each future."""
    if not _running(client, len(jobs)):
        msg = f"--dask {_place(cluster)}: the cluster has no workers yet; waiting for them."
        warnings.warn(msg, stacklevel=4)
        client.wait_for_workers(1)
    payload: Any = pickle.dumps((work, context))
    if len(payload) > LARGE:
        [payload] = client.scatter([payload], broadcast=True)
    # Keys of this call alone: an earlier one's tasks may still be known to workers.
    call = uuid.uuid4().hex[:8]
    place = os.fspath(locks)
    return {
        client.submit(_run, payload, job, place, key=f"{job.name}-{call}", pure=False): job
        for job in jobs
    }


def _place(cluster: DaskCluster) -> str:
    return cluster.address or os.fspath(cluster.scheduler_file or "")


def _run(payload: bytes, job: Job, locks: str) -> Outcome:
    with job_lock(Path(locks), job.name):
        work, context = _unpack(payload)
        return run_job(work, job, context)


@lru_cache(maxsize=1)
def _unpack(payload: bytes) -> tuple[Work, Any]:
    """Read the context once a process."""
    content: tuple[Work, Any] = pickle.loads(payload)
    return content


def _running(client: Any, left: int) -> int:
    """How many jobs run, if every thread of the cluster has one."""
    try:
        return min(left, sum(client.nthreads().values()))
    except (TimeoutError, OSError, RuntimeError):
        return 0


def _why(error: BaseException | None) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())
