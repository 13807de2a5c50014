"""Statistics of a similarity matrix against a partition, for many relabellings at once."""

from collections.abc import Iterator

import numpy as np

from neuro_pe.comparison._modularity import Communities, modularity_matrix, weighted_matrix

__all__ = ["communities_agreement", "network_structure"]

# Relabellings a matrix product; bounds the memory at some 100 MB for 1,000 regions.
CHUNK = 200


def network_structure(similarity: np.ndarray, labels: np.ndarray) -> dict[str, np.ndarray]:
    """Mean similarity within and between networks, and modularity, of each labelling.

    Parameters
    ----------
    similarity : ndarray, shape (region, region)
        Symmetric. The diagonal is not used.
    labels : ndarray of int, shape (labelling, region)
        Networks 0..k-1; every labelling has the same number of regions in each.

    Returns
    -------
    dict
        ``within``, ``between``, ``within_minus_between`` and ``q_partition`` (gamma 1), each of
        shape (labelling,), and ``network_within_minus_between``, shape (labelling, network); NaN
        for a network of one region.
    """
    weights = weighted_matrix(similarity)
    excess = modularity_matrix(weights)
    size = np.bincount(labels[0]).astype(float)
    n_networks, n_regions = len(size), labels.shape[1]
    within = np.empty((len(labels), n_networks))
    total = np.empty_like(within)
    q = np.empty(len(labels))
    strength = weights.sum(axis=1)
    for rows in _chunks(len(labels)):
        members = labels[rows][:, :, None] == np.arange(n_networks)  # (labelling, region, network)
        members = members.transpose(1, 0, 2).astype(float)
        flat = members.reshape(n_regions, -1)
        shape = (-1, n_networks)
        within[rows] = np.einsum("ij,ij->j", weights @ flat, flat).reshape(shape)
        q[rows] = np.einsum("ij,ij->j", excess @ flat, flat).reshape(shape).sum(axis=1)
        total[rows] = (strength @ flat).reshape(shape)
    between = total - within
    pairs_within, pairs_between = size * (size - 1), size * (n_regions - size)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean_within = within.sum(axis=1) / pairs_within.sum()
        mean_between = between.sum(axis=1) / pairs_between.sum()
        by_network = within / pairs_within - between / pairs_between
    return {
        "within": mean_within,
        "between": mean_between,
        "within_minus_between": mean_within - mean_between,
        "q_partition": q,
        "network_within_minus_between": np.where(size > 1, by_network, np.nan),
    }


def communities_agreement(
    communities: Communities, labels: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Score the agreement with the communities found: adjusted Rand index and AMI.

    Parameters
    ----------
    communities : Communities
    labels : ndarray of int, shape (labelling, region)
        Networks 0..k-1; every labelling has the same number of regions in each.

    Returns
    -------
    ari, ami : ndarray, shape (resolution, labelling)
        AMI with the arithmetic mean of the entropies, as scikit-learn's default.
    """
    scores = [_agreement(found, labels) for found in communities.labels]
    return np.stack([ari for ari, _ in scores]), np.stack([ami for _, ami in scores])


def _agreement(found: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    from sklearn.metrics.cluster import expected_mutual_information

    n_labellings, n = labels.shape
    n_networks, n_found = labels.max() + 1, found.max() + 1
    cells = n_networks * n_found
    code = found * n_networks + labels + cells * np.arange(n_labellings)[:, None]
    table = np.bincount(code.ravel(), minlength=cells * n_labellings)
    table = table.reshape(n_labellings, n_found, n_networks)
    # Relabelling permutes regions, so the margins and all that hangs on them stay as they are.
    networks, communities = np.bincount(labels[0]), np.bincount(found)

    pairs = _pairs(table).sum(axis=(1, 2))
    pairs_networks, pairs_found = _pairs(networks).sum(), _pairs(communities).sum()
    expected = pairs_networks * pairs_found / _pairs(np.array(n))
    ceiling = (pairs_networks + pairs_found) / 2
    ari = (pairs - expected) / (ceiling - expected) if ceiling != expected else np.ones(len(pairs))

    count = np.arange(n + 1, dtype=float)
    plogp = count / n * np.log(np.maximum(count, 1) / n)
    entropy_networks, entropy_found = -plogp[networks].sum(), -plogp[communities].sum()
    information = plogp[table].sum(axis=(1, 2)) + entropy_networks + entropy_found
    chance = expected_mutual_information(table[0].astype(np.int64), n)
    room = (entropy_networks + entropy_found) / 2 - chance
    ami = (information - chance) / room if room > 1e-12 else np.zeros(len(pairs))
    return ari, ami


def _pairs(count: np.ndarray) -> np.ndarray:
    return count * (count - 1) / 2


def _chunks(length: int) -> Iterator[slice]:
    for start in range(0, length, CHUNK):
        yield slice(start, start + CHUNK)
