"""Loading a cohort from a BIDS derivative folder."""

import hashlib
import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from neuro_pe import atlases
from neuro_pe._bids_files import BidsTree, SeriesFile, scan
from neuro_pe._bids_select import Wanted, select_files
from neuro_pe._bids_values import (
    SeriesTable,
    participants_folders,
    read_names,
    read_participants,
    read_series,
)
from neuro_pe.cache import Keep, cached_cohort
from neuro_pe.errors import InputError
from neuro_pe.timeseries import Cohort, RegionTimeSeries

__all__ = ["demo_dir", "load_bids", "load_demo"]

# Two runs that begin with this many equal volumes are the same data.
N_COMPARED = 20


def load_bids(
    bids_dir: str | os.PathLike[str],
    *,
    atlas: str | None = None,
    task: Wanted = None,
    session: Wanted = None,
    run: Wanted = None,
    space: Wanted = None,
    desc: Wanted = None,
    subjects: Wanted = None,
    region_names: str | os.PathLike[str] | Sequence[str] | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    keep_missing: bool = False,
) -> Cohort:
    """Load the region time series of a BIDS derivative folder, all in one region order.

    Finds ``*_timeseries.tsv`` and ``*.ptseries.nii`` files, as XCP-D (any version), the ABCC and
    giga_connectome name them, takes one file a run, and maps the columns by name to the regions
    of an atlas. What was left out is warned about and stands in ``Cohort.dropped``. The page
    *Input* of the documentation has the details.

    Parameters
    ----------
    bids_dir : path-like
        A derivative folder, or a folder that holds one derivative with region time series.
    atlas : str or None
        Atlas to take where several are side by side, in any usual spelling.
    task, session, run, space, desc : str, list of str or None
        Values of these BIDS entities to take, with or without ``task-``; None takes all.
        ``"none"`` takes the names that lack the entity.
    subjects : str, list of str or None
        Subject labels to take, with or without ``sub-``; None takes all.
    region_names : path-like, sequence of str or None
        Region names in column order, for files without names: a list, a file with one name a
        line, or a TSV with a column ``name``.
    cache_dir : path-like or None
        Folder for a cache of the values, which are then mapped from there instead of held in
        memory. The next call with the same arguments reads no source file unless one has changed.
    keep_missing : bool
        Leave out no run and no region: values are NaN where a run lacks them, and a run may lack
        columns. For :meth:`neuro_pe.MaskedRegionModel.impute`; all else refuses such data.

    Returns
    -------
    Cohort
        Runs sorted by file path, values float32; `regions` in atlas order with coordinates and
        networks, or in file order with names only where no atlas is recognised.

    Raises
    ------
    InputError
        If the folder or a file cannot be used, nothing fits the filters, there is more than one
        way to choose, under 95 % of the columns are regions of the atlas, or two subjects have
        the same data.

    Examples
    --------
    >>> import neuro_pe as npe
    >>> from neuro_pe.bids import demo_dir
    >>> data = npe.load_bids(demo_dir(), atlas="Glasser", subjects=["01", "02"])
    >>> len(data), data.tr, data.region_names[:2]
    (2, 0.72, ['L_V1', 'L_MST'])
    """
    tree = scan(Path(bids_dir))
    filters = {
        "subjects": subjects,
        "task": task,
        "session": session,
        "run": run,
        "space": space,
        "desc": desc,
    }
    files = select_files(tree, atlas=atlas, wanted=filters)
    given = None if region_names is None else _given_names(region_names)

    def build(keep_read: Keep | None = None, keep: Keep | None = None) -> Cohort:
        runs, columns, known = _read_runs(
            files, tree, atlas, given, keep_read, keep_missing=keep_missing
        )
        about: dict[str, Any] = {
            "dropped": _merge_dropped(columns),
            "atlas": known.name if known else None,
            "participants": read_participants(tree.folder, files[0].root),
        }
        if keep_missing:
            regions = _all_regions(columns, known)
            filled = (_with_gaps(run, tuple(regions["name"])) for run in runs)
            cohort = Cohort(
                runs=tuple(map(keep, filled) if keep else filled), regions=regions, **about
            )
        else:
            cohort = Cohort.from_runs(runs, regions=columns[0].regions, keep=keep, **about)
        _check_same_data(cohort)
        return cohort

    if cache_dir is None:
        return build()
    asked = {"bids_dir": str(tree.folder.resolve()), "atlas": str(atlas), "names": str(given)}
    asked |= {name: str(value) for name, value in filters.items()}
    asked |= {"keep_missing": "True"} if keep_missing else {}
    return cached_cohort(Path(cache_dir), asked=asked, source=_state(files, tree), build=build)


