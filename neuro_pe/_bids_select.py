"""Choosing one file a run among the region time series of a folder."""

import warnings
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from neuro_pe import atlases
from neuro_pe._bids_files import BidsTree, SeriesFile, normalize_entity
from neuro_pe.errors import InputError

__all__ = ["Wanted", "select_files"]

Wanted = str | int | Sequence[str | int] | None

# Entities that say which recording it is; all others say how it was derived.
RECORDING = ("sub", "ses", "task", "acq", "ce", "dir", "run")
# Filters: option of the command line and entity.
OPTIONS = {
    "subjects": "sub",
    "task": "task",
    "session": "ses",
    "run": "run",
    "space": "space",
    "desc": "desc",
}
MAX_LISTED = 12


def select_files(
    tree: BidsTree, *, atlas: str | None, wanted: Mapping[str, Wanted]
) -> list[SeriesFile]:
    """Choose the files to read, one a run, all of one derivative, atlas and space.

    Parameters
    ----------
    tree : BidsTree
    atlas : str or None
        Atlas asked for.
    wanted : mapping
        Option (``subjects``, ``task``, ``session``, ``run``, ``space``, ``desc``) to a value, a
        list of values, or None for all. The value ``none`` stands for names without the entity.

    Raises
    ------
    InputError
        If nothing is found, or there is more than one way to choose.
    """
    if not tree.series:
        raise InputError(_nothing_found(tree))
    if "gzipped" in tree.others:
        msg = f"{tree.others['gzipped']}: gzipped tables are not read; unpack them (gunzip)."
        warnings.warn(msg, stacklevel=3)
    files = _apply_filters(tree, wanted)
    if atlas is not None:
        files = _of_atlas(files, atlas, tree)
    _require_one_derivative(files, tree)
    if atlas is None:
        _require_one_atlas(files, tree)
    if wanted.get("space") is None:
        _require_one_space(files, tree)
    files = _without_concatenations(files)
    files = _one_file_a_run(files, tree)
    _require_fetched(files)
    tasks = {_value(file, "task") for file in files}
    if wanted.get("task") is None and len(tasks) > 1:
        msg = f"{tree.folder}: runs of {len(tasks)} tasks are taken together ({_names(tasks)}); "
        warnings.warn(f"{msg}choose with --task.", stacklevel=3)
    return files


def _nothing_found(tree: BidsTree) -> str:
    others = tree.others
    if tree.is_empty:
        return f"{tree.folder}: the folder is empty; expected a BIDS derivative, e.g. of XCP-D."
    if "gzipped" in others:
        return f"{others['gzipped']}: gzipped tables are not read; unpack them (gunzip)."
    if "preprocessed" in others:
        return (
            f"{tree.folder}: preprocessed images as fMRIPrep writes them (first: "
            f"{others['preprocessed'].name}) but no region time series; parcellate them, "
            "e.g. with XCP-D, and give that derivative folder."
        )
    if "raw" in others:
        return (
            f"{tree.folder}: this looks like raw BIDS (first: {others['raw'].name}) without region "
            "time series; run fMRIPrep and XCP-D, and give the XCP-D derivative folder."
        )
    if "unnamed" in others:
        return (
            f"{tree.folder}: time series without BIDS names (first: {others['unnamed'].name}); "
            "expected names like sub-01_task-rest_atlas-Glasser_timeseries.tsv."
        )
    return (
        f"{tree.folder}: no region time series found; expected files like "
        "sub-01_task-rest_atlas-Glasser_timeseries.tsv or .ptseries.nii."
    )


def _apply_filters(tree: BidsTree, wanted: Mapping[str, Wanted]) -> list[SeriesFile]:
    files = tree.series
    asked = {}
    for option, values in wanted.items():
        if values is None:
            continue
        key = OPTIONS[option]
        listed = [values] if isinstance(values, str | int) else values
        accepted = {normalize_entity(key, str(value)) for value in listed}
        there = {_value(file, key) for file in tree.series}
        if unknown := sorted(accepted - there):
            msg = (
                f"{tree.folder}: {option} {_names(unknown)} not found; found {option} "
                f"{_names(there)}."
            )
            raise InputError(msg)
        files = [file for file in files if _value(file, key) in accepted]
        asked[option] = _names(accepted)
    if not files:
        filters = ", ".join(f"{option} {values}" for option, values in asked.items())
        msg = f"{tree.folder}: no region time series with {filters} together; {_found(tree)}."
        raise InputError(msg)
    return files


def _of_atlas(files: list[SeriesFile], atlas: str, tree: BidsTree) -> list[SeriesFile]:
    """Keep the files of an atlas: by label as it stands, else by what the label means."""
    labels = {file.atlas for file in files if file.atlas}
    known = atlases.find(atlas)
    matching = {label for label in labels if _plain(label) == _plain(atlas)} or {
        label
        for label in labels
        if known and (other := atlases.find(label)) and other.name == known.name
    }
    if len(matching) > 1:
        msg = (
            f"{tree.folder}: {atlas!r} can mean each of {_names(matching)}; name one of them "
            f"with --atlas, e.g. --atlas {min(matching)}."
        )
        raise InputError(msg)
    # Names without an atlas may hold any; the region names will tell.
    kept = [file for file in files if (file.atlas in matching if matching else not file.atlas)]
    if not kept:
        msg = f"{tree.folder}: no region time series of atlas {atlas!r}; {_found(tree)}."
        raise InputError(msg)
    return kept


