"""Encodings, their learned change and functional connectivity beside a network partition."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from neuro_pe.comparison._agreement import communities_agreement, network_structure
from neuro_pe.comparison._matching import match_partition, select_regions
from neuro_pe.comparison._modularity import Communities, find_communities, modularity
from neuro_pe.comparison._nulls import null_permutations
from neuro_pe.comparison._similarity import cosine_similarity

__all__ = [
    "COLUMNS",
    "SourceComparison",
    "communities_for",
    "compare_networks",
    "compare_source",
    "null_rows",
    "tabulate",
]

COLUMNS = (
    "source",
    "seed",
    "partition",
    "network",
    "statistic",
    "value",
    "null",
    "null_mean",
    "null_sd",
    "z",
    "p",
    "n_permutations",
)

# Small values of these are the ones that speak for network structure.
LOWER_TAIL = ("between", "procrustes")


@dataclass(frozen=True, kw_only=True, eq=False)
class SourceComparison:
    """One similarity matrix beside one partition.

    Parameters
    ----------
    table : DataFrame
        Rows of :func:`compare_networks`.
    communities : Series, region name -> int
        Partition found at the resolution whose number of communities is nearest to the number of
        networks.
    """

    table: pd.DataFrame
    communities: pd.Series


def compare_networks(
    encoding: pd.DataFrame,
    *,
    partition: pd.Series,
    change: pd.DataFrame | None = None,
    functional_connectivity: pd.DataFrame | None = None,
    coordinates: pd.DataFrame | None = None,
    n_permutations: int = 1000,
    seed: int = 0,
) -> pd.DataFrame:
    """Measure how well an encoding follows a partition of the brain into networks.

    Parameters
    ----------
    encoding : DataFrame, region x dimension
        Positional encoding; the index holds the region names.
    partition : Series, region name -> network
        Matched by name. Regions without a network (NaN) are left out, with a warning.
    change : DataFrame or None, region x dimension
        Learned minus initial encoding.
    functional_connectivity : DataFrame or None, region x region
        Correlations of the training data, for the same numbers beside the encoding's.
    coordinates : DataFrame or None
        Columns ``x``, ``y``, ``z`` (MNI, mm) and ``hemisphere``, indexed by region name or with
        a column ``name``; adds the spatially constrained null.
    n_permutations : int
        Relabellings a null.
    seed : int
        Seed of the relabellings and of the search for communities.

    Returns
    -------
    DataFrame
        One row a value and null: ``source, seed, partition, network, statistic, value, null,
        null_mean, null_sd, z, p, n_permutations``. ``source`` is ``pe``, ``change`` or ``fc``;
        ``seed`` (of the fit) is missing; ``null`` is ``label_permutation``, ``spin`` or missing.
        ``z = (value - null_mean) / null_sd``; ``p`` is one-sided, ``(1 + k) / (1 + n)`` with k
        null values at least as extreme: as high, but as low for ``between``.

    Raises
    ------
    InputError
        If a region of `encoding` is not in `partition`, or there are fewer than two networks.

    Notes
    -----
    ``within``, ``between``, ``within_minus_between``: mean similarity of region pairs. One row a
    network for the difference too.
    ``q_partition``, ``q_found``: modularity at gamma 1 of the partition, and the highest of any
    partition found: its ceiling.
    ``ari``, ``ami``: agreement of the partition with the communities found, the highest over the
    resolutions; each null takes the same highest value, so choosing does not lower p.
    ``gamma_found`` and ``n_communities`` belong to the ARI.
    ``ari_matched``, ``ami_matched``: at the resolution that is chosen by the number of
    communities alone (the nearest to the number of networks): ``gamma_matched``,
    ``n_communities_matched``.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> from neuro_pe import compare_networks
    >>> rng = np.random.default_rng(0)
    >>> networks = pd.Series(["Vis"] * 10 + ["Default"] * 10, index=[f"r{i}" for i in range(20)])
    >>> centres = {"Vis": rng.normal(size=8), "Default": rng.normal(size=8)}
    >>> encoding = pd.DataFrame([centres[n] + rng.normal(size=8) for n in networks],
    ...                         index=networks.index)
    >>> table = compare_networks(encoding, partition=networks, n_permutations=99)
    >>> table.set_index("statistic").loc["q_partition", ["z", "p"]].gt([5, 0]).all()
    np.True_
    """
    networks = match_partition(partition, [str(name) for name in encoding.index])
    names = list(networks.index)
    nulls = null_permutations(
        names, coordinates=coordinates, n_permutations=n_permutations, seed=seed
    )
    similarities = {"pe": _encoding_similarity(encoding, names)}
    if change is not None:
        if np.any(np.asarray(change, dtype=float)):
            similarities["change"] = _encoding_similarity(change, names)
        else:
            warnings.warn("the encoding did not change; 'change' is left out.", stacklevel=2)
    if functional_connectivity is not None:
        rows = select_regions(functional_connectivity, names, "functional connectivity")
        similarities["fc"] = select_regions(rows.T, names, "functional connectivity")
    tables = [
        compare_source(similarity, source=source, networks=networks, nulls=nulls, seed=seed).table
        for source, similarity in similarities.items()
    ]
    return pd.concat(tables, ignore_index=True)


def compare_source(
    similarity: pd.DataFrame,
    *,
    source: str,
    networks: pd.Series,
    nulls: Mapping[str, np.ndarray],
    communities: Communities | None = None,
    seed: int = 0,
) -> SourceComparison:
    """Measure one similarity matrix against one partition.

    Parameters
    ----------
    similarity : DataFrame, region x region
        Names and order of `networks`.
    source : str
        ``pe``, ``change`` or ``fc``: the column of that name.
    networks : Series, region name -> network
        From :func:`match_partition`: no region without a network. Its name is the partition's.
    nulls : mapping of str to ndarray, shape (n_permutations, region)
        From :func:`null_permutations`.
    communities : Communities or None
        What :func:`communities_for` found in the matrix, if that was done already.
    seed : int
        Seed of the search for communities.

    Returns
    -------
    SourceComparison
        The statistics are described at :func:`compare_networks`.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> from neuro_pe.comparison import compare_source, null_permutations
    >>> names = list("abcdef")
    >>> fc = pd.DataFrame(np.kron(np.eye(2), np.ones((3, 3))), index=names, columns=names)
    >>> networks = pd.Series(list("VVVDDD"), index=names, name="yeo7")
    >>> result = compare_source(fc, source="fc", networks=networks,
    ...                         nulls=null_permutations(names, n_permutations=20))
    >>> result.communities.tolist()
    [0, 0, 0, 1, 1, 1]
    """
    weights = similarity.to_numpy(dtype=float)
    network_names, codes = np.unique(networks.astype(str).to_numpy(), return_inverse=True)
    found = communities or communities_for(similarity, networks=networks, seed=seed)
    matched = int(np.argmin(np.abs(found.counts - len(network_names))))

    highest = max(found.labels, key=lambda labels: modularity(weights, labels))
    measured: dict[str, dict[str, np.ndarray]] = {}
    best = 0
    for null, orders in nulls.items():
        # The labelling itself goes first, so value and null come from the same lines.
        labels = np.concatenate([codes[None], codes[orders]])
        statistics = network_structure(weights, labels)
        ari, ami = communities_agreement(found, labels)
        best = int(np.argmax(ari[:, 0]))
        statistics |= {"ari": ari.max(axis=0), "ami": ami.max(axis=0)}
        statistics |= {"ari_matched": ari[matched], "ami_matched": ami[matched]}
        dealt = network_structure(weights, np.concatenate([highest[None], highest[orders]]))
        statistics["q_found"] = dealt["q_partition"]
        measured[null] = statistics

    rows = []
    for statistic in next(iter(measured.values())):
        if statistic.startswith("network_"):
            continue
        draws = {null: values[statistic] for null, values in measured.items()}
        rows += null_rows(draws, statistic=statistic, network="all")
    for statistic, value in _found(found, best=best, matched=matched).items():
        rows.append({"network": "all", "statistic": statistic, "value": value})
    for column, network in enumerate(network_names):
        draws = {
            null: values["network_within_minus_between"][:, column]
            for null, values in measured.items()
        }
        rows += null_rows(draws, statistic="within_minus_between", network=network)
    table = tabulate(rows, source=source, partition=str(networks.name or "partition"))
    best_match = pd.Series(found.labels[matched], index=networks.index, name="community")
    return SourceComparison(table=table, communities=best_match)


def communities_for(similarity: pd.DataFrame, *, networks: pd.Series, seed: int = 0) -> Communities:
    """Search communities over the resolutions that a partition can be compared at.

    Parameters
    ----------
    similarity : DataFrame, region x region
    networks : Series, region name -> network
        Only their number is looked at: resolutions with over four times as many communities
        are left out. No relabelling changes it, so the null models stay honest.
    seed : int

    Returns
    -------
    Communities

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> from neuro_pe.comparison import communities_for
    >>> weights = pd.DataFrame(np.kron(np.eye(2), np.ones((3, 3))))
    >>> communities_for(weights, networks=pd.Series(list("VVVDDD"))).counts[0]
    np.int64(2)
    """
    return find_communities(
        similarity.to_numpy(dtype=float), max_communities=4 * networks.nunique(), seed=seed
    )


def null_rows(
    draws: Mapping[str, np.ndarray], *, statistic: str, network: str
) -> list[dict[str, object]]:
    """Rows of one statistic, one a null.

    Parameters
    ----------
    draws : mapping of str to ndarray, shape (1 + n_permutations,)
        Null's name to the value measured, followed by the values under the null.
    statistic, network : str
        Columns of those names.

    Returns
    -------
    list of dict
        ``network, statistic, value, null, null_mean, null_sd, z, p, n_permutations``.

    Examples
    --------
    >>> import numpy as np
    >>> from neuro_pe.comparison import null_rows
    >>> row = null_rows({"spin": np.array([3.0, 1.0, 2.0, 0.0])}, statistic="ari", network="all")
    >>> row[0]["z"], row[0]["p"]
    (2.0, 0.25)
    """
    rows = []
    for name, values in draws.items():
        value, null = float(values[0]), values[1:]
        row: dict[str, object] = {"network": network, "statistic": statistic, "value": value}
        if not np.isfinite(value):
            return [row]
        sd = float(null.std(ddof=1))
        # Equal values that were summed in another order count as equal.
        slack = 1e-9 * max(1.0, abs(value))
        sign = -1.0 if statistic in LOWER_TAIL else 1.0
        extreme = int((sign * null >= sign * value - slack).sum())
        row |= {"null": name, "null_mean": float(null.mean()), "null_sd": sd}
        row["z"] = (value - float(null.mean())) / sd if sd > 1e-12 else float("nan")
        row |= {"p": (1 + extreme) / (1 + len(null)), "n_permutations": len(null)}
        rows.append(row)
    return rows


def tabulate(
    rows: list[dict[str, object]], *, source: str, partition: str, seed: object = np.nan
) -> pd.DataFrame:
    """Bring rows into the columns of :func:`compare_networks`.

    Parameters
    ----------
    rows : list of dict
        From :func:`null_rows`.
    source, partition : str
        Columns of those names.
    seed : int, str or NaN
        Seed of the fit.

    Returns
    -------
    DataFrame

    Examples
    --------
    >>> from neuro_pe.comparison import tabulate
    >>> rows = [{"network": "all", "statistic": "q_found", "value": 0.2}]
    >>> tabulate(rows, source="pe", partition="yeo7")[["source", "value"]].values.tolist()
    [['pe', 0.2]]
    """
    table = pd.DataFrame(rows).reindex(columns=list(COLUMNS))
    table["source"] = source
    table["seed"] = pd.Series([seed] * len(table), dtype=object)
    table["partition"] = partition
    table["n_permutations"] = table["n_permutations"].astype("Int64")
    return table


def _found(found: Communities, *, best: int, matched: int) -> dict[str, float]:
    """Describe the partitions found; what the given partition is has no part in the first."""
    return {
        "gamma_found": found.resolutions[best],
        "n_communities": int(found.counts[best]),
        "gamma_matched": found.resolutions[matched],
        "n_communities_matched": int(found.counts[matched]),
    }


def _encoding_similarity(encoding: pd.DataFrame, names: list[str]) -> pd.DataFrame:
    selected = select_regions(encoding, names, "encoding")
    return pd.DataFrame(cosine_similarity(selected.to_numpy()), index=names, columns=names)
