"""Latin Square Task puzzles: what they are, their solutions, complexity and likeness.

A puzzle is an n x n Latin square (each of n symbols once in every row and column) with blanks,
one of which is the target: which symbol belongs there? People and networks solve it; how many
rows and columns have to be combined says how hard it is.

Puzzles are arrays of int8, shape (puzzle, row, column): 0 is a blank, 1 to n are symbols, n + 1
marks the target. n is 4 to 7.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from neuro_pe.errors import InputError

__all__ = [
    "CONDITIONS",
    "SIZES",
    "Puzzles",
    "classify",
    "first_fault",
    "jaccard_dissimilarity",
    "solve",
    "sound",
]

SIZES = (4, 5, 6, 7)
# A relation of v rows and columns with the target has v + 1 terms; files of the field say it so.
CONDITIONS = ("Binary", "Ternary", "Quaternary", "Quinary", "Senary", "Septenary")
# Pairs of puzzles whose features are held at once.
_CHUNK = 1024


@dataclass(frozen=True, kw_only=True, eq=False)
class Puzzles:
    """Puzzles of one size with their labels.

    Attributes
    ----------
    cells : ndarray of int8, shape (puzzle, row, column)
        0 for a blank, 1 to n for a symbol, n + 1 for the target.
    solutions : ndarray of int8, shape (puzzle,)
        The symbol that belongs at the target, 1 to n.
    complexity : ndarray of int8, shape (puzzle,)
        How many rows and columns are combined, as :func:`classify` has it; 0 if one step of
        deduction is not enough.
    items : ndarray of int16, shape (puzzle,)
        Puzzles with the same number are one item of a test in several versions (rotated, symbols
        exchanged), so their answers are not independent; 0 if there is no such number.

    Examples
    --------
    >>> from neuro_pe.synthetic import load_puzzles
    >>> puzzles = load_puzzles("human")
    >>> len(puzzles), puzzles.size
    (108, 4)
    >>> puzzles.cells[0]
    array([[0, 0, 4, 0],
           [4, 0, 5, 2],
           [1, 0, 2, 0],
           [0, 0, 3, 0]], dtype=int8)
    >>> puzzles.solutions[0], puzzles.complexity[0], puzzles.items[0]
    (np.int8(1), np.int8(1), np.int16(1))
    """

    cells: np.ndarray
    solutions: np.ndarray
    complexity: np.ndarray
    items: np.ndarray

    def __len__(self) -> int:
        return len(self.cells)

    @property
    def size(self) -> int:
        """The number of rows, columns and symbols."""
        return self.cells.shape[1]

    def select(self, which: np.ndarray | Sequence[int] | slice) -> "Puzzles":
        """Return some of the puzzles, by index, mask or slice."""
        return Puzzles(
            cells=self.cells[which],
            solutions=self.solutions[which],
            complexity=self.complexity[which],
            items=self.items[which],
        )


def first_fault(cells: np.ndarray) -> tuple[int, str] | None:
    """Return which puzzle is none and why, or nothing if all are sound.

    Parameters
    ----------
    cells : ndarray of integers, shape (puzzle, row, column)

    Returns
    -------
    tuple of int and str, or None
        The index of the first faulty puzzle, and what is wrong with it.

    Raises
    ------
    InputError
        If the array has not the shape of puzzles.
    """
    if cells.ndim != 3 or cells.shape[1] != cells.shape[2] or cells.shape[1] not in SIZES:
        msg = f"puzzles have shape (puzzle, n, n) with n from 4 to 7; found {cells.shape}"
        raise InputError(msg)
    n = cells.shape[1]
    given = _given(cells)
    faults = {
        f"cells are 0 (blank), 1 to {n} or {n + 1} (target); found another value": (
            (cells < 0) | (cells > n + 1)
        ).any(axis=(1, 2)),
        f"exactly one cell has to be {n + 1}, the target": ((cells == n + 1).sum(axis=(1, 2)) != 1),
        "a symbol stands twice in a row": (given.sum(axis=2) > 1).any(axis=(1, 2)),
        "a symbol stands twice in a column": (given.sum(axis=1) > 1).any(axis=(1, 2)),
    }
    found = [(int(bad.argmax()), text) for text, bad in faults.items() if bad.any()]
    return min(found, key=lambda fault: fault[0]) if found else None


def classify(cells: np.ndarray) -> np.ndarray:
    """Return how many rows and columns have to be combined to deduce the target, in one step.

    1 (Binary)
        The target's row, or its column, has all other symbols.
    2 (Ternary)
        Its row and column together have all other symbols.
    3 (Quaternary) and more
        Exclusion: a symbol has to stand somewhere in the target's row, and at each of the row's
        other blanks, of which there are at least two, a column forbids it. The number is that of
        these columns, plus one for the row if it has symbols. The same with row and column
        exchanged.

    The least of these counts. With one other blank, that one is filled first (from its row and
    column), then the target: two steps of lower complexity, which count as no exclusion.

    Parameters
    ----------
    cells : ndarray of integers, shape (puzzle, row, column)

    Returns
    -------
    ndarray of int8, shape (puzzle,)
        1 to n - 1, or 0 where no single step gives the target.

    Raises
    ------
    InputError
        If one of them is no puzzle.

    Source
    ------
    Birney, Halford & Andrews (2006), Educational and Psychological Measurement 66: 146-171, for
    the task. For n = 4 the steps are those by which Hearne et al. labelled their puzzles
    (https://github.com/ljhearne/LSTNN_public); all 9,108 labels agree.

    Examples
    --------
    >>> import numpy as np
    >>> from neuro_pe.synthetic import classify, solve
    >>> puzzle = np.array([[5, 0, 0, 2], [0, 1, 0, 0], [0, 0, 0, 0], [0, 0, 1, 0]])
    >>> classify(puzzle[None]), solve(puzzle[None])
    (array([3], dtype=int8), array([1], dtype=int8))
    """
    cells = sound(cells)
    n = cells.shape[1]
    every = np.arange(len(cells))
    row, column = _targets(cells)
    given = _given(cells)
    in_row = given[every, row].any(axis=1)  # (puzzle, symbol)
    in_column = given[every, :, column].any(axis=1)
    counts = [
        np.where(taken.sum(axis=1) == n - 1, vectors, n)
        for vectors, taken in ((1, in_row), (1, in_column), (2, in_row | in_column))
    ]
    for blank, taken, crossing in (
        (cells[every, row] == 0, in_row, given.any(axis=1)),
        (cells[every, :, column] == 0, in_column, given.any(axis=2)),
    ):
        n_blank = blank.sum(axis=1)
        only_here = (~taken & (crossing | ~blank[:, :, None]).all(axis=1)).any(axis=1)
        counts.append(np.where(only_here & (n_blank >= 2), n_blank + (n_blank < n - 1), n))
    least = np.min(counts, axis=0)
    return np.where(least < n, least, 0).astype(np.int8)


def solve(cells: np.ndarray) -> np.ndarray:
    """Return the symbol at the target, by as many steps of deduction as it takes.

    Parameters
    ----------
    cells : ndarray of integers, shape (puzzle, row, column)

    Returns
    -------
    ndarray of int8, shape (puzzle,)
        The symbol that every completion of the square has at the target; 0 where they differ, or
        where the givens are seen to contradict each other.

    Raises
    ------
    InputError
        If one of them is no puzzle.

    Examples
    --------
    >>> import numpy as np
    >>> from neuro_pe.synthetic import solve
    >>> puzzles = np.zeros((2, 4, 4), dtype=np.int8)
    >>> puzzles[0, 0], puzzles[1, 0] = [1, 2, 3, 5], [1, 2, 0, 5]
    >>> solve(puzzles)
    array([4, 0], dtype=int8)
    """
    cells = sound(cells)
    possible = _narrowed(_possible(cells))
    every = np.arange(len(cells))
    row, column = _targets(cells)
    options = possible[every, row, column]
    settled = (options.sum(axis=1) == 1) & ~_impossible(possible)
    symbols = np.where(settled, options.argmax(axis=1) + 1, 0).astype(np.int8)
    for index in np.flatnonzero(~settled & ~_impossible(possible)):
        cell = int(row[index]), int(column[index])
        fitting = 0
        for symbol in np.flatnonzero(options[index]):
            if _completable(_with(possible[index], cell, int(symbol))):
                # A second symbol that fits settles it: none is forced.
                symbols[index] = 0 if fitting else symbol + 1
                fitting += 1
            if fitting == 2:
                break
    return symbols


def jaccard_dissimilarity(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return how unlike each puzzle of one set is to each of another.

    A puzzle is taken as the set of its (cell, symbol) pairs, the target being a symbol of its own
    and blanks none; the dissimilarity is the share of the pairs of both that only one has.

    Parameters
    ----------
    first, second : ndarray of integers, shape (puzzle, row, column)
        Puzzles of the same size.

    Returns
    -------
    ndarray of float64, shape (puzzle of the first, puzzle of the second)
        0 (the same puzzle) to 1 (nothing in common).

    Raises
    ------
    InputError
        If one of them is no puzzle, or the sizes differ.

    Examples
    --------
    >>> from neuro_pe.synthetic import jaccard_dissimilarity, load_puzzles
    >>> training, human = load_puzzles("training"), load_puzzles("human")
    >>> jaccard_dissimilarity(training.cells, human.cells).min()
    np.float64(0.8125)
    """
    first, second = sound(first), sound(second)
    if first.shape[1] != second.shape[1]:
        msg = f"puzzles of {first.shape[1]} and of {second.shape[1]} rows cannot be compared"
        raise InputError(msg)
    result = np.empty((len(first), len(second)))
    features = _pairs(second)
    n_second = features.sum(axis=1)
    for start in range(0, len(first), _CHUNK):
        chunk = _pairs(first[start : start + _CHUNK])
        shared = chunk @ features.T  # small integers: exact
        union = (chunk.sum(axis=1)[:, None] + n_second - shared).astype(np.float64)
        # One division of integers: the double that is nearest to the true share.
        result[start : start + _CHUNK] = (union - shared) / union
    return result


def sound(cells: np.ndarray) -> np.ndarray:
    """Return puzzles as int8, or say what is wrong."""
    cells = np.asarray(cells)
    if cells.dtype.kind not in "iub":
        msg = f"puzzles: found {cells.dtype} in place of an array of integers (`Puzzles.cells`)"
        raise InputError(msg)
    fault = first_fault(cells)
    if fault:
        msg = f"puzzle {fault[0]}: {fault[1]}"
        raise InputError(msg)
    return cells.astype(np.int8)


def _given(cells: np.ndarray) -> np.ndarray:
    """Which symbols stand where: bool, (puzzle, row, column, symbol)."""
    return cells[..., None] == np.arange(1, cells.shape[1] + 1)


def _pairs(cells: np.ndarray) -> np.ndarray:
    """Mark the (cell, symbol) pairs, the target a symbol: float32, (puzzle, pair)."""
    n = cells.shape[1]
    marks = cells.reshape(len(cells), n * n, 1) == np.arange(1, n + 2)
    return marks.reshape(len(cells), n * n * (n + 1)).astype(np.float32)


def _targets(cells: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Row and column of each target."""
    n = cells.shape[1]
    return np.divmod((cells == n + 1).reshape(len(cells), n * n).argmax(axis=1), n)


def _possible(cells: np.ndarray) -> np.ndarray:
    """Which symbols may stand where: bool, (puzzle, row, column, symbol)."""
    open_cells = (cells == 0) | (cells == cells.shape[1] + 1)
    return _given(cells) | open_cells[..., None]


def _narrowed(possible: np.ndarray) -> np.ndarray:
    """Deduce until nothing changes: a symbol once in a row and column, somewhere in each."""
    while True:
        settled = possible & (possible.sum(axis=-1, keepdims=True) == 1)
        in_row = settled.sum(axis=2, keepdims=True) - settled
        in_column = settled.sum(axis=1, keepdims=True) - settled
        after = possible & (in_row == 0) & (in_column == 0)
        only = after & (
            (after.sum(axis=2, keepdims=True) == 1) | (after.sum(axis=1, keepdims=True) == 1)
        )
        after = np.where(only.any(axis=-1, keepdims=True), only, after)
        if (after == possible).all():
            return after
        possible = after


def _impossible(possible: np.ndarray) -> np.ndarray:
    """Find the puzzles with a cell without a symbol, or a symbol without a cell in some line."""
    return np.any([(possible.sum(axis=axis) == 0).any(axis=(1, 2)) for axis in (1, 2, 3)], axis=0)


def _with(possible: np.ndarray, cell: tuple[int, int], symbol: int) -> np.ndarray:
    """Put a symbol into a cell of one puzzle."""
    trial = possible.copy()
    trial[cell] = np.arange(len(trial)) == symbol
    return trial


def _completable(possible: np.ndarray) -> bool:
    """Whether some Latin square has only symbols that are possible, (row, column, symbol)."""
    narrowed = _narrowed(possible[None])
    if _impossible(narrowed)[0]:
        return False
    possible = narrowed[0]
    n_options = possible.sum(axis=-1)
    if (n_options == 1).all():
        return True
    # The cell with the fewest options fails soonest, if it fails.
    row, column = divmod(int(np.where(n_options > 1, n_options, 99).argmin()), len(possible))
    return any(
        _completable(_with(possible, (row, column), int(symbol)))
        for symbol in np.flatnonzero(possible[row, column])
    )
