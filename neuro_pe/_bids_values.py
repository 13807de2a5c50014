"""Reading one file: a table or CIFTI-2 parcel series of regions, region names, participants."""

import io
import re
import warnings
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from neuro_pe._bids_files import as_seconds
from neuro_pe.errors import InputError

__all__ = [
    "SeriesTable",
    "participants_folders",
    "read_names",
    "read_participants",
    "read_series",
]

MISSING = ("n/a", "N/A", "NA", "NaN", "nan", "")


@dataclass(frozen=True, kw_only=True, eq=False)
class SeriesTable:
    """The content of a file of region time series.

    Parameters
    ----------
    values : ndarray of float32, shape (time, column)
    names : list of str or None
        Column names as in the file; None when the file has none, or only numbers.
    tr : float or None
        Repetition time in seconds that the file itself gives.
    """

    values: np.ndarray
    names: list[str] | None
    tr: float | None = None

    @property
    def n_columns(self) -> int:
        """Number of columns."""
        return self.values.shape[1]


def read_series(path: Path) -> SeriesTable:
    """Read a ``.ptseries.nii`` or ``.tsv`` file.

    Raises
    ------
    InputError
        If the file is damaged or holds something else; the line says what and where.
    """
    table = _read_cifti(path) if path.name.endswith(".ptseries.nii") else _read_tsv(path)
    if table.names is None:
        return table
    for number, name in enumerate(table.names, start=1):
        if not name:
            msg = f"{path}: column {number} has no name; expected a region name."
            raise InputError(msg)
    name, count = Counter(table.names).most_common(1)[0]
    if count > 1:
        msg = f"{path}: {count} columns are named {name!r}; every region needs a name of its own."
        raise InputError(msg)
    numbers = sum(map(_is_number, table.names))
    if 2 * numbers > len(table.names):
        return SeriesTable(values=table.values, names=None, tr=table.tr)
    return table


def read_names(path: Path) -> list[str]:
    """Read region names in column order: one a line, or the column ``name`` of a TSV.

    Raises
    ------
    InputError
        If there is no such file, or a table without the column.
    """
    rows = [line.split("\t") for line in _read_text(path).split("\n") if line.strip()]
    header = [cell.strip() for cell in rows[0]]
    if "name" in header:
        column = header.index("name")
        rows = rows[1:]
    elif len(header) == 1:
        column = 0
    else:
        msg = (
            f"{path}: {len(header)} columns ({', '.join(header[:3])}, ...) but none called name; "
            "expected one region name a line, or a table with a column name."
        )
        raise InputError(msg)
    return [row[column].strip().strip('"') if len(row) > column else "" for row in rows]