def _require_one_derivative(files: list[SeriesFile], tree: BidsTree) -> None:
    roots = sorted({str(file.root) for file in files})
    if len(roots) > 1:
        msg = (
            f"{tree.folder}: region time series in {len(roots)} derivative folders "
            f"({', '.join(roots[:MAX_LISTED])}); give one of them as --bids-dir."
        )
        raise InputError(msg)


def _require_one_atlas(files: list[SeriesFile], tree: BidsTree) -> None:
    labels = {file.atlas or "none" for file in files}
    if len(labels) > 1:
        first = min(labels - {"none"})
        msg = (
            f"{tree.folder}: found {len(labels)} atlases ({_names(labels)}); choose one: "
            f"neuro-pe train --bids-dir {tree.folder} --atlas {first}"
        )
        raise InputError(msg)


def _require_one_space(files: list[SeriesFile], tree: BidsTree) -> None:
    spaces = {file.entities["space"] for file in files if "space" in file.entities}
    if len(spaces) > 1:
        atlas = f" --atlas {files[0].atlas}" if files[0].atlas else ""
        msg = (
            f"{tree.folder}: found {len(spaces)} spaces ({_names(spaces)}); choose one: "
            f"neuro-pe train --bids-dir {tree.folder}{atlas} --space {min(spaces)}"
        )
        raise InputError(msg)


def _without_concatenations(files: list[SeriesFile]) -> list[SeriesFile]:
    """Leave out the files that XCP-D made by joining runs which are there themselves."""
    joined = set()
    for file in files:
        for keys in ({"run"}, {"dir"}, {"run", "dir"}):
            if keys <= file.entities.keys():
                joined.add(_recording(file, without=keys))
    kept = [file for file in files if "run" in file.entities or _recording(file) not in joined]
    if left := len(files) - len(kept):
        example = next(file for file in files if file not in kept)
        msg = (
            f"{left} files without run- (first: {example.path.name}) left out: they join runs "
            "that are there themselves."
        )
        warnings.warn(msg, stacklevel=4)
    return kept


def _one_file_a_run(files: list[SeriesFile], tree: BidsTree) -> list[SeriesFile]:
    by_run = defaultdict(list)
    for file in files:
        by_run[_recording(file)].append(file)
    chosen = []
    clashes = []
    for same in by_run.values():
        # The same series as table and as CIFTI differ in the extension and often in `den-`.
        forms = {file.is_cifti: file for file in same}
        if len(forms) < len(same) or len({_derivation(file) for file in same}) > 1:
            clashes.append(same)
            continue
        # CIFTI is read faster and states its TR, but often only the tables are downloaded.
        ranked = sorted(same, key=lambda file: (file.is_fetched, file.is_cifti))
        chosen.append(ranked[-1])
    if clashes:
        raise InputError(_clash(clashes, tree))
    return chosen


def _clash(clashes: list[list[SeriesFile]], tree: BidsTree) -> str:
    first = clashes[0]
    names = " and ".join(file.path.name for file in first[:2])
    descs = {_value(file, "desc") for same in clashes for file in same}
    text = f"{tree.folder}: {len(clashes)} runs are there more than once (first: {names}); "
    if len({_value(file, "desc") for file in first}) > 1:
        return (
            f"{text}found desc {_names(descs)}; choose one: neuro-pe train --bids-dir "
            f"{tree.folder} --desc {min(descs - {'none'})}"
        )
    return f"{text}expected one file a run, so move the others out of the folder."


def _require_fetched(files: list[SeriesFile]) -> None:
    absent = [file for file in files if not file.is_fetched]
    if absent:
        msg = (
            f"{absent[0].path}: not downloaded, as {len(absent)} of {len(files)} files here "
            f"(dangling links); fetch them, e.g. with `datalad get {absent[0].root}`."
        )
        raise InputError(msg)


def _recording(file: SeriesFile, *, without: Iterable[str] = ()) -> tuple[str | None, ...]:
    return tuple(file.entities.get(key) if key not in without else None for key in RECORDING)


def _derivation(file: SeriesFile) -> frozenset[tuple[str, str]]:
    ignored = {*RECORDING, "den"}
    return frozenset(item for item in file.entities.items() if item[0] not in ignored)


def _value(file: SeriesFile, key: str) -> str:
    return file.entities.get(key, "none")


def _plain(name: str) -> str:
    return "".join(filter(str.isalnum, name.casefold()))


def _found(tree: BidsTree) -> str:
    parts = [f"atlases {_names({file.atlas or 'none' for file in tree.series})}"]
    for option in ("task", "session", "run", "space"):
        there = {_value(file, OPTIONS[option]) for file in tree.series}
        if there != {"none"}:
            parts.append(f"{option} {_names(there)}")
    return "found " + "; ".join(parts)


def _names(values: Iterable[str]) -> str:
    listed = sorted(values)
    more = f", ... ({len(listed)} in all)" if len(listed) > MAX_LISTED else ""
    return ", ".join(listed[:MAX_LISTED]) + more
