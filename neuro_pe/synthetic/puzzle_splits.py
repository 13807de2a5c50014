"""Which Latin Square Task puzzles are trained on, and which judge."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.model_selection import train_test_split

from neuro_pe.errors import InputError
from neuro_pe.synthetic._checks import check_whole
from neuro_pe.synthetic._puzzles_files import load_puzzles
from neuro_pe.synthetic._puzzles_generator import generate_puzzles
from neuro_pe.synthetic.puzzles import SIZES, Puzzles

__all__ = ["PuzzleSplits", "split_puzzles"]

# The authors' `train_test_split(..., random_state=42)`.
SPLIT_SEED = 42
HELD_OUT = 0.1
N_TRAINING = 3000  # puzzles a complexity, before some are held out
N_UNLIKE = 36  # and as many of these as the people's test has
MIN_DISSIMILARITY = 0.8


@dataclass(frozen=True, kw_only=True, eq=False)
class PuzzleSplits:
    """Puzzles to learn from, and puzzles to be judged by.

    Parameters
    ----------
    train, heldout : Puzzles
        Drawn alike; the network has not seen those held out, but may have seen similar ones.
    unlike : Puzzles
        Each at least 0.8 (Jaccard dissimilarity) from every other puzzle.
    unlike_name : str
        ``human108`` for the puzzles that people solved, or ``unlike``.
    """

    train: Puzzles
    heldout: Puzzles
    unlike: Puzzles
    unlike_name: str

    def named(self, *, trained_on: bool = True) -> dict[str, Puzzles]:
        """Return the splits by the names that tables have for them."""
        training = {"train": self.train} if trained_on else {}
        return {**training, "heldout": self.heldout, self.unlike_name: self.unlike}


def split_puzzles(*, size: int = 4, source: str | None = None, seed: int = 0) -> PuzzleSplits:
    """Return the puzzles of a size, 90 % of them to train on.

    Parameters
    ----------
    size : int
        Rows, columns and symbols: 4 to 7.
    source : {"published", "generated"} or None
        The 9,000 puzzles of Hearne et al. and the 108 that people solved (size 4 only); or 3,000
        drawn for each complexity, and 36 unlike all of them. None takes what is published, if
        there is any.
    seed : int
        Of what is generated.

    Raises
    ------
    InputError
        If there are no such puzzles.

    Examples
    --------
    >>> from neuro_pe.synthetic import split_puzzles
    >>> {name: len(puzzles) for name, puzzles in split_puzzles().named().items()}
    {'train': 8100, 'heldout': 900, 'human108': 108}
    """
    check_whole("size", size, SIZES[0], SIZES[-1])
    check_whole("seed", seed, 0)
    source = source or ("published" if size == 4 else "generated")
    if source not in ("published", "generated") or (source == "published" and size != 4):
        msg = f"puzzles: found {source!r} of size {size}; expected 'generated', or size 4."
        raise InputError(msg)
    if source == "published":
        puzzles, unlike, name = load_puzzles("training"), load_puzzles("human"), "human108"
    else:
        unlike = _drawn(N_UNLIKE, size=size, seed=2 * seed + 1)
        puzzles = _drawn(
            N_TRAINING,
            size=size,
            seed=2 * seed,
            unlike=unlike.cells,
            min_dissimilarity=MIN_DISSIMILARITY,
        )
        name = "unlike"
    kept, held_out = train_test_split(
        np.arange(len(puzzles)),
        test_size=HELD_OUT,
        stratify=puzzles.complexity,
        random_state=SPLIT_SEED,
    )
    return PuzzleSplits(
        train=puzzles.select(kept),
        heldout=puzzles.select(held_out),
        unlike=unlike,
        unlike_name=name,
    )


def _drawn(n_puzzles: int, *, size: int, **options: Any) -> Puzzles:
    parts = [
        generate_puzzles(n_puzzles, complexity=complexity, size=size, **options)
        for complexity in range(1, size)
    ]
    return Puzzles(
        **{
            name: np.concatenate([getattr(part, name) for part in parts])
            for name in ("cells", "solutions", "complexity", "items")
        }
    )
