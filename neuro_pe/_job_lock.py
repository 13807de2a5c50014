"""Locks that end with their process, so that a kill leaves none behind."""

import errno
import os
import socket
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from neuro_pe.errors import InputError

__all__ = ["folder_lock", "job_lock"]

LOCK = ".sweep.lock"
# A killed coordinator's workers need a moment to end.
PATIENCE = 5.0
# File systems without locks (some network and cloud mounts) say one of these.
NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)


def _try_lock(handle: int, *, wait: bool) -> bool | None:
    """Lock an open file; False if another process has it, None where there are no locks."""
    try:
        import fcntl
    except ImportError:  # Windows
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno in NO_LOCKS:
            return None
        raise
    return True


@contextmanager
def folder_lock(folder: Path) -> Iterator[int]:
    """Keep a second sweep out of an output folder.

    The lock is the kernel's, on an open file: it ends when the last process that has the file
    open ends, however that came about. The file itself stays and means nothing.

    Parameters
    ----------
    folder : Path

    Yields
    ------
    int
        The file descriptor, for processes that are to hold the lock too.

    Raises
    ------
    InputError
        If another process holds it; the line says which.
    """
    handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        until = time.monotonic() + PATIENCE
        while (held := _try_lock(handle, wait=False)) is False:
            if time.monotonic() > until:
                holder = os.pread(handle, 200, 0).decode(errors="replace").strip()
                msg = (
                    f"--output-dir {folder}: another sweep is writing there "
                    f"({holder or 'no word of which'}); wait for it, or stop it."
                )
                raise InputError(msg)
            time.sleep(0.1)
        if held is None:
            msg = f"{folder}: no file locks here; start only one sweep at a time in this folder."
            warnings.warn(msg, stacklevel=3)
        words = f"process {os.getpid()} on {socket.gethostname()}, since {datetime.now():%F %T}\n"
        try:
            os.ftruncate(handle, 0)
            os.pwrite(handle, words.encode(), 0)
        except OSError as error:  # a full disk: the lock holds all the same
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
        yield handle
    finally:
        os.close(handle)


@contextmanager
def job_lock(folder: Path, name: str) -> Iterator[None]:
    """Wait until no other process does the same job.

    Only a cluster needs this: a task that a killed coordinator left runs on to its end.

    Parameters
    ----------
    folder : Path
    name : str
    """
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder / name, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        _try_lock(handle, wait=True)
        yield
    finally:
        os.close(handle)
