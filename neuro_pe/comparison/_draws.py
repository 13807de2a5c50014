"""Values of region-by-region statistics under relabelling, the value measured first."""

from collections.abc import Sequence

import numpy as np

from neuro_pe.comparison._similarity import matrix_correlation, unit_pair

__all__ = ["correlation_draws", "procrustes_draws"]


def correlation_draws(
    matrices: Sequence[np.ndarray], reference: np.ndarray, orders: np.ndarray
) -> np.ndarray:
    """Correlate matrices with a reference, then again with the reference's regions permuted.

    Parameters
    ----------
    matrices : sequence of ndarray, shape (region, region)
        Symmetric. The diagonals are not used.
    reference : ndarray, shape (region, region)
        Symmetric.
    orders : ndarray of int, shape (n_permutations, region)
        Orders of the regions, from :func:`null_permutations`.

    Returns
    -------
    ndarray, shape (matrix, 1 + n_permutations)
        What :func:`matrix_correlation` gives, for the order as it is and for each permutation
        (Mantel's test).

    Examples
    --------
    >>> import numpy as np
    >>> from neuro_pe.comparison import correlation_draws
    >>> matrix = np.array([[0.0, 1.0, 2.0], [1.0, 0.0, 4.0], [2.0, 4.0, 0.0]])
    >>> correlation_draws([matrix], matrix, np.array([[0, 2, 1]])).round(2)
    array([[1.  , 0.79]])
    """
    n_regions = len(reference)
    rows, columns = np.triu_indices(n_regions, k=1)
    flat = np.ascontiguousarray(reference, dtype=float).ravel()
    pairs = np.stack([np.asarray(matrix, dtype=float)[rows, columns] for matrix in matrices])
    y = flat[rows * n_regions + columns]
    with np.errstate(invalid="ignore", divide="ignore"):
        # The pairs' mean and spread do not depend on their order: only the product changes.
        centred = pairs - pairs.mean(axis=1, keepdims=True)
        weights = centred / (pairs.std(axis=1, keepdims=True) * y.std() * len(y))
    draws = np.empty((len(pairs), 1 + len(orders)))
    draws[:, 0] = [matrix_correlation(matrix, reference) for matrix in matrices]
    for index, order in enumerate(orders, start=1):
        draws[:, index] = weights @ flat[order[rows] * n_regions + order[columns]]
    return draws


def procrustes_draws(first: np.ndarray, second: np.ndarray, orders: np.ndarray) -> np.ndarray:
    """Procrustes distance of two encodings, then again with the regions of one permuted.

    Parameters
    ----------
    first, second : ndarray, shape (region, dimension)
    orders : ndarray of int, shape (n_permutations, region)
        Orders of the regions of `second`.

    Returns
    -------
    ndarray, shape (1 + n_permutations,)
        What :func:`procrustes_distance` gives, for the order as it is and for each permutation.

    Raises
    ------
    InputError
        As :func:`procrustes_distance`.

    Examples
    --------
    >>> import numpy as np
    >>> from neuro_pe.comparison import procrustes_draws
    >>> encoding = np.array([[0.0, 1.0], [2.0, 0.0], [1.0, 5.0]])
    >>> draws = procrustes_draws(encoding, 2 * encoding, np.array([[1, 2, 0]]))
    >>> bool(abs(draws[0]) < 1e-9), bool(draws[1] > 0.1)
    (True, True)
    """
    a, b = unit_pair(first, second)
    if len(a) < a.shape[1]:
        # Rotations of the dimensions change nothing: as many as there are regions are enough.
        a, b = (np.linalg.qr(each.T)[1].T for each in (a, b))
    everything = np.concatenate([np.arange(len(b))[None], orders])
    nuclear = [np.linalg.svd(a.T @ b[order], compute_uv=False).sum() for order in everything]
    return np.clip(2 - 2 * np.array(nuclear), 0.0, 2.0)