def _state(files: Sequence[SeriesFile], tree: BidsTree) -> dict[str, Any]:
    """Size and time of change of everything that a cohort is made from."""
    sidecars = [path for listed in tree.sidecars.values() for _, _, path in listed]
    tables = [
        place / "participants.tsv" for place in participants_folders(tree.folder, files[0].root)
    ]
    paths = [*(file.path for file in files), *sidecars, *filter(Path.exists, tables)]
    states = {str(path): path.stat() for path in paths}
    return {name: [state.st_size, state.st_mtime_ns] for name, state in states.items()}


def demo_dir() -> Path:
    """Return the folder of the bundled demo data, a BIDS derivative.

    Examples
    --------
    >>> from neuro_pe.bids import demo_dir
    >>> (demo_dir() / "LICENSE.txt").exists()
    True
    """
    return Path(__file__).parent / "demo_data"


def load_demo() -> Cohort:
    """Load the bundled data: 12 HCP subjects at rest, 400 volumes each, 360 Glasser regions.

    Whoever uses them accepts the HCP data use terms in ``demo_dir() / "LICENSE.txt"``; the
    ``README.md`` beside it has the words to acknowledge them with.

    Returns
    -------
    Cohort

    Examples
    --------
    >>> import neuro_pe as npe
    >>> data = npe.load_demo()
    >>> len(data), data[0].values.shape, data.atlas
    (12, (400, 360), 'Glasser2016_360')
    """
    return load_bids(demo_dir(), atlas="Glasser")


@dataclass(frozen=True, kw_only=True, eq=False)
class _Columns:
    """Which columns of a file are which regions."""

    regions: pd.DataFrame
    names: tuple[str, ...]
    positions: np.ndarray
    dropped: dict[str, str]


def _read_runs(
    files: Sequence[SeriesFile],
    tree: BidsTree,
    atlas: str | None,
    given: list[str] | None,
    keep: Keep | None,
    *,
    keep_missing: bool,
) -> tuple[list[RegionTimeSeries], list[_Columns], atlases.Atlas | None]:
    """Read the files one by one, with the columns of each as regions of one atlas."""
    runs: list[RegionTimeSeries] = []
    matched: dict[tuple[str, ...], _Columns] = {}
    known = None
    header: list[str] | None = None  # of the first file; kept of all, they would add up
    times = []
    for file in files:
        table = read_series(file.path)
        if not runs:
            header = table.names
        names = _column_names(table, file.path, given)
        if not runs:
            known = _choose_atlas(atlas, file, names)
        elif table.n_columns != len(next(iter(matched))) and not keep_missing:
            msg = (
                f"{file.path}: {table.n_columns} columns where {files[0].path} has "
                f"{len(next(iter(matched)))}; expected the same regions in every file."
            )
            raise InputError(msg)
        if given is not None and header != table.names:
            msg = (
                f"{file.path}: other column names than {files[0].path}; --region-names needs "
                "the same columns in every file."
            )
            raise InputError(msg)
        if tuple(names) not in matched:
            matched[tuple(names)] = _match(names, known, str(file.path), keep_missing=keep_missing)
        columns = matched[tuple(names)]
        sidecar_tr = tree.repetition_time(file)
        times.append((file.path, sidecar_tr, table.tr))
        run = RegionTimeSeries(
            values=table.values[:, columns.positions],
            regions=columns.names,
            tr=table.tr if sidecar_tr is None else sidecar_tr,
            subject=file.entities["sub"],
            session=file.entities.get("ses"),
            task=file.entities.get("task"),
            run=file.entities.get("run"),
            source=str(file.path),
        )
        runs.append(run if keep is None else keep(run))
    _warn_of_times(times)
    return runs, list(matched.values()), known


def _given_names(region_names: str | os.PathLike[str] | Sequence[str]) -> list[str]:
    if isinstance(region_names, str | os.PathLike):
        return read_names(Path(region_names))
    return [str(name) for name in region_names]


def _column_names(table: SeriesTable, path: Path, given: list[str] | None) -> list[str]:
    if given is None:
        if table.names is not None:
            return table.names
        msg = (
            f"{path}: its {table.n_columns} columns have no names, or only numbers; give the names "
            "in column order with --region-names FILE (one a line), since numbers do not tell "
            "which region is which."
        )
        raise InputError(msg)
    if len(given) != table.n_columns:
        msg = f"{path}: {table.n_columns} columns but {len(given)} names in --region-names."
        raise InputError(msg)
    for number, (mine, theirs) in enumerate(zip(given, table.names or given, strict=True), 1):
        if mine != theirs and theirs in given:
            msg = (
                f"{path}: column {number} is named {theirs!r} in the file and {mine!r} in "
                "--region-names; expected names in the order of the columns."
            )
            raise InputError(msg)
    return given


