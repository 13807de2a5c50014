"""Latin Square Task puzzles in the CSV form of Hearne et al., and their puzzles."""

import csv
import importlib.resources
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from neuro_pe.derivatives import atomic_path
from neuro_pe.errors import InputError
from neuro_pe.synthetic.puzzles import CONDITIONS, SIZES, Puzzles, classify, first_fault, solve

__all__ = ["load_puzzles", "read_puzzles", "write_puzzles"]

COLUMNS = ("ID", "LST_num", "condition", "puzzles", "solutions")
BUNDLED = {
    "human": ("puzzle_data_original.csv",),
    "training": (
        "generated_puzzle_data_binary_dist80.csv",
        "generated_puzzle_data_ternary_dist80.csv",
        "generated_puzzle_data_quaternary_dist80.csv",
    ),
}


def read_puzzles(file: str | os.PathLike[str]) -> Puzzles:
    """Read puzzles, and check their solutions and conditions.

    Parameters
    ----------
    file : path-like
        A CSV file with the columns `ID`, `LST_num`, `condition`, `puzzles` and `solutions`. A
        puzzle is a string of digits, row by row: 0 for a blank, n + 1 for the target. `ID` counts
        the rows and is not looked at. Where condition or solution are empty, they are deduced.

    Returns
    -------
    Puzzles

    Raises
    ------
    InputError
        With file and line, if a puzzle is none, has no unique symbol at the target, or another
        solution or condition than the file says.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from neuro_pe.synthetic import generate_puzzles, read_puzzles, write_puzzles
    >>> file = Path(tempfile.mkdtemp()) / "puzzles.csv"
    >>> write_puzzles(generate_puzzles(5, complexity=3, size=5), file)
    >>> read_puzzles(file).complexity
    array([3, 3, 3, 3, 3], dtype=int8)
    """
    rows = list(_rows(Path(file)))
    if not rows:
        msg = f"{file}: no puzzles; expected one a line below the header"
        raise InputError(msg)
    return _checked(rows)


def _checked(rows: list["_Row"]) -> Puzzles:
    """Deduce the labels of all rows, and refuse a row that says another."""
    size = rows[0].size
    for row in rows:
        if row.size != size:
            msg = f"{row.place}: a puzzle of size {row.size} among those of size {size}; split them"
            raise InputError(msg)
    cells = np.array([[int(digit) for digit in row.puzzle] for row in rows], dtype=np.int8)
    cells = cells.reshape(-1, size, size)
    fault = first_fault(cells)
    if fault:
        msg = f"{rows[fault[0]].place}: puzzle {rows[fault[0]].puzzle}: {fault[1]}"
        raise InputError(msg)
    solutions, complexity = solve(cells), classify(cells)
    for row, symbol, vectors in zip(rows, solutions, complexity, strict=True):
        row.compare(int(symbol), int(vectors))
    return Puzzles(
        cells=cells,
        solutions=solutions,
        complexity=complexity,
        items=np.array([row.item for row in rows], dtype=np.int16),
    )


def write_puzzles(puzzles: Puzzles, file: str | os.PathLike[str]) -> None:
    """Write puzzles, in the form that :func:`read_puzzles` reads.

    Parameters
    ----------
    puzzles : Puzzles
    file : path-like
        Its folder must exist. An existing file is replaced.

    Raises
    ------
    InputError
        If a puzzle is none, or a solution or complexity is not what the puzzle says; an existing
        file is left as it is.
    """
    lines = list(_lines(puzzles))
    if lines:
        found = _checked([_row(f"puzzle {line['ID']}", line) for line in lines]).complexity
        if len(wrong := np.flatnonzero(found != puzzles.complexity)):  # 0: written as none
            msg = f"puzzle {wrong[0]}: complexity 0, but it has {found[wrong[0]]}"
            raise InputError(msg)
    with atomic_path(file) as temporary, temporary.open("w", encoding="utf-8", newline="") as text:
        writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)


def _lines(puzzles: Puzzles) -> Iterator[dict[str, str | None]]:
    """Give what is written of each puzzle."""
    labels = (puzzles.items, puzzles.complexity, puzzles.solutions)
    if any(len(label) != len(puzzles.cells) for label in labels):
        msg = f"puzzles: {len(puzzles.cells)}; expected as many items, complexities and solutions."
        raise InputError(msg)
    for index, (cells, item, vectors, symbol) in enumerate(
        zip(puzzles.cells, *labels, strict=True)
    ):
        if vectors not in range(len(CONDITIONS) + 1):
            msg = f"puzzle {index}: complexity {vectors}; expected 0 to {len(CONDITIONS)}."
            raise InputError(msg)
        yield {
            "ID": str(index),
            "LST_num": str(item) if item else "",
            "condition": CONDITIONS[vectors - 1] if vectors else "",
            "puzzles": "".join(map(str, cells.ravel())),
            "solutions": str(symbol),
        }


