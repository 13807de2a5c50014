"""The model folder of a Latin Square Task fit."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from neuro_pe.building import INITIAL, weight_change
from neuro_pe.derivatives import read_table, write_arrays, write_table
from neuro_pe.errors import InputError
from neuro_pe.model_folder import (
    partial_path,
    read_settings,
    read_tensors,
    write_settings,
    write_tensors,
)
from neuro_pe.settings import FitSettings
from neuro_pe.synthetic.lst import LatinSquareFit, new_lst_network

__all__ = ["LatinSquareFolder", "read_lst_folder", "write_lst_folder"]

ENCODINGS = ("positional_encoding", "positional_encoding_change")
FILES = {"metrics": "metrics.tsv", "attention": "attention.npz", "weights": "model.safetensors"}


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
    positional_encoding: pd.DataFrame | None
    positional_encoding_change: pd.DataFrame | None
    attention: np.ndarray

    @property
    def size(self) -> int:
        """Rows, columns and symbols of the puzzles."""
        return int(self.data["size"])

    def relative_weight_change(self) -> pd.DataFrame:
        """Measure how far training moved the weights.

        Returns
        -------
        DataFrame
            ``part, start_norm, change``, as :func:`neuro_pe.building.relative_weight_change`.
        """
        start = new_lst_network(self.settings, size=self.size)
        return weight_change(start, read_tensors(self.path / FILES["weights"])[0])


def write_lst_folder(fit: LatinSquareFit, path: Path, *, data: dict[str, Any]) -> None:
    """Write everything into the partial folder, then give it its name.

    Parameters
    ----------
    fit : LatinSquareFit
    path : Path
        Must not exist yet.
    data : dict
        What the puzzles were; goes to ``settings.json``.
    """
    partial = partial_path(path)
    partial.mkdir(parents=True, exist_ok=True)
    size = fit.network.size
    rows, columns = np.divmod(np.arange(size**2), size)
    cells = [
        f"row_{row + 1}_column_{column + 1}" for row, column in zip(rows, columns, strict=True)
    ]
    write_table(fit.metrics, partial / FILES["metrics"])
    weights = dict(fit.network.state_dict())
    encoding = fit.positional_encoding
    if encoding is not None and fit.initial is not None:
        weights[INITIAL] = torch.from_numpy(fit.initial)
        dimensions = [f"dimension_{number}" for number in range(encoding.shape[1])]
        for name, vectors in zip(ENCODINGS, (encoding, encoding - fit.initial), strict=True):
            table = pd.DataFrame(vectors, index=pd.Index(cells, name="cell"), columns=dimensions)
            write_table(table, partial / f"{name}.tsv", index=True)
    write_arrays(partial / FILES["attention"], attention=fit.attention, cells=np.array(cells))
    write_tensors(weights, {}, partial / FILES["weights"])
    write_settings(partial, fit.settings, data)
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
        If it is none, or is damaged.
    """
    path = Path(path)
    settings, data = read_settings(path)
    if data.get("task") != "lst":
        msg = f"{path}: no fit of the Latin Square Task; `neuro-pe synthetic lst` writes them."
        raise InputError(msg)
    try:
        metrics = read_table(path / FILES["metrics"]).astype({"complexity": str})
        encodings = {
            name: read_table(path / f"{name}.tsv", index="cell")
            if (path / f"{name}.tsv").exists()
            else None
            for name in ENCODINGS
        }
        with np.load(path / FILES["attention"]) as content:
            attention = content["attention"]
    except FileNotFoundError as error:
        msg = f"{path}: {Path(error.filename).name} is missing; the model folder is incomplete."
        raise InputError(msg) from None
    except (ValueError, KeyError) as error:
        msg = f"{path}: a file is damaged ({' '.join(str(error).split())}); fit it again."
        raise InputError(msg) from None
    return LatinSquareFolder(
        path=path, settings=settings, data=data, metrics=metrics, attention=attention, **encodings
    )
