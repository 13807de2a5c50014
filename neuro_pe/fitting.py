"""One fit: a training cohort and settings in, a trained network with its labels out."""

import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from neuro_pe.baselines import Zero
from neuro_pe.building import INITIAL, new_network
from neuro_pe.errors import InputError
from neuro_pe.model_folder import ModelFolder
from neuro_pe.reconstruction import EvaluationSet, MaskedRegionTask
from neuro_pe.settings import FitSettings
from neuro_pe.timeseries import Cohort
from neuro_pe.training import History, faster_precision, train
from neuro_pe.transformer import MaskedRegionTransformer
from neuro_pe.windows import WindowSource

__all__ = [
    "Fit",
    "describe_data",
    "fit_network",
    "history_metrics",
    "resolve_machine",
    "resolve_settings",
    "warn_of_few_steps",
]

METRICS = ["epoch", "seconds", "split", "predictor", "mask_ratio", "mse", "r2", "n"]

DEFAULT_STEPS = 2500
FEW_STEPS = 10


@dataclass(frozen=True, kw_only=True, eq=False)
class Fit:
    """A trained network and what its numbers belong to.

    Parameters
    ----------
    settings : FitSettings
        Every option as resolved.
    network : MaskedRegionTransformer
    initial : ndarray, shape (region, width), or None
        The positional encoding at the start; None if nothing is added to the tokens.
    history : History
    training : Cohort
    """

    settings: FitSettings
    network: MaskedRegionTransformer
    initial: np.ndarray | None
    history: History
    training: Cohort

    @property
    def positional_encoding(self) -> pd.DataFrame | None:
        """Encoding of every region, shape (region, width); None when there is none."""
        return _encoding_table(self.network, self.training.region_names)

    @property
    def positional_encoding_change(self) -> pd.DataFrame | None:
        """Learned minus initial encoding, shape (region, width); None when there is none."""
        table = self.positional_encoding
        return None if table is None else table - self.initial

    def to_model_folder(
        self,
        path: Path,
        *,
        data: dict[str, Any],
        subjects: pd.DataFrame,
        metrics: pd.DataFrame,
        region_errors: pd.DataFrame,
    ) -> tuple[ModelFolder, dict[str, torch.Tensor]]:
        """Return what :func:`neuro_pe.model_folder.write_model_folder` writes."""
        weights = dict(self.network.state_dict())
        if self.initial is not None:
            weights[INITIAL] = torch.from_numpy(self.initial)
        folder = ModelFolder(
            path=path,
            settings=self.settings,
            data=data,
            regions=self.training.regions,
            dropped=self.training.dropped,
            subjects=subjects,
            metrics=metrics,
            positional_encoding=self.positional_encoding,
            positional_encoding_change=self.positional_encoding_change,
            functional_connectivity=self.training.functional_connectivity(),
            region_errors=region_errors,
        )
        return folder, weights


def resolve_settings(settings: FitSettings, training: WindowSource) -> FitSettings:
    """Fill in what data and machine decide: number of epochs, stride, device and precision.

    Raises
    ------
    InputError
        If the device is not there.
    """
    steps = -(-len(training.evaluation_windows()) // settings.batch_size)
    epochs = settings.epochs or max(1, round(DEFAULT_STEPS / steps))
    stride = settings.stride or settings.window
    return replace(resolve_machine(settings), epochs=epochs, stride=stride)


def resolve_machine(settings: FitSettings) -> FitSettings:
    """Fill in what the machine decides: device and precision.

    Raises
    ------
    InputError
        If the device is not there.
    """
    device = settings.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.mps.is_available()}
    if not there[device]:
        msg = f"--device: found {device!r}, which this machine or this PyTorch lacks; use 'cpu'."
        raise InputError(msg)
    precision = settings.precision
    if precision == "auto":
        precision = faster_precision(device)
    return replace(settings, device=device, precision=precision)


