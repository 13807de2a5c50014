"""How pipelines spell region names: one lookup a naming scheme, from spelling to table row."""

import re
from collections.abc import Callable, Iterable, Sequence

__all__ = ["Scheme", "best_scheme", "is_schaefer_cortex", "lookup", "spelling_key"]

# Spelling (as `spelling_key` gives it) to row of the region table.
Scheme = dict[str, int]

_SCHAEFER_CORTEX = re.compile(
    r"(?:(?:7|17)networks_)?[lr]h_"
    r"(?:vis|sommot|dorsattn|salventattn|limbic|cont|default|temppar)(?:[a-z]*)_"
)


def spelling_key(name: str) -> str:
    """Return a name without what carries no meaning: case, blanks around it, ``_ROI``."""
    return name.strip().casefold().removesuffix("_roi")


def is_schaefer_cortex(name: str) -> bool:
    """Tell whether a name is built like a cortical Schaefer label of any version."""
    return _SCHAEFER_CORTEX.match(spelling_key(name)) is not None


def schaefer_spellings(name: str) -> Iterable[str]:
    """Write ``7Networks_LH_Vis_1`` also as ``LH_Vis_1``."""
    return (name, re.sub(r"^(7|17)Networks_", "", name))


def glasser_spellings(name: str) -> Iterable[str]:
    """Write ``L_V1`` also as ``Left_V1``, ``LH_V1`` and ``V1_L``."""
    side, area = name.split("_", maxsplit=1)
    word = {"L": "Left", "R": "Right"}[side]
    return (name, f"{word}_{area}", f"{side}H_{area}", f"{area}_{side}")


def plain_spelling(name: str) -> Iterable[str]:
    """Give the one way a name is written."""
    return (name,)


def lookup(names: Sequence[str], spellings: Callable[[str], Iterable[str]]) -> Scheme:
    """Index every spelling of every name; one that would fit two rows is left out."""
    rows: dict[str, int] = {}
    ambiguous = set()
    for row, name in enumerate(names):
        for key in {spelling_key(spelling) for spelling in spellings(name)}:
            if rows.setdefault(key, row) != row:
                ambiguous.add(key)
    return {key: row for key, row in rows.items() if key not in ambiguous}


def best_scheme(names: Sequence[str], schemes: dict[str, Scheme]) -> tuple[str, list[int | None]]:
    """Choose the naming scheme that knows most of the names, for all of them at once.

    Schemes of one atlas can give the same name to different regions, so names are never read
    one in this scheme and one in that.

    Returns
    -------
    scheme : str
    rows : list of int or None
        Row of the region table for every name; None where the scheme does not know it.
    """
    keys = [spelling_key(name) for name in names]
    found = {scheme: [rows.get(key) for key in keys] for scheme, rows in schemes.items()}
    scheme = max(found, key=lambda scheme: len(keys) - found[scheme].count(None))
    return scheme, found[scheme]