def _choose_atlas(
    atlas: str | None, file: SeriesFile, names: Sequence[str]
) -> atlases.Atlas | None:
    """Take the atlas asked for, else that of the file name, else the one that fits the names."""
    for label in (atlas, file.atlas):
        if label and (known := atlases.find(label)):
            return known
    known = atlases.recognise(names)
    if known is None:
        label = atlas or file.atlas
        what = f"atlas {label!r} is not known" if label else "no known atlas has these names"
        msg = f"{file.path}: {what}; regions keep the names of the files and have no networks."
        warnings.warn(msg, stacklevel=4)
    return known


def _match(
    names: Sequence[str], known: atlases.Atlas | None, source: str, *, keep_missing: bool
) -> _Columns:
    if known is None:
        regions = pd.DataFrame({"name": list(names)})
        return _Columns(
            regions=regions, names=tuple(names), positions=np.arange(len(names)), dropped={}
        )
    match = known.match(names, source=source).require(source=source)
    dropped = dict.fromkeys(match.unmatched, f"no region of {known.name}")
    if match.unmatched:
        _warn_of_dropped(source, f"columns are no regions of {known.name}", match.unmatched)
    if match.missing and not keep_missing:
        dropped |= dict.fromkeys(match.missing, "not in the data")
        _warn_of_dropped(source, f"regions of {known.name} are not in the data", match.missing)
    positions = match.regions["column"].to_numpy()
    regions = match.regions.drop(columns="column")
    kept = tuple(regions["name"])
    return _Columns(regions=regions, names=kept, positions=positions, dropped=dropped)


def _all_regions(columns: Sequence[_Columns], known: atlases.Atlas | None) -> pd.DataFrame:
    """Table of the regions that any file has, in atlas order where the atlas is known."""
    table = pd.concat([one.regions for one in columns]).drop_duplicates("name")
    if known is not None:
        table = known.regions[known.regions["name"].isin(table["name"])]
    return table.reset_index(drop=True)


def _with_gaps(run: RegionTimeSeries, names: tuple[str, ...]) -> RegionTimeSeries:
    """Return the run with these columns, NaN for those that it lacks."""
    if run.regions == names:
        return run
    table = pd.DataFrame(run.values, columns=list(run.regions)).reindex(columns=list(names))
    return replace(run, values=table.to_numpy(dtype=np.float32), regions=names)


def _warn_of_dropped(source: str, what: str, names: Sequence[str]) -> None:
    more = ", ..." if len(names) > 3 else ""
    msg = f"{source}: {len(names)} {what} and are left out ({', '.join(names[:3])}{more})."
    warnings.warn(msg, stacklevel=5)


def _merge_dropped(columns: Sequence[_Columns]) -> pd.DataFrame:
    reasons: dict[str, str] = {}
    for one in columns:
        reasons = one.dropped | reasons
    return pd.DataFrame({"name": list(reasons), "reason": list(reasons.values())}, dtype=str)


def _warn_of_times(times: Sequence[tuple[Path, float | None, float | None]]) -> None:
    differing = [
        (path, sidecar, header)
        for path, sidecar, header in times
        if sidecar and header and abs(sidecar - header) > 0.01 * sidecar
    ]
    if differing:
        path, sidecar, header = differing[0]
        msg = (
            f"{path}: repetition time {sidecar:g} s in the JSON sidecar, {header:g} s in the file; "
            f"the sidecar's is taken ({len(differing)} files)."
        )
        warnings.warn(msg, stacklevel=4)
    unknown = [path for path, sidecar, header in times if not (sidecar or header)]
    if unknown:
        msg = (
            f"{unknown[0]}: no repetition time known ({len(unknown)} of {len(times)} files), so "
            "windows may last differently long; give RepetitionTime in a JSON sidecar."
        )
        warnings.warn(msg, stacklevel=4)


def _check_same_data(cohort: Cohort) -> None:
    """Refuse two subjects with the same values: one may end up in training, one in the test."""
    first: dict[bytes, RegionTimeSeries] = {}
    for run in cohort:
        head = np.nan_to_num(run.values[:N_COMPARED])
        if not head.any():
            continue
        other = first.setdefault(hashlib.sha256(head.tobytes()).digest(), run)
        if other is run:
            continue
        what = f"{run.source} and {other.source} have the same values"
        if other.subject != run.subject:
            msg = f"{what}, as subjects {other.subject} and {run.subject}; remove one of them."
            raise InputError(msg)
        msg = f"{what}; subject {run.subject} counts twice."
        warnings.warn(msg, stacklevel=3)