def _read_text(path: Path) -> str:
    _require_content(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        msg = f"{path}: this is no text file in UTF-8; expected a tab-separated table."
        raise InputError(msg) from error
    if not text.strip():
        msg = f"{path}: the file is empty; make it again."
        raise InputError(msg)
    return text.rstrip("\n")


def _require_content(path: Path) -> None:
    try:
        with path.open("rb") as file:
            start = file.read(20)
    except OSError as error:
        msg = f"{path}: cannot be read ({error.strerror})."
        raise InputError(msg) from error
    if not start:
        msg = f"{path}: the file is empty; make it again."
        raise InputError(msg)
    # What git-annex leaves in the place of a file, where there are no links.
    if start.startswith(b"/annex/objects/"):
        msg = f"{path}: not downloaded; fetch it, e.g. with `datalad get {path}`."
        raise InputError(msg)


def _read_tsv(path: Path) -> SeriesTable:
    lines = _read_text(path).split("\n")
    first = [cell.strip().strip('"') for cell in lines[0].split("\t")]
    if len(first) == 1 and re.search(r"[,; ]", first[0]):
        msg = f"{path}: line 1 has no tab ({first[0][:40]!r}); expected a tab-separated table."
        raise InputError(msg)
    for number, line in enumerate(lines, start=1):
        cells = line.count("\t") + 1
        if cells != len(first):
            msg = (
                f"{path}: line {number} has {cells} cells where line 1 has {len(first)}; "
                "expected one value a region in every line."
            )
            raise InputError(msg)
    has_header = not all(_is_number(cell) or cell in MISSING for cell in first) or _counts(first)
    rows = lines[has_header:]
    if not rows:
        msg = f"{path}: column names but no values; expected one line a volume."
        raise InputError(msg)
    values = _parse(rows, first if has_header else None, path)
    if has_header and not first[0] and np.array_equal(values[:, 0], np.arange(len(values))):
        # The row index that pandas writes unless told not to.
        values, first = values[:, 1:], first[1:]
    return SeriesTable(values=values, names=first if has_header else None)


def _parse(rows: list[str], names: list[str] | None, path: Path) -> np.ndarray:
    try:
        table = pd.read_csv(
            io.StringIO("\n".join(rows)),
            sep="\t",
            header=None,
            dtype=np.float64,
            na_values=list(MISSING),
            keep_default_na=False,
            quoting=3,
            skip_blank_lines=False,
        )
    except (ValueError, pd.errors.ParserError) as error:
        msg = f"{path}: {_first_text(rows, names) or error}; expected a number or n/a."
        raise InputError(msg) from error
    return table.to_numpy(dtype=np.float32)


def _first_text(rows: list[str], names: list[str] | None) -> str | None:
    """Say where the first cell stands that is no number."""
    for line, row in enumerate(rows, start=1 if names is None else 2):
        for column, cell in enumerate(row.split("\t")):
            if cell.strip() not in MISSING and not _is_number(cell):
                name = repr(names[column]) if names else column + 1
                return f"line {line}, column {name}: found {cell.strip()!r}"
    return None


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    # Python reads 1_000, tables do not.
    return "_" not in cell


def _counts(cells: list[str]) -> bool:
    """Tell whether a line of numbers counts its columns, so is a header."""
    if not all(cell.isdigit() for cell in cells):
        return False
    numbers = [int(cell) for cell in cells]
    return numbers == sorted(set(numbers))


def _read_cifti(path: Path) -> SeriesTable:
    import nibabel as nib

    _require_content(path)
    try:
        image: Any = nib.load(path)
        is_cifti = isinstance(image, nib.Cifti2Image)
        axes = [image.header.get_axis(n) for n in range(image.ndim)] if is_cifti else []
        values = image.get_fdata(dtype=np.float32, caching="unchanged")
    except Exception as error:
        # A damaged file ends in whatever its bytes happen to ask for: beside nibabel's own errors
        # were seen ExpatError, OSError, KeyError, IndexError, OverflowError, MemoryError.
        text = str(error).replace(str(path), "the file")
        reason = " ".join(f"{type(error).__name__}: {text}".split())[:120]
        msg = f"{path}: damaged or incomplete, not readable as CIFTI-2 ({reason}); make it again."
        raise InputError(msg) from error
    kinds = [type(axis).__name__.removesuffix("Axis") for axis in axes]
    if kinds != ["Series", "Parcels"]:
        found = " x ".join(kinds) if is_cifti else "no CIFTI-2"
        hint = "; parcellate it first" if "BrainModel" in kinds else ""
        msg = f"{path}: found {found}; expected a CIFTI-2 parcel series (Series x Parcels){hint}."
        raise InputError(msg)
    series, parcels = axes
    tr = as_seconds(float(series.step), str(path)) if series.unit == "SECOND" else None
    names = [str(name).strip() for name in parcels.name]
    # A copy in memory: nibabel may hand out a view of the file.
    return SeriesTable(values=np.array(values), names=names, tr=tr)


def participants_folders(folder: Path, root: Path) -> list[Path]:
    """Where ``participants.tsv`` may stand, the closest first."""
    folders = [root, folder]
    if root.resolve().parent.name == "derivatives":
        folders.append(root.resolve().parent.parent)
    return folders


def read_participants(folder: Path, root: Path) -> pd.DataFrame | None:
    """Read ``participants.tsv`` of the derivative, else of the data set around it."""
    paths = [place / "participants.tsv" for place in participants_folders(folder, root)]
    path = next((path for path in paths if path.exists()), None)
    if path is None:
        return None
    try:
        table = pd.read_csv(
            path, sep="\t", dtype={"participant_id": str}, na_values=["n/a"], keep_default_na=False
        )
    except (OSError, ValueError) as error:
        msg = f"{path}: cannot be read as a tab-separated table ({' '.join(str(error).split())})."
        raise InputError(msg) from error
    if "participant_id" not in table:
        msg = f"{path}: no column participant_id; the file is not used."
        warnings.warn(msg, stacklevel=3)
        return None
    table.index = pd.Index(table.pop("participant_id").str.removeprefix("sub-"), name="subject")
    if repeated := table.index[table.index.duplicated()].tolist():
        msg = f"{path}: subject {repeated[0]} has several rows; the first one is used."
        warnings.warn(msg, stacklevel=3)
        table = table[~table.index.duplicated()]
    return table