def warn_of_few_steps(n_steps: int) -> None:
    """Warn of a training in which nothing can be learned."""
    if n_steps < FEW_STEPS:
        plural = "s" if n_steps > 1 else ""
        msg = f"only {n_steps} training step{plural}: hardly anything is learned; raise --epochs."
        warnings.warn(msg, stacklevel=3)


def fit_network(
    training: WindowSource,
    validation: EvaluationSet | None,
    settings: FitSettings,
    *,
    folder: Path | None = None,
    progress: Callable[[dict[str, Any]], None] | None = None,
) -> Fit:
    """Train one network.

    Parameters
    ----------
    training : WindowSource
    validation : EvaluationSet or None
        Of other subjects; without it nothing stops the fit early.
    settings : FitSettings
    folder : Path or None
        Where the checkpoint is kept, to be gone on from.
    progress : callable or None
        Called with ``epoch, seconds, train, validation`` after every epoch.

    Raises
    ------
    InputError
        As :func:`new_network` and :func:`resolve_settings`.
    """
    cohort = training.cohort
    settings = resolve_settings(settings, training)
    n_batches = -(-len(training.evaluation_windows()) // settings.batch_size)
    warn_of_few_steps((settings.epochs or 0) * n_batches)
    network = new_network(settings, cohort)
    initial = _vectors(network)
    device = torch.device(settings.device)
    network.to(device)
    history = train(
        network,
        MaskedRegionTask(training, validation, settings, device),
        settings,
        folder=folder,
        progress=progress,
    )
    network.to("cpu")
    return Fit(
        settings=settings, network=network, initial=initial, history=history, training=cohort
    )


def history_metrics(
    history: History, settings: FitSettings, validation: EvaluationSet | None
) -> pd.DataFrame:
    """Return the rows of ``metrics.tsv`` that training left: the model, epoch by epoch.

    Parameters
    ----------
    history : History
    settings : FitSettings
    validation : EvaluationSet or None
        The one of the fit.
    """
    rows: list[dict[str, Any]] = []
    if validation is not None:
        _, squares, count = validation.errors(Zero()).sum(axis=(1, 2))
    for row in history.rows:
        shared = {"epoch": row["epoch"], "seconds": row["seconds"], "predictor": "model"}
        training = {"split": "train", "mask_ratio": settings.mask_ratio, "mse": row["train"]}
        rows.append({**shared, **training})
        if validation is not None:
            error = row["validation"]
            held_out = {
                "split": "validation",
                "mask_ratio": settings.test_mask_ratio,
                "mse": error,
                "r2": 1 - error * count / squares,
                "n": int(count),
            }
            rows.append({**shared, **held_out})
    return pd.DataFrame(rows, columns=METRICS).astype({"epoch": "Int64", "n": "Int64"})


def describe_data(cohort: Cohort) -> dict[str, Any]:
    """Return what identifies the data of a fit, for ``settings.json``.

    Returns
    -------
    dict
        ``atlas``, ``sources`` (the folder of all files), ``tr`` in seconds, ``n_subjects``,
        ``n_runs`` and ``fingerprint``, a checksum of the values.
    """
    files = sorted({run.source for run in cohort if run.source})
    try:
        sources = [os.path.commonpath(files)] if files else ["arrays in memory"]
    except ValueError:  # descriptions among paths, or other drives
        sources = files
    return {
        "atlas": cohort.atlas,
        "sources": sources,
        "tr": cohort.tr,
        "n_subjects": len(cohort.subjects),
        "n_runs": len(cohort),
        "fingerprint": cohort.fingerprint(),
    }


def _vectors(network: MaskedRegionTransformer) -> np.ndarray | None:
    """Return a copy of the positional encoding, shape (region, dimension), or None."""
    network.eval()
    vectors = network.positional_encoding()
    return None if vectors is None else vectors.detach().numpy().copy()


def _encoding_table(network: MaskedRegionTransformer, names: list[str]) -> pd.DataFrame | None:
    vectors = _vectors(network)
    if vectors is None:
        return None
    columns = [f"dimension_{number}" for number in range(vectors.shape[1])]
    return pd.DataFrame(vectors, index=pd.Index(names, name="region"), columns=columns)
