"""Filling in the missing regions of a run, and how well a model predicts hidden regions."""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import torch

from neuro_pe.baselines import RIDGES, GaussianImputer, Imputer
from neuro_pe.errors import InputError
from neuro_pe.model_folder import ModelFolder
from neuro_pe.reconstruction import EvaluationSet, ModelImputer, summarize_errors
from neuro_pe.timeseries import RegionTimeSeries
from neuro_pe.transformer import MaskedRegionTransformer
from neuro_pe.windows import WindowSource

__all__ = [
    "FilledRun",
    "HiddenRegions",
    "fill_run",
    "missing_regions",
    "pooled_errors",
    "region_error_table",
]

WINDOWS_AT_ONCE = 64
# A region that varies by less than this share of its values is constant.
CONSTANT = 1e-6


@dataclass(frozen=True, kw_only=True, eq=False)
class FilledRun:
    """A run with its missing values filled in.

    Parameters
    ----------
    run : RegionTimeSeries
        The columns as they came, then the regions of the model that had none.
    n_filled : dict of str to int
        Number of TRs that were filled in, for each region that lacked some.
    borrowed_scale : tuple of str
        Regions without a value of their own, which have the median mean and standard deviation
        of the run's other regions.
    """

    run: RegionTimeSeries
    n_filled: dict[str, int]
    borrowed_scale: tuple[str, ...]


class HiddenRegions(EvaluationSet):
    """An evaluation in which the same regions are hidden in every window.

    Parameters
    ----------
    source : WindowSource
        Complete runs, so that the truth is known.
    hidden : sequence of str
        Names of the regions to hide.

    Raises
    ------
    InputError
        If a name is no region of the source, or none or all of them are to be hidden.
    """

    def __init__(self, source: WindowSource, hidden: Sequence[str]) -> None:
        names = source.cohort.region_names
        unknown = [name for name in hidden if name not in set(names)]
        is_hidden = np.isin(names, list(hidden))
        if unknown or is_hidden.all() or not is_hidden.any():
            what = f"{unknown[0]!r}" if unknown else f"{is_hidden.sum()} of {len(names)} regions"
            msg = f"hidden: found {what}; expected names of some of the model's regions, not all."
            raise InputError(msg)
        super().__init__(source, mask_ratio=float(is_hidden.mean()), n_masks=1)
        self.visible, self.hidden = (
            torch.from_numpy(np.flatnonzero(chosen))[None] for chosen in (~is_hidden, is_hidden)
        )


def region_error_table(
    held_out: EvaluationSet, folder: ModelFolder, network: MaskedRegionTransformer
) -> pd.DataFrame:
    """Return errors on hidden values by region and subject, beside a linear predictor's.

    That is the same-TR Gaussian imputer of the same training subjects, whose functional
    connectivity the model folder keeps. Its ridge is the best one on these very values, which
    favours it: what a model is said to be better by is not the ridge's fault.

    Parameters
    ----------
    held_out : EvaluationSet
    folder : ModelFolder
    network : MaskedRegionTransformer

    Returns
    -------
    DataFrame
        ``region, subject, predictor, mse, r2, n``, the predictors ``model`` and ``gaussian``;
        regions that were never hidden have no rows.
    """
    gaussian = GaussianImputer.from_covariance(folder.functional_connectivity.to_numpy())
    gaussian.ridge = RIDGES[int(np.argmin(held_out.ridge_errors(gaussian, RIDGES)))]
    predictors: list[Imputer] = [ModelImputer(network), gaussian]
    tables = [
        summarize_errors(
            held_out.errors(predictor),
            subjects=held_out.source.subjects,
            regions=held_out.source.cohort.region_names,
            predictor=predictor.name,
        )
        for predictor in predictors
    ]
    table = pd.concat(tables, ignore_index=True)
    return table[table["n"] > 0].reset_index(drop=True)


