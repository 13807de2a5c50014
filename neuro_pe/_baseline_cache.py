"""Errors of baselines on disk, so that the many fits of one split compute them once."""

import os
from collections.abc import Callable
from pathlib import Path
from zipfile import BadZipFile
from zlib import error as ZlibError

import numpy as np

from neuro_pe._job_lock import job_lock
from neuro_pe.derivatives import atomic_path

__all__ = ["cached_errors"]

Errors = dict[tuple[str, str], tuple[np.ndarray, float]]


def cached_errors(
    folder: str | os.PathLike[str], key: str, compute: Callable[[], Errors]
) -> Errors:
    """Return errors by split and predictor from a file, or compute and write them.

    Parameters
    ----------
    folder : path-like
    key : str
        Changes with all that the errors depend on.
    compute : callable
        Returns errors, shape (3, subject, region), and core-seconds by split and predictor.
        Called by one process at a time; the others wait for its file.
    """
    folder = Path(folder)
    file = folder / f"{key}.npz"
    if (found := _read(file, key)) is not None:
        return found
    folder.mkdir(parents=True, exist_ok=True)
    with job_lock(folder, f".{key}.lock"):
        if (found := _read(file, key)) is not None:
            return found
        errors = compute()
        arrays = {"/".join(name): total for name, (total, _) in errors.items()}
        seconds = np.array([each for _, each in errors.values()])
        with atomic_path(file) as temporary:
            np.savez_compressed(temporary, key=key, seconds=seconds, **arrays)  # type: ignore[arg-type]
    return errors


def _read(file: Path, key: str) -> Errors | None:
    """Read the errors; None if there are none, or they are damaged or of another key."""
    try:
        with np.load(file) as content:
            if str(content["key"]) != key:
                return None
            seconds = content["seconds"].tolist()
            names = [name for name in content.files if name not in ("key", "seconds")]
            return {
                (name.split("/")[0], name.split("/")[1]): (content[name], each)
                for name, each in zip(names, seconds, strict=True)
            }
    except (FileNotFoundError, BadZipFile, ZlibError, ValueError, KeyError, IndexError, EOFError):
        return None
