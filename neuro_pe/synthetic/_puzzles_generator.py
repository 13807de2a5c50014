"""Latin Square Task puzzles of a wanted complexity, drawn at random."""

from itertools import permutations

import numpy as np

from neuro_pe.errors import InputError
from neuro_pe.synthetic._checks import check_number, check_whole
from neuro_pe.synthetic.puzzles import SIZES, Puzzles, classify, jaccard_dissimilarity, sound

# Drawn at a time, whatever is asked for, so that asking for more begins with the same puzzles.
_BATCH = 2048
# Batches in a row without a puzzle to keep, before the wish is called impossible.
_PATIENCE = 100
# At most this share of the cells that a step does not need is shown.
_MOST_SHOWN = 0.75
# Puzzles to be unlike are compared a few at a time: most draws fail at the first few.
_COMPARED = 256


def generate_puzzles(
    n_puzzles: int,
    *,
    complexity: int,
    size: int = 4,
    seed: int = 0,
    unlike: np.ndarray | None = None,
    min_dissimilarity: float = 0.8,
) -> Puzzles:
    """Draw puzzles of one complexity, all different.

    A random Latin square and target are drawn; shown are the cells that a step of this complexity
    needs, and a random share of the others. What turns out easier than wanted is thrown away.

    Parameters
    ----------
    n_puzzles : int
        How many. More puzzles of the same seed begin with the same ones.
    complexity : int
        1 to `size` - 1, as :func:`~neuro_pe.synthetic.classify` has it.
    size : int
        Rows, columns and symbols: 4 to 7.
    seed : int
        Seed of the draws. Complexities and sizes have draws of their own.
    unlike : ndarray of integers, shape (other puzzle, row, column), or None
        Puzzles to keep away from, such as those for training when these are for testing.
    min_dissimilarity : float
        Each puzzle is at least this far from each of `unlike`, by
        :func:`~neuro_pe.synthetic.jaccard_dissimilarity`. Without `unlike` it means nothing.
        The more puzzles in `unlike`, the fewer are left: of size 4, none at 0.8 was found from
        all 9,000 training puzzles, but at 0.75 there are many.

    Returns
    -------
    Puzzles

    Raises
    ------
    InputError
        If an option is out of range, or there are not that many such puzzles to be found.

    Examples
    --------
    >>> from neuro_pe.synthetic import generate_puzzles
    >>> puzzles = generate_puzzles(2, complexity=2, seed=1)
    >>> len(puzzles), puzzles.complexity
    (2, array([2, 2], dtype=int8))
    """
    _check(n_puzzles, complexity, size, seed, min_dissimilarity)
    others = None if unlike is None else sound(unlike)
    rng = np.random.default_rng([seed, size, complexity])
    known: set[bytes] = set()
    kept_cells: list[np.ndarray] = []
    kept_solutions: list[int] = []
    idle = 0
    while len(kept_cells) < n_puzzles:
        cells, solutions = _draw(rng, complexity, size)
        idle += 1
        good = np.flatnonzero(classify(cells) == complexity)
        if others is not None:
            good = good[_far(cells[good], others, min_dissimilarity)]
        for puzzle, solution in zip(cells[good], solutions[good], strict=True):
            if puzzle.tobytes() not in known:
                idle = 0
                known.add(puzzle.tobytes())
                kept_cells.append(puzzle)
                kept_solutions.append(solution)
        if idle == _PATIENCE:
            msg = (
                f"found {len(kept_cells)} puzzles of size {size} and complexity {complexity}, "
                f"expected {n_puzzles}; ask for fewer, or lower min_dissimilarity"
            )
            raise InputError(msg)
    return Puzzles(
        cells=np.array(kept_cells[:n_puzzles], dtype=np.int8).reshape(-1, size, size),
        solutions=np.array(kept_solutions[:n_puzzles], dtype=np.int8),
        complexity=np.full(n_puzzles, complexity, dtype=np.int8),
        items=np.zeros(n_puzzles, dtype=np.int16),
    )


def _check(n_puzzles: int, complexity: int, size: int, seed: int, min_dissimilarity: float) -> None:
    """Refuse options out of range."""
    check_whole("size", size, SIZES[0], SIZES[-1])
    check_whole("complexity", complexity, 1, size - 1)
    check_whole("n_puzzles", n_puzzles, 0)
    check_whole("seed", seed, 0)
    check_number(
        "min_dissimilarity", min_dissimilarity, lambda least: 0 <= least <= 1, "a share from 0 to 1"
    )


def _draw(rng: np.random.Generator, complexity: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw a batch of puzzles with a step of this complexity, and their solutions."""
    squares = _random_squares(rng, n)
    every = np.arange(_BATCH)
    row, column = rng.integers(n, size=(2, _BATCH))
    solutions = squares[every, row, column]
    shown = rng.random(squares.shape) < rng.uniform(0, _MOST_SHOWN, size=(_BATCH, 1, 1))
    if complexity == 1:
        shown[every, row] = True
    elif complexity == 2:
        # Each symbol is shown in the row (1), in the column (2) or in both (3).
        place = rng.integers(1, 4, size=(_BATCH, n))
        in_row, in_column = squares[every, row] - 1, squares[every, :, column] - 1
        shown[every, row] = np.take_along_axis(place, in_row, axis=1) != 2
        shown[every, :, column] = np.take_along_axis(place, in_column, axis=1) != 1
    else:
        # As many columns forbid the symbol as the complexity says, less one for the row itself
        # unless it shows nothing.
        n_blank = np.full(_BATCH, complexity - 1)
        if complexity == n - 1:
            n_blank += rng.integers(2, size=_BATCH)
        order = rng.random((_BATCH, n))
        order[every, column] = np.inf
        blank = order.argsort(axis=1).argsort(axis=1) < n_blank[:, None]
        shown |= (squares == solutions[:, None, None]) & blank[:, None, :]
        shown[every, row] = ~blank
    cells = np.where(shown, squares, 0)
    cells[every, row, column] = n + 1
    turned = rng.random((_BATCH, 1, 1)) < 0.5
    return np.where(turned, cells.swapaxes(1, 2), cells).astype(np.int8), solutions


def _random_squares(rng: np.random.Generator, n: int) -> np.ndarray:
    """Draw a batch of Latin squares, row by row; each square can come, some more often."""
    orders = np.array(list(permutations(range(n))))
    marks = np.eye(n, dtype=np.float32)[orders].reshape(len(orders), n * n)
    used = np.zeros((_BATCH, n * n), dtype=np.float32)
    squares = np.empty((_BATCH, n, n), dtype=np.int8)
    for row in range(n):
        # Rows that repeat no symbol in a column; there always is one (Hall's theorem).
        fits = (used @ marks.T == 0).cumsum(axis=1, dtype=np.int32)
        pick = (rng.random(_BATCH) * fits[:, -1]).astype(np.int32)
        chosen = (fits > pick[:, None]).argmax(axis=1)
        used += marks[chosen]
        squares[:, row] = orders[chosen] + 1
    order = rng.random((_BATCH, n)).argsort(axis=1)
    return np.take_along_axis(squares, order[:, :, None], axis=1)


def _far(cells: np.ndarray, others: np.ndarray, least: float) -> np.ndarray:
    """Find the puzzles that are at least so far from each of the others: their indices."""
    far = np.arange(len(cells))
    for start in range(0, len(others), _COMPARED):
        distances = jaccard_dissimilarity(cells[far], others[start : start + _COMPARED])
        far = far[(distances >= least).all(axis=1)]
    return far
