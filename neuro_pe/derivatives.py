"""Writing a BIDS derivative: tables, JSON and the dataset description, never half-written."""

import errno
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from neuro_pe import __version__
from neuro_pe.errors import InputError

__all__ = [
    "NOT_WRITABLE",
    "atomic_path",
    "check_output_dir",
    "read_table",
    "write_arrays",
    "write_dataset_description",
    "write_json",
    "write_table",
]

BIDS_VERSION = "1.10.0"
# What a system says of a place that is not the user's to write, or no folder.
NOT_WRITABLE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EEXIST, errno.ENOTDIR)


@contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a temporary path beside `path`; rename it to `path` if the block succeeds.

    Parameters
    ----------
    path : path-like
        The file to write. Its folder must exist.

    Yields
    ------
    Path
        Where to write. If the block raises, this file is removed and `path` stays as it was.
    """
    path = Path(path)
    try:
        handle, name = tempfile.mkstemp(
            dir=path.parent, prefix=f".{path.name}.", suffix=path.suffix
        )
    except OSError as error:
        error.filename = str(path)
        raise
    os.close(handle)
    temporary = Path(name)
    try:
        # mkstemp makes files private; a shared results folder wants the usual permissions.
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None:
            error.filename = str(path)  # a failed write (full disk) does not know its file
        raise


def write_table(table: pd.DataFrame, path: str | os.PathLike[str], *, index: bool = False) -> None:
    """Write a tab-separated table, ``n/a`` for missing values.

    Parameters
    ----------
    table : DataFrame
    path : path-like
    index : bool
        Write the index as the first column (its name is the column's header).
    """
    with atomic_path(path) as temporary:
        table.to_csv(temporary, sep="\t", index=index, na_rep="n/a", float_format="%.7g")


def read_table(path: str | os.PathLike[str], *, index: str | None = None) -> pd.DataFrame:
    """Read a table that :func:`write_table` wrote.

    Parameters
    ----------
    path : path-like
    index : str or None
        Column that becomes the index.
    """
    # Labels such as "01", "None" or "NA" are text; only "n/a" is missing.
    text = {"name": str, "subject": str, "region": str, "source": str}
    table = pd.read_csv(path, sep="\t", na_values=["n/a"], keep_default_na=False, dtype=text)
    # A label is never missing, even one that is spelled so.
    labels = [column for column in text if column in table.columns]
    table[labels] = table[labels].fillna("n/a")
    return table if index is None else table.set_index(index)


def write_arrays(path: str | os.PathLike[str], **arrays: Any) -> None:
    """Write arrays by name, compressed (``numpy.load`` reads them)."""
    with atomic_path(path) as temporary:
        np.savez_compressed(temporary, **arrays)


def write_json(content: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    """Write a JSON object, two blanks an indent."""
    with atomic_path(path) as temporary:
        temporary.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def write_dataset_description(
    folder: str | os.PathLike[str], *, name: str, sources: list[str]
) -> None:
    """Write ``dataset_description.json`` of a BIDS derivative.

    Parameters
    ----------
    folder : path-like
        Root of the derivative.
    name : str
        Name of the data set.
    sources : list of str
        Where the data came from (``SourceDatasets``). Those that the file names already stay.
    """
    path = Path(folder) / "dataset_description.json"
    if path.exists():
        earlier = json.loads(path.read_text(encoding="utf-8")).get("SourceDatasets", [])
        sources = list(dict.fromkeys([*(source["URL"] for source in earlier), *sources]))
    description = {
        "Name": name,
        "BIDSVersion": BIDS_VERSION,
        "DatasetType": "derivative",
        "GeneratedBy": [{"Name": "neuro_pe", "Version": __version__}],
        "SourceDatasets": [{"URL": source} for source in sources],
    }
    write_json(description, path)


def check_output_dir(output_dir: Path) -> None:
    """Refuse a folder that is the data set of another program or person.

    Raises
    ------
    InputError
        If it is one, or is a file.
    """
    if output_dir.exists() and not output_dir.is_dir():
        msg = f"--output-dir {output_dir}: found a file; expected a folder."
        raise InputError(msg)
    description = output_dir / "dataset_description.json"
    if not description.exists():
        return
    try:
        makers = [maker["Name"] for maker in json.loads(description.read_text())["GeneratedBy"]]
    except (ValueError, KeyError, TypeError):
        makers = []
    if "neuro_pe" not in makers:
        msg = (
            f"--output-dir {output_dir}: it is the data set of "
            f"{', '.join(makers) or 'someone else'}; choose a folder of its own."
        )
        raise InputError(msg)
