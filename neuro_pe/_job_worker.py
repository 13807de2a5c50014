"""The worker's side of a sweep: one job at a time, in a process that ends with its coordinator."""

import ctypes
import errno
import os
import pickle
import queue
import signal
import sys
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from neuro_pe.errors import InputError

__all__ = ["Job", "Outcome", "Work", "main", "run_job"]

# Nothing can be written any more: every other job would fail for the same reason.
NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, kw_only=True)
class Job:
    """One job of a sweep.

    Parameters
    ----------
    name : str
        Unique, and fit to be the name of a folder.
    arguments : dict
        What JSON can hold; each becomes a column of the table.
    """

    name: str
    arguments: dict[str, Any]


Work = Callable[[Job, Any], dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a job ended.

    Parameters
    ----------
    job : Job
    results : dict or None
        What the work returned; None if it failed.
    error : str
        One line; empty if the job is done.
    disk_full : bool
        Whether it failed because nothing can be written.
    warnings : tuple of str
    """

    job: Job
    results: dict[str, Any] | None = None
    error: str = ""
    disk_full: bool = False
    warnings: tuple[str, ...] = ()


def run_job(work: Work, job: Job, context: Any) -> Outcome:
    """Do one job; what it raises becomes its outcome.

    Parameters
    ----------
    work : callable
    job : Job
    context : Any
        Handed to `work` beside the job.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        results, error, disk_full = None, "", False
        try:
            results = dict(work(job, context))
        except Exception as problem:
            error = _one_line(problem)
            disk_full = isinstance(problem, OSError) and problem.errno in NO_SPACE
    # Only what is said to users: libraries warn of their own future.
    texts = tuple(str(each.message) for each in caught if each.category is UserWarning)
    return Outcome(job=job, results=results, error=error, disk_full=disk_full, warnings=texts)


def _one_line(problem: Exception) -> str:
    if isinstance(problem, OSError) and problem.strerror:
        place = f"{problem.filename}: " if problem.filename else ""
        return f"{place}{problem.strerror}."
    text = " ".join(str(problem).split())
    return text if isinstance(problem, InputError) else f"{type(problem).__name__}: {text}"


def main() -> None:
    """Read jobs from standard input, write outcomes to standard output, until the input ends."""
    _end_with_parent()
    # Ctrl-C reaches every process of the terminal; the coordinator decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print must not run into the replies
    requests: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(requests,), daemon=True).start()
    work, context = pickle.loads(requests.get())
    while True:
        outcome = run_job(work, pickle.loads(requests.get()), context)
        pickle.dump(outcome, replies)
        replies.flush()


def _listen(requests: "queue.SimpleQueue[bytes]") -> None:
    """Pass requests on; the end of the input is the end of the coordinator, and of this process."""
    while True:
        try:
            requests.put(pickle.load(sys.stdin.buffer))
        except (EOFError, OSError, pickle.UnpicklingError):
            os._exit(1)


def _end_with_parent() -> None:
    """Ask Linux for the end of this process when its parent ends, even in a long computation."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