def pooled_errors(table: pd.DataFrame, by: str) -> pd.DataFrame:
    """Bring errors together: all hidden values count alike.

    Parameters
    ----------
    table : DataFrame
        ``region, subject, predictor, mse, r2, n`` (``region_errors.tsv``).
    by : {"region", "subject"}

    Returns
    -------
    DataFrame
        ``by, predictor, mse, r2, n, n_subjects``.

    Examples
    --------
    >>> import pandas as pd
    >>> from neuro_pe.imputation import pooled_errors
    >>> table = pd.DataFrame({"region": "L_V1", "subject": ["01", "02"], "predictor": "model",
    ...                       "mse": [0.5, 0.7], "r2": [0.5, 0.3], "n": [100, 100]})
    >>> pooled_errors(table, "region")[["region", "mse", "r2", "n"]].round(6).values.tolist()
    [['L_V1', 0.6, 0.4, 200]]
    """
    squared = table["mse"] * table["n"]
    sums = table.assign(squared=squared, squares=squared / (1 - table["r2"]))
    pooled = sums.groupby([by, "predictor"], sort=False).agg(
        squared=("squared", "sum"),
        squares=("squares", "sum"),
        n=("n", "sum"),
        n_subjects=("subject", "nunique"),
    )
    pooled["mse"] = pooled["squared"] / pooled["n"]
    pooled["r2"] = 1 - pooled["squared"] / pooled["squares"]
    return pooled.reset_index()[[by, "predictor", "mse", "r2", "n", "n_subjects"]]


def missing_regions(run: RegionTimeSeries, regions: Sequence[str]) -> list[str]:
    """Name the regions that a run lacks, or lacks values of, or that are constant in it.

    Parameters
    ----------
    run : RegionTimeSeries
    regions : sequence of str
        Those that are wanted.
    """
    missing = _Gaps(run, regions).missing.any(axis=0)
    return [name for name, lacks in zip(regions, missing, strict=True) if lacks]


def fill_run(run: RegionTimeSeries, folder: ModelFolder, predictor: Imputer) -> FilledRun:
    """Predict the missing values of a run from what is there.

    The run is cut into windows that adjoin, the last one aligned to its end; where two overlap,
    their mean is taken. A region that lacks any TR of a window is hidden in it. What was measured
    stays as it is.

    Parameters
    ----------
    run : RegionTimeSeries
        Missing are NaN, columns that are not there, and constant columns.
    folder : ModelFolder
        Gives the regions, by name, and the length of a window.
    predictor : Imputer

    Returns
    -------
    FilledRun

    Raises
    ------
    InputError
        If the run is shorter than a window, or no region of the model is visible in any window
        that lacks something.

    Warns
    -----
    UserWarning
        If more regions are missing than were hidden in training, or values stay missing since no
        region is visible around them.
    """
    names = [str(name) for name in folder.regions["name"]]
    window = folder.settings.window
    if run.n_times < window:
        msg = f"{run.label}: {run.n_times} TRs; expected at least the {window} of a window."
        raise InputError(msg)
    gaps = _Gaps(run, names)
    if gaps.missing.all():
        msg = (
            f"{run.label}: none of the model's {len(names)} regions (first: {names[0]}) has a "
            f"signal in it (its first column: {run.regions[0]}); regions are matched by name."
        )
        raise InputError(msg)
    share = gaps.missing.any(axis=0).mean()
    if share > folder.settings.mask_ratio:
        msg = (
            f"{run.label}: {share:.0%} of the regions are missing; at most "
            f"{folder.settings.mask_ratio:.0%} were hidden in training, so expect little."
        )
        warnings.warn(msg, stacklevel=2)
    predicted = _predict_missing(gaps.standardized(), gaps.missing, predictor, window=window)
    filled = gaps.missing & np.isfinite(predicted)
    if left := int((gaps.missing & ~filled).sum()):
        msg = (
            f"{run.label}: {left} of {gaps.missing.sum()} missing values stay missing, since no "
            "region is complete in their windows."
        )
        if not filled.any():
            raise InputError(msg)
        warnings.warn(msg, stacklevel=2)
    count = filled.sum(axis=0)
    values = np.where(filled, predicted * gaps.deviation + gaps.mean, gaps.values)
    return FilledRun(
        run=_with_columns(run, names, values, np.flatnonzero(count)),
        n_filled={name: int(n) for name, n in zip(names, count, strict=True) if n},
        borrowed_scale=tuple(
            name for name, own in zip(names, gaps.has_scale, strict=True) if not own
        ),
    )