def load_puzzles(name: str) -> Puzzles:
    """Load the puzzles of Hearne et al.

    Parameters
    ----------
    name : str
        `"human"`: the 108 that people solved in a scanner, 36 items in three versions each.
        `"training"`: 9,000 generated ones, 3,000 a complexity, each at least 0.8125 from every
        one of the 108 (:func:`~neuro_pe.synthetic.jaccard_dissimilarity`).

    Returns
    -------
    Puzzles

    Raises
    ------
    InputError
        If the name is another.

    Source
    ------
    https://github.com/ljhearne/LSTNN_public (MIT licence, which stands beside the files).

    Examples
    --------
    >>> import numpy as np
    >>> from neuro_pe.synthetic import load_puzzles
    >>> np.bincount(load_puzzles("training").complexity)
    array([   0, 3000, 3000, 3000])
    """
    if name not in BUNDLED:
        msg = f"puzzles are called {' or '.join(BUNDLED)}; found {name}"
        raise InputError(msg)
    folder = Path(str(importlib.resources.files("neuro_pe.synthetic"))) / "data"
    parts = [read_puzzles(folder / file) for file in BUNDLED[name]]
    return Puzzles(
        cells=np.concatenate([part.cells for part in parts]),
        solutions=np.concatenate([part.solutions for part in parts]),
        complexity=np.concatenate([part.complexity for part in parts]),
        items=np.concatenate([part.items for part in parts]),
    )


@dataclass(frozen=True, kw_only=True)
class _Row:
    """One line of a file, its numbers checked one by one."""

    place: str
    puzzle: str
    size: int
    item: int
    condition: str
    solution: str

    def compare(self, symbol: int, vectors: int) -> None:
        """Refuse a label that is not what the puzzle says."""
        if symbol == 0:
            msg = (
                f"{self.place}: puzzle {self.puzzle} leaves several symbols at the target, or none"
            )
            raise InputError(msg)
        if self.solution not in ("", str(symbol)):
            msg = f"{self.place}: solution {self.solution}, but puzzle {self.puzzle} has {symbol}"
            raise InputError(msg)
        condition = CONDITIONS[vectors - 1] if vectors else "none: it takes several steps"
        if self.condition not in ("", condition):
            msg = (
                f"{self.place}: condition {self.condition}, but that of puzzle {self.puzzle} is "
                f"{condition}; leave it empty to have it found"
            )
            raise InputError(msg)


def _rows(file: Path) -> Iterator[_Row]:
    """Read the lines of a file."""
    try:
        # Spreadsheets put a mark at the beginning (utf-8-sig).
        with file.open(encoding="utf-8-sig", newline="") as text:
            reader = csv.DictReader(text)
            header = reader.fieldnames or ()
            missing = [name for name in COLUMNS[1:] if name not in header]
            twice = [name for name in COLUMNS if list(header).count(name) > 1]
            if twice:
                msg = f"{file}: two columns {twice[0]}; expected one"
                raise InputError(msg)
            if missing:
                msg = (
                    f"{file}: no column {', '.join(missing)}; expected the columns "
                    f"{', '.join(COLUMNS)}, separated by commas"
                )
                raise InputError(msg)
            for line in reader:
                place = f"{file}, line {reader.line_num}"
                if None in line:  # what stands beyond the last column
                    msg = f"{place}: more cells than the header has columns ({len(header)})"
                    raise InputError(msg)
                yield _row(place, line)
    except OSError as error:
        msg = f"{file}: {error.strerror}; expected a CSV file of puzzles"
        raise InputError(msg) from error
    except (UnicodeDecodeError, csv.Error) as error:
        msg = f"{file}: not a CSV file of text ({error})"
        raise InputError(msg) from error


def _row(place: str, line: dict[str, str | None]) -> _Row:
    """Check what stands in one line."""
    item, condition, puzzle, solution = ((line[name] or "").strip() for name in COLUMNS[1:])
    size = round(len(puzzle) ** 0.5)
    if not (puzzle.isascii() and puzzle.isdigit()) or size**2 != len(puzzle) or size not in SIZES:
        msg = (
            f"{place}: puzzle {puzzle or '(empty)'} has {len(puzzle)} characters; expected n x n "
            f"digits with n from {SIZES[0]} to {SIZES[-1]} (a spreadsheet drops leading zeros)"
        )
        raise InputError(msg)
    number = item.removesuffix(".0")  # as a table with gaps has it
    if number and not (number.isascii() and number.isdigit() and int(number) <= 32767):
        msg = f"{place}: LST_num {item}; expected a whole number up to 32767 or nothing"
        raise InputError(msg)
    return _Row(
        place=place,
        puzzle=puzzle,
        size=size,
        item=int(number or 0),
        condition=condition,
        solution=solution.removesuffix(".0"),
    )
