"""The model folder of a Latin Square Task fit."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from neuro_pe.building import INITIAL
from neuro_pe.derivatives import read_table, write_arrays, write_table
from neuro_pe.errors import InputError
from neuro_pe.model_folder import (
    ENCODINGS,
    WEIGHTS,
    check_files,
    partial_path,
    read_settings,
    write_settings,
    write_tensors,
)
from neuro_pe.settings import FitSettings
from neuro_pe.synthetic.lst import LatinSquareFit

__all__ = ["LatinSquareFolder", "read_lst_folder", "write_lst_folder"]

METRICS = "metrics.tsv"
STRUCTURE = "structure.tsv"
ATTENTION = "attention.npz"


@dataclass(frozen=True, kw_only=True, eq=False)
class LatinSquareFolder:
    """A fit as it stands on disk.

    Parameters
    ----------
    path : Path
    settings : FitSettings
    data : dict
        ``task`` (lst), ``size``, ``puzzles`` and ``recipe``.
    metrics : DataFrame
        ``epoch, core_seconds, split, complexity, accuracy, n``.
    structure : DataFrame
        What the encoding is like beside the grid, and how far the weights moved.
    positional_encoding, positional_encoding_change : DataFrame or None, cell x dimension
        What was learned, and learned minus initial, all blocks side by side; None without an
        encoding added to tokens.
    attention : ndarray, shape (block, head, cell, cell)
        Mean over the unlike puzzles.
    """

    path: Path
    settings: FitSettings
    data: dict[str, Any]
    metrics: pd.DataFrame
    structure: pd.DataFrame
    positional_encoding: pd.DataFrame | None
    positional_encoding_change: pd.DataFrame | None
    attention: np.ndarray

    @property
    def size(self) -> int:
        """Rows, columns and symbols of the puzzles."""
        return int(self.data["size"])


def write_lst_folder(
    fit: LatinSquareFit, path: Path, *, data: dict[str, Any], structure: pd.DataFrame
) -> None:
    """Write everything into the partial folder, then give it its name.

    Parameters
    ----------
    fit : LatinSquareFit
    path : Path
        Must not exist yet.
    data : dict
        What the puzzles were; goes to ``settings.json``.
    structure : DataFrame
        From :func:`neuro_pe.synthetic.lst_truth.measure_fit`.
    """
    partial = partial_path(path)
    partial.mkdir(parents=True, exist_ok=True)
    size = fit.network.size
    rows, columns = np.divmod(np.arange(size**2), size)
    cells = [
        f"row_{row + 1}_column_{column + 1}" for row, column in zip(rows, columns, strict=True)
    ]
    write_table(fit.metrics, partial / METRICS)
    write_table(structure, partial / STRUCTURE)
    weights = dict(fit.network.state_dict())
    encoding = fit.positional_encoding
    if encoding is not None and fit.initial is not None:
        weights[INITIAL] = torch.from_numpy(fit.initial)
        dimensions = [f"dimension_{number}" for number in range(encoding.shape[1])]
        for name, vectors in zip(ENCODINGS, (encoding, encoding - fit.initial), strict=True):
            table = pd.DataFrame(vectors, index=pd.Index(cells, name="cell"), columns=dimensions)
            write_table(table, partial / f"{name}.tsv", index=True)
    write_arrays(partial / ATTENTION, attention=fit.attention, cells=np.array(cells))
    write_tensors(weights, {}, partial / WEIGHTS)
    written = [METRICS, STRUCTURE, ATTENTION, WEIGHTS]
    written += [f"{name}.tsv" for name in ENCODINGS if encoding is not None]
    write_settings(partial, fit.settings, data, files=written)
    os.rename(partial, path)
    # Last, so that a fit stopped here has either its checkpoint or its name.
    shutil.rmtree(path / "checkpoint", ignore_errors=True)


def read_lst_folder(path: str | os.PathLike[str]) -> LatinSquareFolder:
    """Read a model folder that ``neuro-pe synthetic lst`` left.

    Parameters
    ----------
    path : path-like

    Raises
    ------
    InputError
        If it is none, or a file is missing or not as it was written.
    """
    path = Path(path)
    settings, data = read_settings(path)
    if data.get("task") != "lst":
        msg = f"{path}: no fit of the Latin Square Task; `neuro-pe synthetic lst` writes them."
        raise InputError(msg)
    files = check_files(path)
    encodings = {
        name: read_table(path / file, index="cell") if (file := f"{name}.tsv") in files else None
        for name in ENCODINGS
    }
    with np.load(path / ATTENTION) as content:
        attention = content["attention"]
    return LatinSquareFolder(
        path=path,
        settings=settings,
        data=data,
        metrics=read_table(path / METRICS).astype({"complexity": str}),
        structure=read_table(path / STRUCTURE),
        attention=attention,
        **encodings,
    )
