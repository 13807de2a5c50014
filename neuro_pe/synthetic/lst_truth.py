"""Measure encodings and attention of Latin Square Task networks against the grid of cells."""

import numpy as np
import pandas as pd
import torch
from scipy.spatial.distance import pdist, squareform
from scipy.stats import rankdata

from neuro_pe.building import weight_change
from neuro_pe.comparison import (
    correlation_draws,
    label_permutations,
    null_rows,
    procrustes_draws,
)
from neuro_pe.encodings import make_encoding
from neuro_pe.synthetic.lst import LatinSquareFit, new_lst_network

__all__ = [
    "attention_correlation",
    "grid_distances",
    "grid_encoding",
    "measure_encoding",
    "measure_fit",
]

COLUMNS = ["source", "part", "statistic", "value", "null", "null_mean", "null_sd", "z", "p"]
COLUMNS += ["n_permutations"]


def grid_encoding(size: int, width: int) -> np.ndarray:
    """Return ``2d-fixed``, the sinusoids of row and column.

    Parameters
    ----------
    size, width : int

    Returns
    -------
    ndarray, shape (size * size, width)
    """
    encoding = make_encoding("2d-fixed", n_regions=size**2, width=width, grid=(size, size))
    vectors = encoding()
    assert isinstance(vectors, torch.Tensor)
    return vectors.numpy()


def grid_distances(size: int) -> dict[str, np.ndarray]:
    """Return how far cells are from each other, in two ways.

    Parameters
    ----------
    size : int

    Returns
    -------
    dict of str to ndarray, shape (cell, cell)
        ``grid``: Euclidean distance over row and column, in cells. ``line``: 0 in the same row or
        column, which is all that the task asks for, else 1.

    Examples
    --------
    >>> from neuro_pe.synthetic.lst_truth import grid_distances
    >>> distances = grid_distances(4)
    >>> distances["grid"][0, :6].round(1), distances["line"][0, :6]
    (array([0. , 1. , 2. , 3. , 1. , 1.4]), array([0., 0., 0., 0., 0., 1.]))
    """
    rows, columns = np.divmod(np.arange(size**2), size)
    down, across = rows[:, None] - rows, columns[:, None] - columns
    return {
        "grid": np.hypot(down, across),
        "line": ((down != 0) & (across != 0)).astype(float),
    }


def measure_fit(fit: LatinSquareFit, *, n_permutations: int = 200) -> pd.DataFrame:
    """Say what a fit learned: its encoding and learned change, and how far its weights moved.

    Parameters
    ----------
    fit : LatinSquareFit
    n_permutations : int
        Of the cells, for the null.

    Returns
    -------
    DataFrame
        ``source, part, statistic, value, null, null_mean, null_sd, z, p, n_permutations``: what
        :func:`measure_encoding` gives for the sources ``pe`` and ``change``, and for ``weights``
        the ``relative_change`` of every part (:func:`neuro_pe.building.weight_change`).
    """
    size, width = fit.network.size, fit.settings.width
    tables = []
    if fit.positional_encoding is not None and fit.initial is not None:
        vectors = {"pe": fit.positional_encoding, "change": fit.positional_encoding - fit.initial}
        for source, each in vectors.items():
            table = measure_encoding(each, size=size, width=width, n_permutations=n_permutations)
            tables.append(table.assign(source=source))
    start = new_lst_network(fit.settings, size=size)
    moved = weight_change(start, fit.network.state_dict()).rename(columns={"change": "value"})
    tables.append(moved.assign(source="weights", statistic="relative_change"))
    return pd.concat([pd.DataFrame(columns=COLUMNS), *tables], ignore_index=True)[COLUMNS]


def measure_encoding(
    vectors: np.ndarray, *, size: int, width: int, n_permutations: int = 200
) -> pd.DataFrame:
    """Compare an encoding of cells with the grid, block by block.

    Parameters
    ----------
    vectors : ndarray, shape (size * size, width or blocks * width)
        Learned, or learned minus initial; the encodings of all blocks side by side.
    size, width : int
    n_permutations : int
        Of the cells, for the null.

    Returns
    -------
    DataFrame
        ``part, statistic, value, null, null_mean, null_sd, z, p, n_permutations``. Statistics:
        ``procrustes``, the distance to ``2d-fixed`` after the best rotation or reflection (see
        :func:`neuro_pe.comparison.procrustes_distance`); ``grid_correlation`` and
        ``line_correlation``, rank correlations of the distances of all pairs of cells in the
        encoding with those of :func:`grid_distances`. A block that did not move is left out.
    """
    orders = label_permutations(size**2, n_permutations=n_permutations)
    reference = grid_encoding(size, width)
    rows: list[dict[str, object]] = []
    for block, part in enumerate(np.split(vectors, vectors.shape[1] // width, axis=1)):
        if np.ptp(part, axis=0).max() == 0:
            continue
        found = null_rows(
            {"cells": procrustes_draws(part, reference, orders)},
            statistic="procrustes",
            network="",
        )
        ranks = _ranks(squareform(pdist(part)))
        for name, distances in grid_distances(size).items():
            draws = correlation_draws([ranks], _ranks(distances), orders)[0]
            found += null_rows({"cells": draws}, statistic=f"{name}_correlation", network="")
        rows += [{"part": f"block_{block}", **row} for row in found]
    return pd.DataFrame(rows, columns=COLUMNS[1:])


def _ranks(distances: np.ndarray) -> np.ndarray:
    """Ranks of the pairs, so that a Pearson correlation is Spearman's."""
    pairs = np.triu_indices(len(distances), k=1)
    ranks = np.zeros_like(distances)
    ranks[pairs] = rankdata(distances[pairs])
    return ranks + ranks.T


def attention_correlation(attention: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """Correlate attention maps with those of another network, block by block.

    Parameters
    ----------
    attention, reference : ndarray, shape (block, head, cell, cell)
        Heads have no order, so their mean is compared.

    Returns
    -------
    ndarray, shape (block,)
        Pearson correlation over all pairs of cells; NaN where a map is constant.
    """
    pairs = zip(attention.mean(axis=1), reference.mean(axis=1), strict=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.array([np.corrcoef(a.ravel(), b.ravel())[0, 1] for a, b in pairs])
