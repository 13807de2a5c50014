"""Which files of a folder are region time series, by their names, and what their sidecars say."""

import json
import os
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from neuro_pe.errors import InputError

__all__ = ["BidsTree", "SeriesFile", "normalize_entity", "scan"]

# Raw and temporary data: nothing in there is a derivative to read.
SKIPPED_FOLDERS = {"sourcedata", "work"}
EXTENSIONS = (".ptseries.nii", ".dtseries.nii", ".nii.gz", ".nii", ".tsv", ".json")
# `desc-` of tables that end in `_timeseries.tsv` and hold no regions.
NOT_REGIONS = re.compile(r"confounds|motion|outliers|regressors", re.IGNORECASE)
# No fMRI volume takes this many seconds; such a number is in milliseconds.
LONGEST_TR = 60.0


@dataclass(frozen=True, kw_only=True, eq=False)
class SeriesFile:
    """A file of region time series.

    Parameters
    ----------
    path : Path
    root : Path
        The derivative that it belongs to: the folder of its ``sub-`` folder.
    entities : dict
        Key to value, as in the file name; ``run-01`` is ``1``.
    suffix : str
        Last part of the name (``timeseries``).
    """

    path: Path
    root: Path
    entities: dict[str, str]
    suffix: str

    @property
    def atlas(self) -> str | None:
        """Label of ``atlas-``, or ``seg-`` in the names of XCP-D 0.7 and giga_connectome."""
        return self.entities.get("atlas") or self.entities.get("seg")

    @property
    def is_cifti(self) -> bool:
        """Whether this is a ``.ptseries.nii`` file."""
        return self.path.name.endswith(".ptseries.nii")

    @property
    def is_fetched(self) -> bool:
        """Whether the content is there; DataLad leaves a dangling link until it is fetched."""
        return self.path.exists()


@dataclass(kw_only=True, eq=False)
class BidsTree:
    """What a folder holds.

    Parameters
    ----------
    folder : Path
    series : list of SeriesFile
        Sorted by path.
    sidecars : dict
        Folder to its JSON files, each with entities and suffix.
    others : dict
        Kind of other files (``raw``, ``preprocessed``, ``unnamed``, ``gzipped``) to the first one
        seen.
    is_empty : bool
        Whether there is no file at all.
    """

    folder: Path
    series: list[SeriesFile] = field(default_factory=list)
    sidecars: dict[Path, list[tuple[dict[str, str], str, Path]]] = field(default_factory=dict)
    others: dict[str, Path] = field(default_factory=dict)
    is_empty: bool = True
    _read: dict[Path, dict[str, Any]] = field(default_factory=dict)

    def repetition_time(self, file: SeriesFile) -> float | None:
        """Return the TR in seconds that the closest sidecar gives, or None.

        A JSON file applies to a file in its folder or below whose name has all its entities (BIDS
        inheritance); ``RepetitionTime`` counts before the inverse of ``SamplingFrequency``.
        """
        applicable = []
        for depth, folder in enumerate([*file.path.parents][::-1]):
            for entities, suffix, path in self.sidecars.get(folder, ()):
                # `task-rest_bold.json` speaks of the images that the series were taken from.
                applies = suffix in (file.suffix, "bold")
                if applies and entities.items() <= file.entities.items():
                    closeness = (depth, suffix == file.suffix, len(entities))
                    applicable.append((closeness, path))
        for _, path in sorted(applicable, reverse=True):
            content = self._json(path)
            tr = as_seconds(content.get("RepetitionTime"), str(path))
            frequency = content.get("SamplingFrequency")
            if tr is None and isinstance(frequency, int | float) and frequency > 0:
                tr = as_seconds(1 / frequency, str(path))
            if tr is not None:
                return tr
        return None

    def _json(self, path: Path) -> dict[str, Any]:
        if path not in self._read:
            try:
                content = json.loads(path.read_text(encoding="utf-8-sig"))
            except (OSError, ValueError) as error:
                msg = f"{path}: cannot be read as JSON ({error}); correct or remove this sidecar."
                raise InputError(msg) from error
            self._read[path] = content if isinstance(content, dict) else {}
        return self._read[path]


