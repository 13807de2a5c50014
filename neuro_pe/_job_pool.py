"""Worker processes on this machine: one thread each, replaced when they are killed."""

import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from neuro_pe._job_worker import Job, Outcome, Work

__all__ = ["MAX_ATTEMPTS", "n_cores", "run_in_processes"]

MAX_ATTEMPTS = 3
# Not `python -m`, which would put the working folder before all installed packages.
START = (
    "import pickle, sys; sys.path[:] = pickle.load(sys.stdin.buffer); "
    "from neuro_pe._job_worker import main; main()"
)
# Read when the numeric libraries are loaded, so they have to stand in the environment before.
ONE_THREAD = dict.fromkeys(
    [
        "OMP_NUM_THREADS",
        "MKL_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "VECLIB_MAXIMUM_THREADS",
        "NUMEXPR_NUM_THREADS",
    ],
    "1",
)


def n_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def run_in_processes(
    jobs: Sequence[Job],
    work: Work,
    context: Any,
    *,
    n_workers: int,
    lock: int | None = None,
) -> Iterator[tuple[Outcome | None, int]]:
    """Run jobs in processes of their own.

    A job whose process dies goes to a new one, three times at most. Closing the iterator, or an
    interrupt, ends all processes.

    Parameters
    ----------
    jobs : sequence of Job
    work : callable
        A function at the top level of an importable module.
    context : Any
        Sent once to each process.
    n_workers : int
    lock : int or None
        File descriptor that the processes keep open too, so that a lock on it lasts until the
        last of them has ended.

    Yields
    ------
    tuple of (Outcome or None, int)
        The outcome of a job (None when jobs have only been started), and how many are running.
    """
    start = pickle.dumps(pickle.dumps((work, context)))
    waiting, attempts = deque(jobs), Counter[str]()
    events: queue.SimpleQueue[tuple[_Worker, Outcome | None]] = queue.SimpleQueue()
    workers: set[_Worker] = set()

    def new_worker() -> None:
        worker = _Worker(events, start, lock)
        workers.add(worker)
        worker.give(waiting.popleft())

    try:
        while waiting and len(workers) < n_workers:
            new_worker()
        yield None, len(workers)
        while workers:
            worker, outcome = events.get()
            job = worker.job
            if outcome is None:  # the process is gone
                workers.discard(worker)
                reason = worker.reason()
                worker.end()
                if job is not None:
                    attempts[job.name] += 1
                    if attempts[job.name] < MAX_ATTEMPTS:
                        waiting.appendleft(job)
                    else:
                        error = f"its process died {MAX_ATTEMPTS} times, at last {reason}."
                        outcome = Outcome(job=job, error=error)
                if waiting:
                    new_worker()
            elif waiting:
                worker.give(waiting.popleft())
            else:
                workers.discard(worker)
                worker.end()
            yield outcome, len(workers)
    finally:
        for worker in workers:
            worker.end()


class _Worker:
    """A process, the job it has, and a thread that waits for its outcomes."""

    def __init__(
        self,
        events: "queue.SimpleQueue[tuple[_Worker, Outcome | None]]",
        start: bytes,
        lock: int | None,
    ) -> None:
        self.job: Job | None = None
        self.ended = False
        self.process = subprocess.Popen(
            [sys.executable, "-c", START],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **ONE_THREAD},
            pass_fds=() if lock is None else (lock,),
        )
        self._write(pickle.dumps(sys.path))
        self._write(start)
        threading.Thread(target=self._listen, args=(events,), daemon=True).start()

    def give(self, job: Job) -> None:
        """Hand over a job."""
        self.job = job
        self._write(pickle.dumps(pickle.dumps(job)))

    def end(self) -> None:
        """End the process, whatever it is doing."""
        self.ended = True
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            with suppress(OSError):
                if stream is not None:
                    stream.close()

    def reason(self) -> str:
        """Say how the process died."""
        try:
            # Its output closes a moment before it can be waited for.
            code = self.process.wait(10)
        except subprocess.TimeoutExpired:
            return "by closing its output"
        if code >= 0:
            return f"with exit code {code}"
        memory = " (out of memory?)" if code == -signal.SIGKILL else ""
        return f"by {signal.Signals(-code).name}{memory}"

    def _write(self, content: bytes) -> None:
        assert self.process.stdin is not None
        with suppress(OSError):  # if it has died, the end of its output tells
            self.process.stdin.write(content)
            self.process.stdin.flush()

    def _listen(self, events: "queue.SimpleQueue[tuple[_Worker, Outcome | None]]") -> None:
        while True:
            try:
                outcome = pickle.load(self.process.stdout)  # type: ignore[arg-type]
            except (EOFError, OSError, ValueError, pickle.UnpicklingError):
                if not self.ended:
                    events.put((self, None))
                return
            events.put((self, outcome))