class _Gaps:
    """What a run has of the wanted regions, what is missing, and on which scale each region is."""

    def __init__(self, run: RegionTimeSeries, regions: Sequence[str]) -> None:
        table = pd.DataFrame(run.values, columns=list(run.regions), dtype=float)
        self.values = table.reindex(columns=list(regions)).to_numpy()  # (time, region)
        there = np.isfinite(self.values)
        high = np.where(there, self.values, -np.inf).max(axis=0)
        low = np.where(there, self.values, np.inf).min(axis=0)
        self.has_scale = high - low > CONSTANT * np.maximum(abs(high), abs(low))
        self.missing = ~there | ~self.has_scale
        seen = np.where(self.missing, 0.0, self.values)
        n_seen = np.maximum((~self.missing).sum(axis=0), 1)
        self.mean = seen.sum(axis=0) / n_seen
        squares = np.where(self.missing, 0.0, (seen - self.mean) ** 2)
        self.deviation = np.sqrt(squares.sum(axis=0) / n_seen)
        if self.has_scale.any():
            for scale in (self.mean, self.deviation):
                scale[~self.has_scale] = np.median(scale[self.has_scale])

    def standardized(self) -> np.ndarray:
        """Return z-scored values, shape (time, region); 0 where they are missing."""
        z = (np.where(self.missing, self.mean, self.values) - self.mean) / self.deviation
        return z.astype(np.float32)


def _predict_missing(
    values: np.ndarray, missing: np.ndarray, predictor: Imputer, *, window: int
) -> np.ndarray:
    """Predict z-scored values of a run where they are missing; NaN where nothing is visible."""
    total = np.zeros(values.shape)
    count = np.zeros(values.shape)
    for starts, visible, hidden in _windows_by_mask(missing, window):
        times = starts[:, None] + np.arange(window)  # (window, time)
        seen = values[times].swapaxes(1, 2)  # (window, region, time)
        predicted = predictor.predict(seen, visible, hidden).swapaxes(1, 2)
        place = (times[:, :, None], hidden)
        np.add.at(total, place, predicted)
        np.add.at(count, place, 1)
    with np.errstate(invalid="ignore"):
        return total / count


def _windows_by_mask(
    missing: np.ndarray, window: int
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield first TRs of windows that lack the same regions, with visible and hidden regions."""
    last = len(missing) - window
    starts = np.unique([*range(0, last + 1, window), last])
    masks = np.stack([missing[start : start + window].any(axis=0) for start in starts])
    patterns, which = np.unique(masks, axis=0, return_inverse=True)
    for number, mask in enumerate(patterns):
        if mask.all() or not mask.any():
            continue
        own = starts[which.ravel() == number]
        for first in range(0, len(own), WINDOWS_AT_ONCE):
            part = own[first : first + WINDOWS_AT_ONCE]
            yield part, np.flatnonzero(~mask), np.flatnonzero(mask)


def _with_columns(
    run: RegionTimeSeries, names: Sequence[str], values: np.ndarray, changed: np.ndarray
) -> RegionTimeSeries:
    """Put the changed columns in their places in the run, or behind its columns."""
    dtype = run.values.dtype if run.values.dtype.kind == "f" else np.dtype(float)
    columns = {name: run.values[:, number] for number, name in enumerate(run.regions)}
    columns |= {names[number]: values[:, number] for number in changed}
    return replace(
        run, values=np.column_stack(list(columns.values())).astype(dtype), regions=tuple(columns)
    )