def as_seconds(value: object, source: str) -> float | None:
    """Return a repetition time in seconds; None where `value` is none."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        return None
    if value > LONGEST_TR:
        msg = f"{source}: repetition time {value:g} is taken as milliseconds; BIDS has seconds."
        warnings.warn(msg, stacklevel=2)
        return float(value) / 1000
    return float(value)


def normalize_entity(key: str, value: str) -> str:
    """Return an entity's value as names are compared: without ``key-``, run 01 as 1."""
    value = value.removeprefix(f"{key}-")
    return str(int(value)) if key == "run" and value.isdigit() else value


def parse_name(name: str) -> tuple[dict[str, str], str, str]:
    """Split a file name into its entities, suffix and extension (empty when of no interest)."""
    extension = next((end for end in EXTENSIONS if name.endswith(end)), "")
    *parts, suffix = name.removesuffix(extension).split("_")
    # Parts without a key, as the `_bold_` amid the names of the ABCC, say nothing needed here.
    pairs = (part.split("-", maxsplit=1) for part in parts if "-" in part)
    return {key: normalize_entity(key, value) for key, value in pairs}, suffix, extension


def scan(folder: Path) -> BidsTree:
    """Look through a folder and all below for region time series and sidecars.

    Raises
    ------
    InputError
        If `folder` is not there, is a file or cannot be read.
    """
    if not folder.exists():
        msg = f"{folder}: no such folder; expected a BIDS derivative with region time series."
        raise InputError(msg)
    if not folder.is_dir():
        msg = f"{folder}: this is a file; expected the folder of a BIDS derivative."
        raise InputError(msg)
    tree = BidsTree(folder=folder)
    for path in _walk(folder):
        tree.is_empty = False
        entities, suffix, extension = parse_name(path.name)
        if extension == ".json":
            tree.sidecars.setdefault(path.parent, []).append((entities, suffix, path))
        elif _is_series(entities, suffix, extension):
            root = _derivative_root(path, folder)
            tree.series.append(SeriesFile(path=path, root=root, entities=entities, suffix=suffix))
        elif kind := _kind_of_other(entities, suffix, extension):
            tree.others.setdefault(kind, path)
    tree.series.sort(key=lambda file: file.path)
    return tree


def _walk(folder: Path) -> Iterator[Path]:
    waiting = [folder]
    seen = set()
    while waiting:
        here = waiting.pop()
        try:
            status = here.stat()
            entries = sorted(os.scandir(here), key=lambda entry: entry.name)
        except OSError as error:
            if here == folder:
                msg = f"{here}: the folder cannot be read ({error.strerror})."
                raise InputError(msg) from error
            msg = f"{here}: left out, the folder cannot be read ({error.strerror})."
            warnings.warn(msg, stacklevel=4)
            continue
        # A linked folder may lead back up, or to what was seen already.
        if (status.st_dev, status.st_ino) in seen:
            continue
        seen.add((status.st_dev, status.st_ino))
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if not entry.is_dir():
                yield Path(entry.path)
            elif entry.name not in SKIPPED_FOLDERS:
                waiting.append(Path(entry.path))


def _is_series(entities: dict[str, str], suffix: str, extension: str) -> bool:
    if "sub" not in entities or entities.get("stat") == "coverage":
        return False
    if extension == ".ptseries.nii":
        return True
    has_atlas = "atlas" in entities or "seg" in entities
    return (
        extension == ".tsv"
        and suffix == "timeseries"
        and (has_atlas or not NOT_REGIONS.search(entities.get("desc", "")))
    )


def _kind_of_other(entities: dict[str, str], suffix: str, extension: str) -> str | None:
    if suffix == "timeseries.tsv.gz" and "sub" in entities:
        return "gzipped"
    if extension == ".ptseries.nii" or (extension == ".tsv" and suffix == "timeseries"):
        return None if "sub" in entities else "unnamed"
    if suffix != "bold" or extension not in (".nii", ".nii.gz", ".dtseries.nii"):
        return None
    is_derived = "space" in entities or "desc" in entities or extension == ".dtseries.nii"
    return "preprocessed" if is_derived else "raw"


def _derivative_root(path: Path, folder: Path) -> Path:
    parts = path.relative_to(folder).parts[:-1]
    depth = next((n for n, part in enumerate(parts) if part.startswith("sub-")), 0)
    return folder.joinpath(*parts[:depth])
