"""Which atlases are known, under which names, and where their tables come from."""

import copy
import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import resources

import pandas as pd

from neuro_pe.atlases import _naming
from neuro_pe.atlases._atlas import Atlas
from neuro_pe.atlases._matching import NEARLY_ALL
from neuro_pe.errors import InputError

__all__ = ["available", "find", "load", "recognise"]

_COLUMNS = ["name", "hemisphere", "x", "y", "z"]
_RESOLUTIONS = range(100, 1001, 100)


@dataclass(frozen=True, kw_only=True)
class _Entry:
    """What is known of a table beside the table."""

    spelled: str
    partitions: tuple[str, ...]
    source: str
    version: str
    licence: str


_SCHAEFER = _Entry(
    spelled=(
        r"schaefer(?:2018)?(?:v0143)?(?:desc)?n?{n}(?:parcels?|rois?|regions?|p)?"
        r"(?:x?(?:7|17)(?:n|networks?)?)?(?:order)?"
    ),
    partitions=("yeo7", "yeo17"),
    source="Schaefer et al. 2018, doi:10.1093/cercor/bhx179",
    version="CBIG v0.14.3",
    licence="MIT (CBIG)",
)
_ATLASPACK = _Entry(
    spelled=r"4s{n}(?:parcels?)?",
    partitions=("yeo7", "yeo17"),
    source="Schaefer et al. 2018 with the subcortex and cerebellum of AtlasPack",
    version="CBIG v0.14.3; AtlasPack 2727a5f",
    licence="MIT (CBIG)",
)
_OTHERS = {
    "Glasser2016_360": _Entry(
        spelled=r"(?:glasser(?:2016)?(?:360)?|(?:hcp)?mmp(?:1|10)?(?:360)?)(?:parcels?)?",
        partitions=("yeo7", "yeo17"),
        source="Glasser et al. 2016, doi:10.1038/nature18933",
        version="HCP-MMP 1.0; Yeo networks by majority of vertices",
        licence="WU-Minn HCP Open Access Data Use Terms",
    ),
    "Gordon2014_333": _Entry(
        spelled=r"gordon(?:2014|2016)?(?:333)?(?:parcels?)?",
        partitions=("gordon",),
        source="Gordon et al. 2016 (online 2014), doi:10.1093/cercor/bhu239",
        version="333 parcels, in the order of parcel ids",
        licence="MIT (xcpEngine)",
    ),
    "Power2011_264": _Entry(
        spelled=r"power(?:2011)?(?:264)?",
        partitions=("power",),
        source="Power et al. 2011, doi:10.1016/j.neuron.2011.09.006",
        version="264 regions in the published order",
        licence="MIT (xcpEngine)",
    ),
}


def _entries() -> dict[str, _Entry]:
    """Every known atlas by its canonical name."""
    schaefer = {
        f"Schaefer2018_{n}": replace(_SCHAEFER, spelled=_SCHAEFER.spelled.format(n=n))
        for n in _RESOLUTIONS
    }
    atlaspack = {
        f"4S{n + 56}Parcels": replace(_ATLASPACK, spelled=_ATLASPACK.spelled.format(n=n + 56))
        for n in _RESOLUTIONS
    }
    return _OTHERS | schaefer | atlaspack


def find(name: str) -> Atlas | None:
    """Load an atlas by name, or return None when the name is not known.

    Parameters
    ----------
    name : str
        Any usual spelling; case and punctuation do not matter.

    Returns
    -------
    Atlas or None

    Examples
    --------
    >>> from neuro_pe import atlases
    >>> atlases.find("Schaefer2018400Parcels7Networks").name
    'Schaefer2018_400'
    >>> atlases.find("Desikan") is None
    True
    """
    wanted = "".join(character for character in name.casefold() if character.isalnum())
    for canonical, entry in _entries().items():
        if re.fullmatch(entry.spelled, wanted):
            atlas = _read(canonical)
            # A copy, so that a caller who changes it does not change it for the next one.
            return replace(
                atlas, regions=atlas.regions.copy(), schemes=copy.deepcopy(atlas.schemes)
            )
    return None


