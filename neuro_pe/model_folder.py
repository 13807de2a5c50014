"""What a fit leaves on disk: the model folder and, while it runs, its checkpoint.

A model folder appears under its name by one rename when everything in it is complete; until
then the fit lives in ``NAME.partial``. Nothing is pickled: tables, JSON and safetensors only.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from safetensors import SafetensorError

from neuro_pe import __version__
from neuro_pe.derivatives import atomic_path, read_table, write_arrays, write_json, write_table
from neuro_pe.errors import InputError
from neuro_pe.settings import WITH_VECTORS, FitSettings

# Reading tables is all that most commands want of a model folder: torch, which takes a second or
# two to import, waits until tensors are read or written.
if TYPE_CHECKING:
    import torch

__all__ = [
    "ModelFolder",
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
CHECKPOINT = Path("checkpoint") / "state.safetensors"


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
    write_table(regions, partial / "regions.tsv")
    write_table(folder.subjects, partial / "subjects.tsv")
    write_table(folder.metrics, partial / "metrics.tsv")
    write_table(folder.region_errors, partial / "region_errors.tsv")
    for leftover in partial.glob(".*"):  # of a write that was killed
        leftover.unlink()
    for name in ("positional_encoding", "positional_encoding_change", "functional_connectivity"):
        table = getattr(folder, name)
        if table is None:
            (partial / f"{name}.tsv").unlink(missing_ok=True)
        else:
            write_table(table.rename_axis("region"), partial / f"{name}.tsv", index=True)
    if attention is not None:
        names = np.array(folder.regions["name"], dtype=str)
        write_arrays(partial / ATTENTION, attention=attention, regions=names)
    write_tensors(weights, {}, partial / WEIGHTS)
    write_settings(partial, folder.settings, folder.data)
    os.rename(partial, folder.path)
    # Last, so that a fit stopped here has either its checkpoint or its name.
    shutil.rmtree(folder.path / CHECKPOINT.parent, ignore_errors=True)


def write_settings(path: Path, settings: FitSettings, data: Mapping[str, Any]) -> None:
    """Write ``settings.json`` into a model folder or its partial folder."""
    content = {
        "format_version": FORMAT_VERSION,
        "neuro_pe_version": __version__,
        "settings": asdict(settings),
        "data": dict(data),
    }
    write_json(content, path / SETTINGS)


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
        msg = f"{file}: damaged; expected the JSON that `neuro-pe train` wrote. Fit it again."
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
    if not (path / WEIGHTS).is_file():
        msg = f"{path}: {WEIGHTS} is missing; the model folder is incomplete. Fit it again."
        raise InputError(msg)
    try:
        regions = read_table(path / "regions.tsv")
        kept = regions["kept"].astype(bool)
        tables = {
            name: read_table(path / f"{name}.tsv")
            for name in ("subjects", "metrics", "region_errors")
        }
        kept_regions = regions[kept].drop(columns=["atlas", "kept", "reason"])
        dropped = regions.loc[~kept, ["name", "reason"]]
        square = read_table(path / "functional_connectivity.tsv", index="region")
        has_encoding = (
            settings.encoding in WITH_VECTORS or (path / "positional_encoding.tsv").exists()
        )
        encodings = {
            name: read_table(path / f"{name}.tsv", index="region") if has_encoding else None
            for name in ("positional_encoding", "positional_encoding_change")
        }
    except FileNotFoundError as error:
        msg = f"{path}: {Path(error.filename).name} is missing; the model folder is incomplete."
        raise InputError(msg) from None
    except (ValueError, KeyError) as error:
        msg = f"{path}: a table is damaged ({' '.join(str(error).split())}); fit it again."
        raise InputError(msg) from None
    names = list(kept_regions["name"])
    labels = {name: table.index for name, table in encodings.items() if table is not None}
    for name, found in [
        *labels.items(),
        ("functional_connectivity", square.index),
        ("functional_connectivity", square.columns),
    ]:
        if list(found) != names:
            msg = (
                f"{path / name}.tsv: its regions are not those of regions.tsv in the same order; "
                "fit it again."
            )
            raise InputError(msg)
    return ModelFolder(
        path=path,
        settings=settings,
        data=data,
        regions=kept_regions.reset_index(drop=True),
        dropped=dropped.reset_index(drop=True),
        positional_encoding=encodings["positional_encoding"],
        positional_encoding_change=encodings["positional_encoding_change"],
        functional_connectivity=square,
        **tables,
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


def write_checkpoint(
    path: Path, tensors: Mapping[str, torch.Tensor], state: Mapping[str, Any]
) -> None:
    """Replace the checkpoint of an unfinished fit at once.

    Parameters
    ----------
    path : Path
        The partial folder.
    tensors : mapping of str to Tensor
    state : mapping
        What JSON can hold (epoch, history, ...).
    """
    file = path / CHECKPOINT
    file.parent.mkdir(parents=True, exist_ok=True)
    write_tensors(tensors, state, file)


def read_checkpoint(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, Any]] | None:
    """Read the checkpoint of a partial folder; None when there is none yet."""
    file = path / CHECKPOINT
    return read_tensors(file) if file.is_file() else None


def write_tensors(
    tensors: Mapping[str, torch.Tensor], state: Mapping[str, Any], file: Path
) -> None:
    """Write tensors and, in the header, what JSON can hold."""
    from safetensors.torch import save as save_tensors

    # A view that shares its memory with another tensor cannot be saved; a copy can.
    arrays = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
    content = save_tensors(arrays, metadata={"state": json.dumps(state)})
    with atomic_path(file) as temporary:
        temporary.write_bytes(content)


def read_tensors(file: Path) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Read what :func:`write_tensors` wrote; refuse a file that is missing or damaged."""
    from safetensors.torch import load as load_tensors

    try:
        content = file.read_bytes()
        tensors = load_tensors(content)
        # The header: its length in 8 bytes, then JSON.
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
        state = json.loads(header["__metadata__"]["state"])
    except FileNotFoundError:
        msg = f"{file}: missing; the model folder is incomplete."
        raise InputError(msg) from None
    except (SafetensorError, ValueError, KeyError, TypeError):
        msg = (
            f"{file}: damaged; it cannot be read as safetensors. Delete {_fit_folder(file)} and "
            "fit it again."
        )
        raise InputError(msg) from None
    return tensors, state


def _fit_folder(file: Path) -> Path:
    """Return the folder of the fit that a file of tensors belongs to."""
    return file.parent.parent if file.parts[-2:] == CHECKPOINT.parts else file.parent
