"""What a user hands to a model: runs in any usual form, matched with its regions by name."""

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from neuro_pe.errors import InputError
from neuro_pe.model_folder import ModelFolder
from neuro_pe.timeseries import Cohort, RegionTimeSeries

__all__ = [
    "as_cohort",
    "as_runs",
    "check_numbers",
    "check_same_atlas",
    "check_times",
    "with_regions_of",
]

# Regions of one name that are further apart are different parcels.
MAX_DISTANCE = 10.0  # mm


def as_runs(X: Any) -> list[RegionTimeSeries]:
    """Return the runs of a cohort, or of a list of arrays, one a subject; nothing is left out.

    Raises
    ------
    InputError
        If it is neither.
    """
    if isinstance(X, Cohort):
        return list(X.runs)
    if not isinstance(X, (list, tuple, np.ndarray)) or (isinstance(X, np.ndarray) and X.ndim != 3):
        shape = getattr(X, "shape", None)
        found = f"an array of shape {shape}" if shape is not None else type(X).__name__
        msg = (
            f"X: found {found}; expected a list of (time, region) arrays, one a subject, a "
            "(subject, time, region) array, or what load_bids returns."
        )
        raise InputError(msg)
    runs = []
    for number, values in enumerate(X):
        if isinstance(values, RegionTimeSeries):
            runs.append(values)
            continue
        array = np.asarray(values)
        names = (
            [str(name) for name in values.columns]
            if isinstance(values, pd.DataFrame)
            else [str(column) for column in range(array.shape[-1] if array.ndim else 0)]
        )
        runs.append(RegionTimeSeries(values=array, regions=tuple(names), subject=str(number)))
    return runs


def as_cohort(X: Any) -> Cohort:
    """Return a cohort as it is, or one of the runs of a list; see :func:`as_runs`."""
    return X if isinstance(X, Cohort) else Cohort.from_runs(as_runs(X))


def with_regions_of(folder: ModelFolder, cohort: Cohort) -> Cohort:
    """Return a cohort with the regions of a model, in its order.

    Parameters
    ----------
    folder : ModelFolder
    cohort : Cohort
        May have more regions, in any order.

    Raises
    ------
    InputError
        If a region has no signal, or regions of the same name are other parcels.
    """
    names = [str(name) for name in folder.regions["name"]]
    if cohort.atlas is None:
        check_numbers(folder, cohort[0], len(cohort.region_names) + len(cohort.dropped))
    missing = [name for name in names if name not in set(cohort.region_names)]
    if missing:
        msg = (
            f"{cohort[0].label}: has no signal for {len(missing)} of the model's "
            f"{len(names)} regions (first: {missing[0]}); all are needed, by name "
            "(`impute` fills some)."
        )
        raise InputError(msg)
    check_same_atlas(folder, cohort)
    check_times(folder, cohort)
    runs = tuple(run.select(names) for run in cohort)
    return replace(cohort, runs=runs, regions=folder.regions)


def check_numbers(folder: ModelFolder, run: RegionTimeSeries, n_columns: int) -> None:
    """Refuse a wrong number of columns where all that names a region is its number."""
    expected = len(folder.regions) + len(folder.dropped)
    if n_columns != expected and all(str(name).isdigit() for name in folder.regions["name"]):
        msg = (
            f"{run.label}: found {n_columns} columns; expected the {expected} regions of the data "
            "that the model was fitted on."
        )
        raise InputError(msg)


def check_same_atlas(folder: ModelFolder, cohort: Cohort) -> None:
    """Refuse regions that have a name of the model's but lie elsewhere.

    ``LH_Vis_2`` is one parcel in Schaefer-100 and another in Schaefer-200.
    """
    axes = ["x", "y", "z"]
    if not all({"name", *axes} <= set(table) for table in (folder.regions, cohort.regions)):
        return
    mine, theirs = (table.set_index("name")[axes] for table in (folder.regions, cohort.regions))
    shared = mine.index.intersection(theirs.index)
    apart = np.linalg.norm((mine.loc[shared] - theirs.loc[shared]).astype(float), axis=1)
    if (apart > MAX_DISTANCE).any():
        worst = int(np.nanargmax(apart))
        msg = (
            f"{cohort[0].label}: its region {shared[worst]} ({cohort.atlas}) is {apart[worst]:.0f} "
            f"mm from the model's ({folder.data.get('atlas')}); expected time series of the atlas "
            "that the model was fitted on."
        )
        raise InputError(msg)


def check_times(folder: ModelFolder, runs: Sequence[RegionTimeSeries]) -> None:
    """Warn of runs whose repetition time is not that of the data that the model was fitted on."""
    tr = folder.data.get("tr")
    others = [run for run in runs if tr and run.tr and abs(run.tr - tr) > 0.01 * tr]
    if others:
        msg = (
            f"{others[0].label}: repetition time {others[0].tr:g} s where the model was fitted at "
            f"{tr:g} s, so its windows last differently ({len(others)} of {len(runs)} runs)."
        )
        warnings.warn(msg, stacklevel=4)