def load(name: str) -> Atlas:
    """Load an atlas by name.

    Parameters
    ----------
    name : str
        Any usual spelling, e.g. ``Glasser``, ``HCPMMP``, ``Schaefer400``,
        ``Schaefer2018_400Parcels_17Networks``, ``4S456Parcels``, ``Gordon``, ``Power264``. The 7-
        and the 17-network order of Schaefer are one atlas here: which one a file has is found
        when its names are matched.

    Returns
    -------
    Atlas
        With a region table of its own, free to change.

    Raises
    ------
    InputError
        If the name is not known; it lists those that are.

    Examples
    --------
    >>> from neuro_pe import atlases
    >>> atlases.load("HCP-MMP").name
    'Glasser2016_360'
    """
    atlas = find(name)
    if atlas is None:
        msg = (
            f"atlas {name!r} is not known; expected one of {', '.join(_OTHERS)}, "
            "Schaefer2018_100 ... Schaefer2018_1000, 4S156Parcels ... 4S1056Parcels "
            "(`neuro-pe atlases list` shows all)."
        )
        raise InputError(msg)
    return atlas


def available() -> pd.DataFrame:
    """List the atlases that are known.

    Returns
    -------
    DataFrame, one row an atlas
        ``name``, ``regions`` (their number), ``partitions`` (separated by commas), ``source``,
        ``version``, ``licence``.

    Examples
    --------
    >>> from neuro_pe import atlases
    >>> atlases.available().set_index("name").loc["Schaefer2018_400", "partitions"]
    'yeo7,yeo17'
    """
    atlases = [_read(name) for name in _entries()]
    return pd.DataFrame(
        {
            "name": [atlas.name for atlas in atlases],
            "regions": [len(atlas.regions) for atlas in atlases],
            "partitions": [",".join(atlas.partitions) for atlas in atlases],
            "source": [atlas.source for atlas in atlases],
            "version": [atlas.version for atlas in atlases],
            "licence": [atlas.licence for atlas in atlases],
        }
    )


def recognise(names: Sequence[str]) -> Atlas | None:
    """Find the atlas that column names belong to.

    Parameters
    ----------
    names : sequence of str
        Column names, any spelling that :meth:`Atlas.match` understands.

    Returns
    -------
    Atlas or None
        The atlas that has at least 95 % of the names and at least 95 % of whose regions are
        named, with the fewest left over on both sides; None when there is none, or no single
        one.

    Examples
    --------
    >>> from neuro_pe import atlases
    >>> names = [f"Parcel_{number}" for number in range(1, 334)]
    >>> atlases.recognise(names).name
    'Gordon2014_333'
    """
    names = [str(name) for name in names]
    left_over: dict[str, int] = {}
    for canonical in _entries():
        atlas = _read(canonical)
        _, rows = _naming.best_scheme(names, atlas.schemes)
        n_found = len({row for row in rows if row is not None})
        n_regions = len(atlas.regions)
        if n_found and n_found >= NEARLY_ALL * max(len(names), n_regions):
            left_over[canonical] = len(names) + n_regions - 2 * n_found
    best = [name for name, n in left_over.items() if n == min(left_over.values())]
    return load(best[0]) if len(best) == 1 else None


@functools.cache
def _read(canonical: str) -> Atlas:
    entry = _entries()[canonical]
    if canonical.startswith("4S"):
        cortex = _table(f"Schaefer2018_{int(canonical[2:-7]) - 56}")
        table = pd.concat([cortex, _table("AtlasPack_subcortex_56")], ignore_index=True)
    else:
        table = _table(canonical)
    return Atlas(
        name=canonical,
        regions=table[[*_COLUMNS, *entry.partitions]],
        partitions=entry.partitions,
        source=entry.source,
        version=entry.version,
        licence=entry.licence,
        schemes=_schemes(table),
    )


def _table(name: str) -> pd.DataFrame:
    """Read a bundled table; only ``n/a`` is missing, so a region may be called ``None_1``."""
    with resources.files("neuro_pe.atlases").joinpath(f"tables/{name}.tsv").open("rb") as file:
        return pd.read_csv(file, sep="\t", keep_default_na=False, na_values=["n/a"])


def _schemes(table: pd.DataFrame) -> dict[str, _naming.Scheme]:
    """Every naming scheme of an atlas, by the name that messages call it."""
    names = table["name"].tolist()
    if "name_17network" in table:
        names_17 = table["name_17network"].fillna(table["name"]).tolist()
        return {
            "7-network": _naming.lookup(names, _naming.schaefer_spellings),
            "17-network": _naming.lookup(names_17, _naming.schaefer_spellings),
        }
    if "name_xcp_d" in table:
        columns = {"published": "name", "XCP-D": "name_xcp_d", "xcpEngine": "name_xcpengine"}
        return {
            scheme: _naming.lookup(table[column].tolist(), _naming.plain_spelling)
            for scheme, column in columns.items()
        }
    if names[0] == "L_V1":
        return {"HCP-MMP": _naming.lookup(names, _naming.glasser_spellings)}
    return {"published": _naming.lookup(names, _naming.plain_spelling)}
