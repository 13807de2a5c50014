"""How alike regions are in one encoding, and how alike two encodings are."""

import warnings

import numpy as np
from scipy.linalg import orthogonal_procrustes

from neuro_pe.errors import InputError

__all__ = ["cosine_similarity", "matrix_correlation", "procrustes_distance"]


def cosine_similarity(encoding: np.ndarray) -> np.ndarray:
    """Cosine of the angle between the encodings of every two regions, common mean removed.

    What all regions share says nothing about which of them belong together, so the mean over
    regions is taken off each dimension first.

    Parameters
    ----------
    encoding : ndarray, shape (region, dimension)
        Finite values.

    Returns
    -------
    ndarray, shape (region, region)
        Values in [-1, 1]; the diagonal is 1. A region that equals the mean of all regions has no
        direction: its row, column and diagonal entry are 0, with a warning.

    Raises
    ------
    InputError
        If the array is not 2-D or has a value that is not finite.

    Examples
    --------
    >>> import numpy as np
    >>> from neuro_pe.comparison import cosine_similarity
    >>> cosine_similarity(np.array([[3.0, 0.0], [3.0, 0.2], [-1.0, 0.1]])).round(1)
    array([[ 1.,  1., -1.],
           [ 1.,  1., -1.],
           [-1., -1.,  1.]])
    """
    encoding = _checked(encoding, "encoding")
    centred = encoding - encoding.mean(axis=0)
    length = np.linalg.norm(centred, axis=1)
    # Rounding in the mean leaves about 1e-16 of the encoding's own size.
    still = length <= 1e-12 * np.abs(encoding).max(initial=0.0)
    if still.any():
        msg = (
            f"{int(still.sum())} of {len(encoding)} regions have the mean of all regions as "
            "their encoding; their similarity to others is set to 0."
        )
        warnings.warn(msg, stacklevel=2)
    unit = np.where(still[:, None], 0.0, centred / np.where(still, 1.0, length)[:, None])
    similarity = np.clip(unit @ unit.T, -1.0, 1.0)
    np.fill_diagonal(similarity, np.where(still, 0.0, 1.0))
    return similarity


def procrustes_distance(first: np.ndarray, second: np.ndarray) -> float:
    """Distance between two encodings after the best rotation or reflection.

    The dimensions of two fits do not correspond. Both encodings are centred over regions and
    scaled to unit Frobenius norm, giving A and B; the distance is ``||A - B R||_F^2`` at the
    orthogonal matrix R that makes it smallest, which is ``2 - 2 ||A' B||_*`` (nuclear norm).

    Parameters
    ----------
    first, second : ndarray, shape (region, dimension)
        The same regions in the same order. The narrower one is padded with zeros.

    Returns
    -------
    float
        Between 0 (equal up to shift, scale, rotation and reflection) and 2. Unrelated encodings
        stay far under 2, the more so the more dimensions there are for a number of regions:
        read it beside its permutation null.

    Raises
    ------
    InputError
        If the numbers of regions differ, a value is not finite, or all regions are the same.

    References
    ----------
    Schoenemann (1966), "A generalized solution of the orthogonal Procrustes problem",
    Psychometrika 31.

    Examples
    --------
    >>> import numpy as np
    >>> from neuro_pe.comparison import procrustes_distance
    >>> encoding = np.array([[0.0, 1.0], [2.0, 0.0], [1.0, 5.0]])
    >>> round(abs(procrustes_distance(encoding, 3 * encoding[:, ::-1] + 1)), 6)
    0.0
    """
    a, b = unit_pair(first, second)
    rotation, _ = orthogonal_procrustes(b, a)
    return float(np.sum((a - b @ rotation) ** 2))


def matrix_correlation(first: np.ndarray, second: np.ndarray) -> float:
    """Pearson correlation of two region x region matrices over their region pairs.

    Parameters
    ----------
    first, second : ndarray, shape (region, region)
        Symmetric. The diagonal is not used.

    Returns
    -------
    float
        NaN where one of the matrices is constant.

    Examples
    --------
    >>> import numpy as np
    >>> from neuro_pe.comparison import matrix_correlation
    >>> matrix = np.array([[0.0, 1.0, 2.0], [1.0, 0.0, 4.0], [2.0, 4.0, 0.0]])
    >>> round(matrix_correlation(matrix, 2 * matrix), 6)
    1.0
    """
    pairs = np.triu_indices(len(first), k=1)
    x, y = np.asarray(first)[pairs], np.asarray(second)[pairs]
    if len(x) < 2 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return float("nan")
    return float(np.corrcoef(x, y)[0, 1])


def unit_pair(first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Centre two encodings over regions, scale them to unit norm, pad them to one width."""
    a, b = _checked(first, "first encoding"), _checked(second, "second encoding")
    if len(a) != len(b):
        msg = f"the encodings have {len(a)} and {len(b)} regions; expected the same regions."
        raise InputError(msg)
    width = max(a.shape[1], b.shape[1])
    scaled = []
    for values, which in ((a, "first"), (b, "second")):
        centred = values - values.mean(axis=0)
        norm = np.linalg.norm(centred)
        if norm <= 1e-12 * np.abs(values).max(initial=0.0):
            msg = f"{which} encoding: all regions have the same values; it has no shape to compare."
            raise InputError(msg)
        scaled.append(np.pad(centred / norm, ((0, 0), (0, width - values.shape[1]))))
    return scaled[0], scaled[1]


def _checked(encoding: np.ndarray, what: str) -> np.ndarray:
    values = np.asarray(encoding, dtype=float)
    if values.ndim != 2 or values.size == 0:
        msg = f"{what}: found shape {values.shape}; expected (region, dimension)."
        raise InputError(msg)
    if not np.isfinite(values).all():
        row = int(np.flatnonzero(~np.isfinite(values).all(axis=1))[0])
        msg = f"{what}: row {row} has a value that is not finite; expected numbers everywhere."
        raise InputError(msg)
    return values
