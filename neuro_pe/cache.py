"""A cohort as one memory-mapped file: read once, shared by processes, larger than memory."""

import json
import tempfile
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pandas as pd

from neuro_pe import __version__
from neuro_pe.derivatives import NOT_WRITABLE, write_json
from neuro_pe.errors import InputError
from neuro_pe.timeseries import Cohort, RegionTimeSeries

__all__ = ["Keep", "cached_cohort"]

FORMAT_VERSION = 1
LABELS = ("subject", "session", "task", "run", "tr", "source")

Keep = Callable[[RegionTimeSeries], RegionTimeSeries]


def cached_cohort(
    folder: Path,
    *,
    asked: Mapping[str, Any],
    source: Mapping[str, Any],
    build: Callable[[Keep, Keep], Cohort],
) -> Cohort:
    """Return a cohort whose values are mapped from a file in a folder, made if need be.

    The file is checked against the checksum of its values and labels each time. One that is
    damaged, or whose source has changed, is made anew, with a warning.

    Parameters
    ----------
    folder : Path
        Where caches are kept; made if missing. Several processes may use it at once.
    asked : mapping
        What was asked for: names the cache.
    source : mapping
        State of the source files: a cache of another state is stale.
    build : callable
        Makes the cohort. It is given two callables that put the values of a run into a file, one
        for runs as they are read and one for the runs of the result.

    Returns
    -------
    Cohort
        With read-only values.

    Raises
    ------
    InputError
        If the folder is none, or cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        if error.errno not in NOT_WRITABLE:
            raise
        msg = f"--cache-dir {folder}: {error.strerror}; expected a folder that can be written."
        raise InputError(msg) from None
    source = {"neuro_pe": __version__, "format": FORMAT_VERSION, **source}
    source = json.loads(json.dumps(source))  # as it reads from the index
    index_file = folder / f"cohort-{_checksum(asked)}.json"
    if index_file.exists():
        try:
            index = json.loads(index_file.read_text(encoding="utf-8"))
            stale = index["source"] != source
            cohort = None if stale else _from_index(index, folder)
        except (OSError, ValueError, KeyError, TypeError):
            stale, cohort = False, None
        if cohort is not None:
            for message in index["warnings"]:
                warnings.warn(message, stacklevel=3)
            return cohort
        what = "its source has changed" if stale else "it is damaged"
        warnings.warn(f"{index_file}: {what}; the cache is made anew.", stacklevel=3)
    return _make(folder, index_file, source, build)


def _make(
    folder: Path,
    index_file: Path,
    source: Mapping[str, Any],
    build: Callable[[Keep, Keep], Cohort],
) -> Cohort:
    values_file = folder / f"{index_file.stem}.float32"
    with (
        tempfile.TemporaryDirectory(dir=folder, prefix=".making-") as scratch,
        _RunFile(Path(scratch) / "read") as as_read,
        _RunFile(Path(scratch) / "result") as result,
        warnings.catch_warnings(record=True) as caught,
    ):
        warnings.simplefilter("always")
        cohort = build(as_read.append, result.append)
        result.path.replace(values_file)  # what is mapped from it stays mapped
    messages = list(dict.fromkeys(str(warning.message) for warning in caught))
    participants = cohort.participants
    index = {
        "source": source,
        "warnings": messages,
        "values": values_file.name,
        "fingerprint": cohort.fingerprint(),
        "atlas": cohort.atlas,
        "runs": [
            {"n_times": run.n_times, **{name: getattr(run, name) for name in LABELS}}
            for run in cohort
        ],
        "regions": _to_json(cohort.regions),
        "dropped": _to_json(cohort.dropped),
        "participants": None if participants is None else _to_json(participants.reset_index()),
    }
    write_json(index, index_file)
    for message in messages:
        warnings.warn(message, stacklevel=4)
    return cohort


def _from_index(index: Mapping[str, Any], folder: Path) -> Cohort | None:
    """Map the cohort; None when its values are not those that the index was written for."""
    regions = _from_json(index["regions"])
    names = tuple(regions["name"])
    path = folder / index["values"]
    runs, offset = [], 0
    for entry in index["runs"]:
        labels = {name: entry[name] for name in LABELS}
        values = _map(path, offset, (entry["n_times"], len(names)))
        runs.append(RegionTimeSeries(values=values, regions=names, **labels))
        offset += values.nbytes
    participants = index["participants"]
    cohort = Cohort(
        runs=tuple(runs),
        regions=regions,
        dropped=_from_json(index["dropped"]).astype(str),
        atlas=index["atlas"],
        participants=None
        if participants is None
        else _from_json(participants).set_index("subject"),
    )
    return cohort if cohort.fingerprint() == index["fingerprint"] else None


class _RunFile:
    """A file of float32 values that runs are appended to and mapped from."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("wb")

    def __enter__(self) -> "_RunFile":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._file.close()

    def append(self, run: RegionTimeSeries) -> RegionTimeSeries:
        values = np.ascontiguousarray(run.values, dtype=np.float32)
        offset = self._file.tell()
        try:
            self._file.write(values.data)
            self._file.flush()
        except OSError as error:
            error.filename = str(self.path.parent.parent)  # the cache folder, not a scratch file
            raise
        run.release()
        return replace(run, values=_map(self.path, offset, values.shape))


def _map(path: Path, offset: int, shape: tuple[int, ...]) -> np.ndarray:
    return np.memmap(path, dtype=np.float32, mode="r", offset=offset, shape=shape)


def _checksum(content: Mapping[str, Any]) -> str:
    return sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def _to_json(table: pd.DataFrame) -> dict[str, Any]:
    # Missing values of any kind are null.
    return {
        str(name): [
            None if missing else value
            for value, missing in zip(table[name].tolist(), table[name].isna(), strict=True)
        ]
        for name in table.columns
    }


def _from_json(columns: Mapping[str, Any]) -> pd.DataFrame:
    return pd.DataFrame(dict(columns))
