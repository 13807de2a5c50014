"""Modularity of signed matrices, and the communities that maximise it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from neuro_pe.errors import InputError

__all__ = ["RESOLUTIONS", "Communities", "find_communities", "modularity"]

# Functional connectivity follows partitions of the brain best near 1.5, similarities of encodings
# near 3.5, and the number of communities grows quickly between.
RESOLUTIONS = tuple(round(10 ** (step / 12), 2) for step in range(-1, 12))


@dataclass(frozen=True, kw_only=True, eq=False)
class Communities:
    """Best partitions found, one a resolution.

    Parameters
    ----------
    resolutions : tuple of float
        Resolution parameters gamma.
    labels : ndarray of int, shape (resolution, region)
        Community of each region, from 0.
    modularity : ndarray, shape (resolution,)
        Q at the resolution of the row.
    """

    resolutions: tuple[float, ...]
    labels: np.ndarray
    modularity: np.ndarray

    @property
    def counts(self) -> np.ndarray:
        """Number of communities at each resolution."""
        return self.labels.max(axis=1) + 1


def modularity_matrix(weights: np.ndarray, *, gamma: float = 1.0) -> np.ndarray:
    """Return B of the signed modularity: Q is the sum of B over pairs of one community."""
    weights = weighted_matrix(weights)
    positive, negative = np.maximum(weights, 0.0), np.maximum(-weights, 0.0)
    total_positive, total_negative = positive.sum(), negative.sum()
    excess_positive = positive - gamma * _expected(positive)
    excess_negative = negative - gamma * _expected(negative)
    total = total_positive + total_negative
    first = excess_positive / total_positive if total_positive else 0.0
    second = excess_negative / total if total else 0.0
    return np.zeros_like(weights) + first - second


def modularity(weights: np.ndarray, labels: np.ndarray, *, gamma: float = 1.0) -> float:
    """Modularity Q of a labelling of the regions of a signed similarity matrix.

    Positive and negative weights are treated asymmetrically: the positive ones count in full, the
    negative ones in proportion to their share of all weight. Without negative weights this is
    Newman's modularity.

    Parameters
    ----------
    weights : ndarray, shape (region, region)
        Symmetric and finite. The diagonal is not used.
    labels : array-like, shape (region,)
        Community or network of each region.
    gamma : float
        Resolution: over 1 prefers smaller communities. Q of different gammas do not compare.

    Returns
    -------
    float

    Raises
    ------
    InputError
        If the matrix is not square, symmetric and finite.

    References
    ----------
    Rubinov and Sporns (2011), "Weight-conserving characterization of complex functional brain
    networks", NeuroImage 56, equation 5 (Q*).

    Examples
    --------
    >>> import numpy as np
    >>> from neuro_pe.comparison import modularity
    >>> weights = np.kron(np.eye(2), np.ones((3, 3)))
    >>> modularity(weights, [0, 0, 0, 1, 1, 1])
    0.5
    """
    _, codes = np.unique(np.asarray(labels), return_inverse=True)
    if len(codes) != len(weights):
        msg = f"labels: found {len(codes)} for {len(weights)} regions; expected one a region."
        raise InputError(msg)
    same = codes[:, None] == codes[None, :]
    return float(modularity_matrix(weights, gamma=gamma)[same].sum())


def find_communities(
    weights: np.ndarray,
    *,
    resolutions: Sequence[float] = RESOLUTIONS,
    max_communities: int | None = None,
    restarts: int = 2,
    seed: int = 0,
) -> Communities:
    """Search the partition with the highest modularity at each of several resolutions.

    Parameters
    ----------
    weights : ndarray, shape (region, region)
        Symmetric and finite; may be negative. The diagonal is not used.
    resolutions : sequence of float
        Values of gamma, ascending.
    max_communities : int or None
        Stop before the first resolution that breaks the matrix into more communities than this.
    restarts : int
        Runs of the Louvain method (bctpy's ``community_louvain``) at each gamma, from different
        orders of the regions; the one with the highest Q is kept.
    seed : int
        Seed of the orders.

    Returns
    -------
    Communities

    Raises
    ------
    InputError
        If the matrix is not square, symmetric and finite, or has no positive weight.

    Examples
    --------
    >>> import numpy as np
    >>> from neuro_pe.comparison import find_communities
    >>> weights = np.kron(np.eye(2), np.ones((3, 3)))
    >>> find_communities(weights, resolutions=[1.0]).labels
    array([[0, 0, 0, 1, 1, 1]])
    """
    from bct import community_louvain

    weights = _ready_for_louvain(weighted_matrix(weights))
    all_labels: list[np.ndarray] = []
    all_q: list[float] = []
    for gamma in resolutions:
        labels, q = community_louvain(weights, gamma=gamma, B="negative_asym", seed=seed)
        if all_labels and max_communities is not None and labels.max() > max_communities:
            break
        for restart in range(1, restarts):
            other = community_louvain(weights, gamma=gamma, B="negative_asym", seed=seed + restart)
            labels, q = other if other[1] > q else (labels, q)
        all_labels.append(_in_order_of_appearance(labels))
        all_q.append(float(q))
    return Communities(
        resolutions=tuple(float(gamma) for gamma in resolutions[: len(all_q)]),
        labels=np.stack(all_labels),
        modularity=np.array(all_q),
    )


def weighted_matrix(weights: np.ndarray) -> np.ndarray:
    """Return a checked copy with an empty diagonal."""
    weights = np.array(weights, dtype=float)
    if weights.ndim != 2 or weights.shape[0] != weights.shape[1]:
        msg = f"similarity matrix: found shape {weights.shape}; expected (region, region)."
        raise InputError(msg)
    np.fill_diagonal(weights, 0.0)
    finite = np.isfinite(weights)
    if not finite.all():
        # One bad region leaves a bad value in every row; its own is bad throughout.
        row = int(np.argmin(finite.sum(axis=1)))
        msg = (
            f"similarity matrix: row {row} has a value that is not finite; "
            "leave out regions without signal."
        )
        raise InputError(msg)
    if not np.allclose(weights, weights.T, atol=1e-6):
        msg = "similarity matrix: it is not symmetric; expected similarities of region pairs."
        raise InputError(msg)
    return (weights + weights.T) / 2


def _expected(weights: np.ndarray) -> np.ndarray:
    """Weights expected from the strengths alone."""
    strength = weights.sum(axis=1)
    total = strength.sum()
    return np.outer(strength, strength) / total if total else np.zeros_like(weights)


def _ready_for_louvain(weights: np.ndarray) -> np.ndarray:
    """Rescale so that bctpy's first stopping test cannot trip.

    Its first Q is divided by the signed sum of the weights, which is near zero for a matrix with
    its mean removed; a Q that looks huge then ends the search after one pass. Scaling leaves the
    communities as they are and makes that first Q nearly 0.
    """
    if not (weights > 0).any():
        msg = (
            "similarity matrix: no two regions have a positive similarity; "
            "there are no communities to find."
        )
        raise InputError(msg)
    total = weights.sum()
    if abs(total) < 1e-9 * np.abs(weights).sum():
        weights = np.where(weights > 0, weights * (1 + 1e-6), weights)
        total = weights.sum()
    return weights * (1e6 / abs(total))


def _in_order_of_appearance(labels: np.ndarray) -> np.ndarray:
    """Give communities numbers from 0, by the first region that is in them."""
    _, first, codes = np.unique(labels, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[codes]
