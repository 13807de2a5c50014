"""Masked-region transformers with interpretable positional encodings for parcellated fMRI.

Public names are imported when first used, so ``import neuro_pe`` stays fast.
"""

import importlib
from typing import Any

__version__ = "0.1.0"

_PUBLIC = {
    "Cohort": "neuro_pe.timeseries",
    "FitSettings": "neuro_pe.settings",
    "InputError": "neuro_pe.errors",
    "MaskedRegionModel": "neuro_pe.estimator",
    "RegionTimeSeries": "neuro_pe.timeseries",
    "compare_networks": "neuro_pe.comparison",
    "from_pretrained": "neuro_pe.estimator",
    "impute_bids": "neuro_pe.imputed_derivative",
    "load_bids": "neuro_pe.bids",
    "load_demo": "neuro_pe.bids",
    "sweep": "neuro_pe.sweeps",
    "train_models": "neuro_pe.experiment",
}

__all__ = ["__version__", "atlases", *sorted(_PUBLIC)]


def __getattr__(name: str) -> Any:
    if name == "atlases":
        return importlib.import_module("neuro_pe.atlases")
    if name in _PUBLIC:
        return getattr(importlib.import_module(_PUBLIC[name]), name)
    msg = f"module 'neuro_pe' has no attribute {name!r}"
    raise AttributeError(msg)


def __dir__() -> list[str]:
    return sorted(__all__)
