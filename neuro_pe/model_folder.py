"""What a fit leaves on disk: the model folder and, while it runs, its checkpoint.

A model folder appears under its name by one rename when everything in it is complete; until
then the fit lives in ``NAME.partial``. Nothing is pickled: tables, JSON and safetensors only.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from neuro_pe import __version__
from neuro_pe._tensor_files import (
    CHECKPOINT,
    read_checkpoint,
    read_tensors,
    write_checkpoint,
    write_tensors,
)
from neuro_pe.derivatives import read_table, write_arrays, write_json, write_table
from neuro_pe.errors import InputError
from neuro_pe.settings import FitSettings

# Reading tables is all that most commands want of a model folder: torch, which takes a second or
# two to import, waits until tensors are read or written.
if TYPE_CHECKING:
    import torch

__all__ = [
    "ModelFolder",
    "add_tables",
    "check_files",
    "find_model_folder",
    "find_model_folders",
    "partial_path",
    "read_checkpoint",
    "read_model_folder",
    "read_settings",
    "read_tensors",
    "write_checkpoint",
    "write_model_folder",
    "write_settings",
    "write_tensors",
]

FORMAT_VERSION = 1
SETTINGS = "settings.json"
WEIGHTS = "model.safetensors"
ATTENTION = "attention.npz"
TABLES = ("subjects", "metrics", "region_errors")
ENCODINGS = ("positional_encoding", "positional_encoding_change")
LABELLED = (*ENCODINGS, "functional_connectivity")


@dataclass(frozen=True, kw_only=True, eq=False)
class ModelFolder:
    """A fit as it stands on disk.

    Parameters
    ----------
    path : Path
    settings : FitSettings
        Every option as resolved.
    data : dict
        What the fit saw: ``atlas``, ``sources``, ``fingerprint``, ``tr`` (s), ``n_subjects``.
    regions : DataFrame
        Regions of the model in order: ``name`` and, where known, ``hemisphere``, ``x``, ``y``,
        ``z`` (MNI, mm) and network columns.
    dropped : DataFrame
        ``name`` and ``reason`` of regions that were left out.
    subjects : DataFrame
        ``subject`` and ``split`` (train, validation or test).
    metrics : DataFrame
        One row an epoch, split and predictor (``metrics.tsv``).
    positional_encoding, positional_encoding_change : DataFrame or None, region x dimension
        What was learned, and learned minus initial; None without an encoding added to tokens.
    functional_connectivity : DataFrame, region x region
        Mean correlation in the training subjects.
    region_errors : DataFrame
        ``region, subject, predictor, mse, r2, n`` on test subjects; empty without any.
    """

    path: Path
    settings: FitSettings
    data: dict[str, Any]
    regions: pd.DataFrame
    dropped: pd.DataFrame
    subjects: pd.DataFrame
    metrics: pd.DataFrame
    positional_encoding: pd.DataFrame | None
    positional_encoding_change: pd.DataFrame | None
    functional_connectivity: pd.DataFrame
    region_errors: pd.DataFrame

    def weights(self) -> dict[str, torch.Tensor]:
        """Read the tensors of ``model.safetensors``.

        Raises
        ------
        InputError
            If the file is damaged.
        """
        return read_tensors(self.path / WEIGHTS)[0]


def partial_path(path: Path) -> Path:
    """Where a fit lives until it is complete."""
    return path.with_name(path.name + ".partial")


def write_model_folder(
    folder: ModelFolder,
    weights: Mapping[str, torch.Tensor],
    *,
    attention: np.ndarray | None = None,
) -> None:
    """Write everything into the partial folder, then give it its name.

    Parameters
    ----------
    folder : ModelFolder
        Its ``path`` must not exist yet.
    weights : mapping of str to Tensor
        The model's state.
    attention : ndarray, shape (layer, head, region, region), or None
        Goes to ``attention.npz``.

    Raises
    ------
    OSError
        If the disk is full or the place cannot be written; the checkpoint stays.
    """
    partial = partial_path(folder.path)
    partial.mkdir(parents=True, exist_ok=True)
    kept = folder.regions.assign(atlas=folder.data.get("atlas"), kept=True, reason=None)
    dropped = folder.dropped.assign(atlas=folder.data.get("atlas"), kept=False)
    regions = pd.concat([kept, dropped], ignore_index=True) if len(dropped) else kept
    tables = {"regions": regions} | {name: getattr(folder, name) for name in (*TABLES, *LABELLED)}
    for leftover in (*partial.glob(".*"), *(partial / f"{name}.tsv" for name in tables)):
        leftover.unlink(missing_ok=True)  # of an earlier try
    for name, table in tables.items():
        if table is not None:
            labelled = name in LABELLED
            table = table.rename_axis("region") if labelled else table
            write_table(table, partial / f"{name}.tsv", index=labelled)
    files = [f"{name}.tsv" for name, table in tables.items() if table is not None]
    if attention is not None:
        names = np.array(folder.regions["name"], dtype=str)
        write_arrays(partial / ATTENTION, attention=attention, regions=names)
        files.append(ATTENTION)
    write_tensors(weights, {}, partial / WEIGHTS)
    write_settings(partial, folder.settings, folder.data, files=[*files, WEIGHTS])
    os.rename(partial, folder.path)
    # Last, so that a fit stopped here has either its checkpoint or its name.
    shutil.rmtree(folder.path / CHECKPOINT.parent, ignore_errors=True)


def write_settings(
    path: Path, settings: FitSettings, data: Mapping[str, Any], *, files: Sequence[str] = ()
) -> None:
    """Write ``settings.json`` into a model folder or its partial folder.

    Parameters
    ----------
    path : Path
    settings : FitSettings
    data : mapping
        What the fit saw.
    files : sequence of str
        Names of the other files, whose checksums go along (see :func:`check_files`).
    """
    content: dict[str, Any] = {
        "format_version": FORMAT_VERSION,
        "neuro_pe_version": __version__,
        "settings": asdict(settings),
        "data": dict(data),
    }
    content["checksums"] = {name: _checksum(path / name) for name in files}
    content["checksums"][SETTINGS] = _own_checksum(content)
    write_json(content, path / SETTINGS)


def _checksum(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _own_checksum(content: Mapping[str, Any]) -> str:
    """Return the checksum of what ``settings.json`` says, however it is spelled."""
    said = json.dumps([content["settings"], content["data"]], sort_keys=True)
    return hashlib.sha256(said.encode()).hexdigest()


def check_files(path: Path) -> set[str]:
    """Refuse a finished model folder with a file that is missing or not as it was written.

    Parameters
    ----------
    path : Path
        Its ``settings.json`` has been read.

    Returns
    -------
    set of str
        Names of the files that were written; others that stand there are not of the fit.

    Raises
    ------
    InputError
        The line says what to delete.
    """
    content = json.loads((path / SETTINGS).read_text(encoding="utf-8"))
    checksums = content.get("checksums")
    if not isinstance(checksums, dict) or WEIGHTS not in checksums:
        msg = f"{path / SETTINGS}: damaged (checksums are missing); {_again(path)}"
        raise InputError(msg)
    for name, checksum in checksums.items():
        file = path / name
        if not file.is_file():
            msg = f"{file}: missing; {_again(path)}"
            raise InputError(msg)
        found = _own_checksum(content) if name == SETTINGS else _checksum(file)
        if found != checksum:
            msg = f"{file}: damaged (not as it was written); {_again(path)}"
            raise InputError(msg)
    return set(checksums)


def add_tables(
    path: Path, tables: Mapping[str, pd.DataFrame], data: Mapping[str, Any] | None = None
) -> None:
    """Add tables to a finished model folder, with their checksums.

    Parameters
    ----------
    path : Path
    tables : mapping of str to DataFrame
        By name of the file.
    data : mapping or None
        Goes to the ``data`` of ``settings.json`` too.

    Raises
    ------
    InputError
        If the folder is damaged.
    """
    settings, known = read_settings(path)
    files = check_files(path) - {SETTINGS}
    for name, table in tables.items():
        write_table(table, path / name)
    write_settings(path, settings, {**known, **(data or {})}, files=sorted({*files, *tables}))


def _again(path: Path) -> str:
    return f"delete {path}, and the command that made it fits it again."


def read_settings(path: Path) -> tuple[FitSettings, dict[str, Any]]:
    """Read ``settings.json`` of a model folder or of its partial folder.

    Raises
    ------
    InputError
        If it is damaged or was written by a newer version.
    """
    file = path / SETTINGS
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        version = int(content["format_version"])
        # A newer version may call everything but the version otherwise.
        known = version <= FORMAT_VERSION
        settings, data = (dict(content[name]) if known else {} for name in ("settings", "data"))
    except (FileNotFoundError, NotADirectoryError):
        msg = f"{path}: no {SETTINGS}; expected a model folder that `neuro-pe train` wrote."
        raise InputError(msg) from None
    except (ValueError, KeyError, TypeError, RecursionError):
        msg = f"{file}: damaged; expected the JSON that `neuro-pe` wrote; {_again(path)}"
        raise InputError(msg) from None
    if not known:
        msg = (
            f"{file}: format version {version}, this neuro_pe {__version__} reads up to "
            f"{FORMAT_VERSION}; update neuro_pe to read it."
        )
        raise InputError(msg)
    try:
        return FitSettings.from_mapping(settings), data
    except InputError as error:
        msg = f"{file}: {error}"
        raise InputError(msg) from None


def read_model_folder(path: str | os.PathLike[str]) -> ModelFolder:
    """Read a model folder; nothing in it can run code.

    Parameters
    ----------
    path : path-like

    Raises
    ------
    InputError
        If it is not a model folder, is incomplete or damaged, or is from a newer version.
    """
    path = Path(path)
    settings, data = read_settings(path)
    if "task" in data:
        msg = f"{path}: a fit of the task {data['task']}; expected one of time series of regions."
        raise InputError(msg)
    files = check_files(path)
    regions = read_table(path / "regions.tsv")
    kept = regions["kept"].astype(bool)
    encodings = {
        name: read_table(path / file, index="region") if (file := f"{name}.tsv") in files else None
        for name in ENCODINGS
    }
    return ModelFolder(
        path=path,
        settings=settings,
        data=data,
        regions=regions[kept].drop(columns=["atlas", "kept", "reason"]).reset_index(drop=True),
        dropped=regions.loc[~kept, ["name", "reason"]].reset_index(drop=True),
        functional_connectivity=read_table(path / "functional_connectivity.tsv", index="region"),
        positional_encoding=encodings["positional_encoding"],
        positional_encoding_change=encodings["positional_encoding_change"],
        **{name: read_table(path / f"{name}.tsv") for name in TABLES},
    )


def find_model_folders(paths: Sequence[str | os.PathLike[str]]) -> list[ModelFolder]:
    """Read model folders, or all model folders inside the given folders.

    Parameters
    ----------
    paths : sequence of path-like
        Model folders, or folders that hold them.

    Returns
    -------
    list of ModelFolder
        In order of their paths, each once.

    Raises
    ------
    InputError
        If a path does not exist or holds no model folder.
    """
    found: dict[Path, Path] = {}
    for path in map(Path, paths):
        if not path.is_dir():
            kind = "a file" if path.exists() else "nothing"
            msg = f"{path}: found {kind}; expected a model folder or a folder that holds some."
            raise InputError(msg)
        if path.suffix == ".partial":
            msg = f"{path}: an unfinished fit; `neuro-pe train ... --resume` finishes it."
            raise InputError(msg)
        if (path / SETTINGS).is_file():
            found.setdefault(path.resolve(), path)
            continue
        inside = sorted(
            file.parent for file in path.glob(f"*/{SETTINGS}") if file.parent.suffix != ".partial"
        )
        if not inside:
            unfinished = " (only unfinished fits: `neuro-pe train ... --resume` goes on)"
            hint = unfinished if list(path.glob(f"*.partial/{SETTINGS}")) else ""
            if deeper := sorted(path.glob(f"*/*/{SETTINGS}")):
                hint = f", but in {deeper[0].parents[1]}, for one: give that"
            msg = f"{path}: no model folder in it{hint}; `neuro-pe train` writes them."
            raise InputError(msg)
        for folder in inside:
            found.setdefault(folder.resolve(), folder)
    return [read_model_folder(path) for path in found.values()]


def find_model_folder(path: str | os.PathLike[str]) -> ModelFolder:
    """Read a model folder, or the only one inside a folder.

    Raises
    ------
    InputError
        As :func:`find_model_folders`, and if there are several; the line lists them.
    """
    folders = find_model_folders([path])
    if len(folders) > 1:
        names = ", ".join(folder.path.name for folder in folders)
        msg = f"{path}: holds {len(folders)} models ({names}); give the folder of one of them."
        raise InputError(msg)
    return folders[0]
