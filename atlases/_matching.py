"""The match of column names with the regions of an atlas, and what makes it doubtful."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

from neuro_pe.atlases._naming import best_scheme, is_schaefer_cortex, spelling_key
from neuro_pe.errors import InputError

if TYPE_CHECKING:
    from neuro_pe.atlases._atlas import Atlas

__all__ = ["Match", "match_names"]

# Below this share of an atlas's regions the names may be those of a smaller atlas.
NEARLY_ALL = 0.95


@dataclass(frozen=True, kw_only=True, eq=False)
class Match:
    """Which column is which region of an atlas.

    Parameters
    ----------
    regions : DataFrame, one row a matched region
        The atlas rows in atlas order, with a column ``column``: position in the given names.
    unmatched : list of str
        Given names that are no region of the atlas, in the given order.
    missing : list of str
        Atlas regions that no given name stands for, in atlas order.
    share : float
        Matched names divided by given names; 0 when none were given.
    atlas : str
        Name of the atlas.

    Examples
    --------
    >>> from neuro_pe import atlases
    >>> match = atlases.load("Glasser").match(["GlobSig", "R_V1_ROI", "L_V1_ROI"])
    >>> match.regions[["name", "column"]].values.tolist()
    [['L_V1', 2], ['R_V1', 1]]
    >>> match.unmatched, len(match.missing)
    (['GlobSig'], 358)
    """

    regions: pd.DataFrame
    unmatched: list[str]
    missing: list[str]
    share: float
    atlas: str = ""

    def require(self, *, share: float = 0.95, source: str = "") -> Match:
        """Refuse the match when too few of the names are regions of the atlas.

        Parameters
        ----------
        share : float
            Least share of the given names that must be regions.
        source : str
            File or option that the names come from, for the message.

        Returns
        -------
        Match
            The match itself.

        Raises
        ------
        InputError
            If fewer names match; it shows the first that do not.
        """
        if self.share >= share:
            return self
        n_names = len(self.regions) + len(self.unmatched)
        msg = (
            f"{_prefix(source)}{len(self.regions)} of {n_names} column names are regions of "
            f"{self.atlas}, expected at least {share:.0%}; these are not: "
            f"{_first(self.unmatched)}. Name the atlas that the columns belong to, or give the "
            "columns the names that `neuro-pe atlases show` prints."
        )
        raise InputError(msg)


def match_names(atlas: Atlas, names: Sequence[str], *, source: str = "") -> Match:
    """Find the region that each name stands for; see :meth:`Atlas.match`."""
    names = [str(name) for name in names]
    scheme, rows = best_scheme(names, atlas.schemes)
    known = [(row, column) for column, row in enumerate(rows) if row is not None]
    unmatched = [name for name, row in zip(names, rows, strict=True) if row is None]
    if known:
        _refuse_repeated(atlas, names, rows, source)
        _refuse_other_resolution(atlas, names, rows, source)
        _refuse_mixed_schemes(atlas, names, scheme, rows, source)
        _refuse_other_labels(atlas, unmatched, source)
    known.sort()
    regions = atlas.regions.iloc[[row for row, _ in known]].reset_index(drop=True)
    regions["column"] = pd.Series([column for _, column in known], dtype="int64")
    return Match(
        regions=regions,
        unmatched=unmatched,
        missing=atlas.regions["name"].drop([row for row, _ in known]).tolist(),
        share=len(known) / len(names) if names else 0.0,
        atlas=atlas.name,
    )


def _refuse_repeated(
    atlas: Atlas, names: Sequence[str], rows: Sequence[int | None], source: str
) -> None:
    first: dict[int, str] = {}
    for name, row in zip(names, rows, strict=True):
        if row is not None and row in first:
            msg = (
                f"{_prefix(source)}columns {first[row]!r} and {name!r} are both region "
                f"{atlas.regions['name'].iloc[row]} of {atlas.name}; expected one column a "
                "region, so drop one of them."
            )
            raise InputError(msg)
        if row is not None:
            first[row] = name


def _refuse_other_resolution(
    atlas: Atlas, names: Sequence[str], rows: Sequence[int | None], source: str
) -> None:
    """Raise when the names fit a smaller Schaefer atlas at least as well.

    Every name of Schaefer-100 but one is also a name of Schaefer-200, for another parcel.
    """
    n_found = len(rows) - rows.count(None)
    if not _is_schaefer(atlas) or n_found >= NEARLY_ALL * len(atlas.regions):
        return
    from neuro_pe.atlases._catalogue import load

    x = atlas.regions["x"].iloc[[row for row in rows if row is not None]].tolist()
    for n_regions in range(100, len(atlas.regions), 100):
        other = load(f"Schaefer2018_{n_regions}")
        _, other_rows = best_scheme(names, other.schemes)
        other_x = other.regions["x"].iloc[[row for row in other_rows if row is not None]].tolist()
        # `4S156Parcels` holds the very parcels of Schaefer-100: no doubt there.
        if len(other_x) < n_found or other_x == x:
            continue
        msg = (
            f"{_prefix(source)}the column names fit {n_found} of the {len(atlas.regions)} regions "
            f"of {atlas.name}, but also {len(other_x)} of the {n_regions} of {other.name}, where "
            "they are other parcels; name the atlas that the columns belong to, or give all "
            "its regions."
        )
        raise InputError(msg)


def _refuse_mixed_schemes(
    atlas: Atlas, names: Sequence[str], scheme: str, rows: Sequence[int | None], source: str
) -> None:
    """Raise when another naming scheme fits as well, or knows names that the chosen does not."""
    n_found = len(rows) - rows.count(None)
    for other, spellings in atlas.schemes.items():
        other_rows = [spellings.get(spelling_key(name)) for name in names]
        if other == scheme or other_rows == list(rows):
            continue
        strangers = [
            name
            for name, row, other_row in zip(names, rows, other_rows, strict=True)
            if row is None and other_row is not None
        ]
        if strangers or len(rows) - other_rows.count(None) == n_found:
            example = strangers[0] if strangers else names[0]
            msg = (
                f"{_prefix(source)}the column names fit the {scheme} and the {other} names of "
                f"{atlas.name} (for example {example!r}), in which the same name can be another "
                "region; expected all names in one of them."
            )
            raise InputError(msg)


def _refuse_other_labels(atlas: Atlas, unmatched: Sequence[str], source: str) -> None:
    """Raise when names are Schaefer labels of another kind, among names that do match."""
    stale = [name for name in unmatched if is_schaefer_cortex(name)]
    if stale and _is_schaefer(atlas):
        msg = (
            f"{_prefix(source)}{len(stale)} Schaefer names are no regions of {atlas.name}: "
            f"{_first(stale)}. They are of another resolution, or of the labels before 2019, in "
            "which the names that do match can be other parcels; expected the labels of CBIG "
            "v0.14.3 or later."
        )
        raise InputError(msg)


def _is_schaefer(atlas: Atlas) -> bool:
    return "7-network" in atlas.schemes


def _prefix(source: str) -> str:
    return f"{source}: " if source else ""


def _first(names: Sequence[str], n: int = 3) -> str:
    shown = ", ".join(repr(name) for name in names[:n])
    return f"{shown}, ..." if len(names) > n else shown
