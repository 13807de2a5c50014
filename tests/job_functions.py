"""Jobs of the tests of sweeps: light to import, since every process of a sweep does."""

import os
import signal
import time
import warnings
from pathlib import Path

from neuro_pe.jobs import Job


def numbers(count, **more):
    return [Job(name=f"x-{x}", arguments={"x": x, **more}) for x in range(count)]


def work(job, context):
    """Square a number; leave a trace of each call, and do what the arguments ask for."""
    x = job.arguments["x"]
    if context is not None:
        with open(Path(context) / f"{job.name}.calls", "a") as file:
            file.write(f"{os.getpid()} {os.environ['OMP_NUM_THREADS']}\n")
    time.sleep(job.arguments.get("seconds", 0))
    fault = job.arguments.get("fault") if x == 2 else None
    if fault == "raise":
        raise ValueError("two\nis bad")
    if fault == "disk":
        raise OSError(28, "No space left on device", "/full/file")
    if fault == "kill" or (fault == "kill once" and len(calls(context, job)) == 1):
        os.kill(os.getpid(), signal.SIGKILL)
    return {"square": x * x, "third": x / 3}


def calls(folder, job):
    return (Path(folder) / f"{job.name}.calls").read_text().splitlines()


def warn(job, context):
    warnings.warn("odd data", stacklevel=1)
    return {}


def add_up(job, context):
    return {"sum": int(context.sum())}
