"""Tables brought into one order of regions, by name."""

import warnings

import pandas as pd

from neuro_pe.errors import InputError

__all__ = ["match_partition", "select_regions"]


def match_partition(partition: pd.Series, regions: list[str]) -> pd.Series:
    """Give each region its network by name, and leave out those without one.

    Parameters
    ----------
    partition : Series, region name -> network
    regions : list of str
        Region names, in the order wanted.

    Returns
    -------
    Series, region name -> network
        The regions with a network, in the order given; the name of `partition`.

    Raises
    ------
    InputError
        If a region is not in the partition, a name repeats, or fewer than two networks are left.

    Examples
    --------
    >>> import pandas as pd
    >>> from neuro_pe.comparison import match_partition
    >>> yeo = pd.Series({"L_V1": "Vis", "L_4": "SomMot", "L_MST": "DorsAttn"}, name="yeo7")
    >>> match_partition(yeo, ["L_4", "L_V1"]).tolist()
    ['SomMot', 'Vis']
    """
    label = partition.name or "partition"
    partition = partition.set_axis(partition.index.astype(str))
    if not partition.index.is_unique:
        repeated = partition.index[partition.index.duplicated()][0]
        msg = f"partition {label}: region {repeated!r} repeats; expected one row a region."
        raise InputError(msg)
    unknown = [name for name in regions if name not in partition.index]
    if unknown:
        others = [name for name in partition.index if name not in set(regions)]
        msg = (
            f"partition {label}: {len(unknown)} of {len(regions)} regions of the model are not in "
            f"it (first: {', '.join(unknown[:3])}"
            + (f"; it has {', '.join(others[:3])}" if others else "")
            + "); use a partition of the model's atlas, with network n/a for regions to leave out."
        )
        raise InputError(msg)
    networks = partition.loc[regions]
    without = int(networks.isna().sum())
    if without:
        msg = f"{without} of {len(regions)} regions have no network in {label}; they are left out."
        warnings.warn(msg, stacklevel=3)
    networks = networks.dropna()
    if networks.nunique() < 2:
        msg = f"partition {label}: found {networks.nunique()} network; expected two or more."
        raise InputError(msg)
    return networks


def select_regions(table: pd.DataFrame, names: list[str], what: str) -> pd.DataFrame:
    """Return the rows of these regions in this order; `what` names the table in messages."""
    table = table.set_axis(table.index.astype(str))
    missing = [name for name in names if name not in table.index]
    if missing or not table.index.is_unique:
        found = f"{len(missing)} regions are missing (first: {', '.join(missing[:3])})"
        msg = f"{what}: {found if missing else 'region names repeat'}; expected one row a region."
        raise InputError(msg)
    return table.loc[names]
