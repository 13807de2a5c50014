"""Files of tensors: the weights of a model folder, and the checkpoint of an unfinished fit."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError

from neuro_pe.derivatives import atomic_path
from neuro_pe.errors import InputError

# torch, which takes a second or two to import, waits until tensors are read or written.
if TYPE_CHECKING:
    import torch

__all__ = ["CHECKPOINT", "read_checkpoint", "read_tensors", "write_checkpoint", "write_tensors"]

CHECKPOINT = Path("checkpoint") / "state.safetensors"


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
