"""Fits of several seeds on one split of one cohort, beside baselines, left as model folders."""

import hashlib
import json
import os
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from neuro_pe import __version__
from neuro_pe._baseline_cache import cached_errors
from neuro_pe.building import new_network
from neuro_pe.derivatives import write_dataset_description
from neuro_pe.errors import InputError
from neuro_pe.fitting import (
    METRICS,
    describe_data,
    fit_network,
    history_metrics,
    resolve_settings,
)
from neuro_pe.jobs import check_described
from neuro_pe.model_folder import (
    ModelFolder,
    partial_path,
    read_model_folder,
    read_settings,
    write_model_folder,
    write_settings,
)
from neuro_pe.reconstruction import (
    NO_REGION_ERRORS,
    EvaluationSet,
    ModelImputer,
    fit_baselines,
    mean_attention,
    summarize_errors,
)
from neuro_pe.settings import FitSettings, option_name
from neuro_pe.timeseries import Cohort
from neuro_pe.windows import Split, WindowSource, long_enough, split_subjects

__all__ = ["split_cohort", "train_models"]


def split_cohort(
    cohort: Cohort,
    *,
    test_subjects: float | int | Sequence[str] = 0.2,
    validation_subjects: float | int | Sequence[str] = 0.15,
    group_column: str | None = None,
) -> Split:
    """Split a cohort by subject, or by a column of its ``participants.tsv``.

    Parameters
    ----------
    cohort : Cohort
    test_subjects, validation_subjects : float, int or sequence of str
        See :func:`neuro_pe.windows.split_subjects`.
    group_column : str or None
        Column whose groups (families, sites) stay together.

    Raises
    ------
    InputError
        If the column or a subject's entry is missing, or the split is impossible.
    """
    groups = None
    if group_column is not None:
        table = cohort.participants
        columns = [] if table is None else ["participant_id", *table.columns]
        if table is None or group_column not in columns[1:]:
            msg = (
                f"--group-column: no column {group_column!r} in participants.tsv; "
                f"found {', '.join(columns) or 'no table'}."
            )
            raise InputError(msg)
        for subject in cohort.subjects:
            entry = table[group_column].get(subject)
            if pd.isna(entry) or not str(entry).strip():
                msg = (
                    f"--group-column: participants.tsv has no {group_column!r} of subject "
                    f"{subject}; every subject needs one."
                )
                raise InputError(msg)
        groups = [str(table.loc[subject, group_column]) for subject in cohort.subjects]
    return split_subjects(
        cohort.subjects, test=test_subjects, validation=validation_subjects, groups=groups
    )


def train_models(
    cohort: Cohort,
    *,
    output_dir: str | os.PathLike[str],
    settings: FitSettings | None = None,
    n_seeds: int = 1,
    test_subjects: float | int | Sequence[str] = 0.2,
    validation_subjects: float | int | Sequence[str] = 0.15,
    group_column: str | None = None,
    resume: bool = False,
    save_attention: bool = False,
    progress: Callable[[FitSettings, dict[str, Any]], None] | None = None,
    folder_name: str | None = None,
    baselines_dir: str | os.PathLike[str] | None = None,
) -> list[ModelFolder]:
    """Fit one model a seed and write a model folder for each.

    A finished fit of the same settings and data is kept as it is. Baselines are fitted once, on
    the training subjects, and judged on the same hidden values as the models.

    Parameters
    ----------
    cohort : Cohort
    output_dir : path-like
        Becomes a BIDS derivative.
    settings : FitSettings or None
        Its seed is the first one.
    n_seeds : int
    test_subjects, validation_subjects, group_column
        See :func:`split_cohort`.
    resume : bool
        Go on with fits that were interrupted.
    save_attention : bool
        Leave ``attention.npz`` too: attention between regions, all of them visible, mean over the
        windows of test subjects (of training subjects if there are none).
    progress : callable or None
        Called with the fit's settings and its newest epoch (see :func:`fit_network`).
    folder_name : str or None
        Name of the model folder of a single fit; None is ``settings.name``.
    baselines_dir : path-like or None
        Keeps the errors of the baselines there, for other calls with the same data and splits.

    Returns
    -------
    list of ModelFolder
        In order of the seeds.

    Raises
    ------
    InputError
        If `output_dir` holds something else, a fit of the same name with other settings or data,
        or an interrupted fit without `resume`.

    Examples
    --------
    >>> import neuro_pe as npe
    >>> from neuro_pe.settings import FitSettings
    >>> models = npe.train_models(npe.load_demo(), output_dir="results", n_seeds=3,
    ...                           settings=FitSettings(sigma=0.1))  # doctest: +SKIP
    """
    settings = settings or FitSettings()
    if n_seeds < 1:
        msg = f"--seeds: found {n_seeds}; expected a whole number of 1 or more."
        raise InputError(msg)
    output_dir = Path(output_dir)
    cohort = long_enough(cohort, window=settings.window)
    split = split_cohort(
        cohort,
        test_subjects=test_subjects,
        validation_subjects=validation_subjects,
        group_column=group_column,
    )
    fits = [replace(settings, seed=settings.seed + k) for k in range(n_seeds)]
    paths = [output_dir / (folder_name or fit.name) for fit in fits]
    check_described(output_dir)
    experiment = _Experiment.prepare(cohort, split, _with_old_precision(settings, paths))
    experiment.baselines_dir = baselines_dir
    fits = [replace(experiment.settings, seed=fit.seed) for fit in fits]
    finished = [
        _check_fit(path, fit, experiment.data, resume)
        for path, fit in zip(paths, fits, strict=True)
    ]
    output_dir.mkdir(parents=True, exist_ok=True)
    write_dataset_description(
        output_dir, name="Masked-region models", sources=experiment.data["sources"]
    )
    for path, fit, is_finished in zip(paths, fits, finished, strict=True):
        if not is_finished:
            experiment.run(path, fit, progress, save_attention=save_attention)
    return [read_model_folder(path) for path in paths]


@dataclass(kw_only=True)
class _Experiment:
    """What all fits of one split share."""

    split: Split
    settings: FitSettings
    data: dict[str, Any]
    training: WindowSource
    held_out: dict[str, EvaluationSet]
    baseline_errors: dict[tuple[str, str], tuple[np.ndarray, float]] | None = None
    baselines_dir: str | os.PathLike[str] | None = None

    @classmethod
    def prepare(cls, cohort: Cohort, split: Split, settings: FitSettings) -> "_Experiment":
        sources = {
            name: WindowSource(
                cohort.select_subjects(getattr(split, name)),
                window=settings.window,
                stride=settings.stride,
            )
            for name in ("train", "validation", "test")
            if getattr(split, name)
        }
        new_network(settings, sources["train"].cohort)  # refused before anything is written
        return cls(
            split=split,
            settings=resolve_settings(settings, sources["train"]),
            data={**describe_data(cohort), "split": asdict(split)},
            training=sources["train"],
            held_out={
                name: EvaluationSet(source, mask_ratio=settings.test_mask_ratio)
                for name, source in sources.items()
                if name != "train"
            },
        )

    def run(
        self,
        path: Path,
        settings: FitSettings,
        progress: Callable[[FitSettings, dict[str, Any]], None] | None,
        *,
        save_attention: bool,
    ) -> None:
        partial = partial_path(path)
        partial.mkdir(exist_ok=True)
        write_settings(partial, settings, self.data)
        fit = fit_network(
            self.training,
            self.held_out.get("validation"),
            settings,
            folder=partial,
            progress=None if progress is None else lambda row: progress(settings, row),
        )
        if self.baseline_errors is None:
            self.baseline_errors = (
                self._judge_baselines()
                if self.baselines_dir is None
                else cached_errors(self.baselines_dir, self._key(), self._judge_baselines)
            )
        # The model's validation errors stand in its history.
        errors = dict(self.baseline_errors)
        if (test := self.held_out.get("test")) is not None:
            seconds = fit.history.rows[-1]["seconds"]
            errors["test", "model"] = test.errors(ModelImputer(fit.network)), seconds
        history = history_metrics(fit.history, settings, self.held_out.get("validation"))
        final = self._metrics(errors, settings, fit.history.best_epoch)
        folder, weights = fit.to_model_folder(
            path,
            data=self.data,
            subjects=self.split.to_frame(),
            metrics=pd.concat([history, final], ignore_index=True),
            region_errors=self._region_errors(errors),
        )
        attention = None
        if save_attention:
            attention = mean_attention(fit.network, test.source if test else self.training)
        write_model_folder(folder, weights, attention=attention)

    def _key(self) -> str:
        """Checksum of all that the baselines' errors depend on."""
        task = (self.settings.window, self.settings.stride, self.settings.test_mask_ratio)
        content = json.dumps([__version__, self.data["fingerprint"], self.data["split"], task])
        return hashlib.sha256(content.encode()).hexdigest()[:16]

    def _judge_baselines(self) -> dict[tuple[str, str], tuple[np.ndarray, float]]:
        """Errors and core-seconds of each baseline, by split and name."""
        started = time.process_time()
        baselines = fit_baselines(
            self.training,
            self.held_out.get("validation"),
            mask_ratio=self.settings.test_mask_ratio,
        )
        seconds = time.process_time() - started
        if baselines.left_out:
            warnings.warn(baselines.left_out, stacklevel=2)
        return {
            (name, imputer.name): (held_out.errors(imputer), seconds)
            for name, held_out in self.held_out.items()
            for imputer in baselines.imputers
        }

    def _metrics(
        self,
        errors: dict[tuple[str, str], tuple[np.ndarray, float]],
        settings: FitSettings,
        best_epoch: int,
    ) -> pd.DataFrame:
        rows = []
        for (name, predictor), (total, seconds) in errors.items():
            squared, squares, count = total.sum(axis=(1, 2))
            row = {
                "epoch": best_epoch if predictor == "model" else None,
                "seconds": seconds,
                "split": name,
                "predictor": predictor,
                "mask_ratio": settings.test_mask_ratio,
                "mse": squared / count,
                "r2": 1 - squared / squares,
                "n": int(count),
            }
            rows.append(row)
        return pd.DataFrame(rows, columns=METRICS).astype({"epoch": "Int64", "n": "Int64"})

    def _region_errors(
        self, errors: dict[tuple[str, str], tuple[np.ndarray, float]]
    ) -> pd.DataFrame:
        tables = [
            summarize_errors(
                total,
                subjects=self.held_out["test"].source.subjects,
                regions=self.training.cohort.region_names,
                predictor=predictor,
            )
            for (name, predictor), (total, _) in errors.items()
            if name == "test"
        ]
        return pd.concat([NO_REGION_ERRORS, *tables], ignore_index=True)


def _with_old_precision(settings: FitSettings, paths: Sequence[Path]) -> FitSettings:
    """Let fits that are there decide what is faster, in place of the machine of today."""
    for place in [place for path in paths for place in (path, partial_path(path))]:
        if settings.precision == "auto" and (place / "settings.json").exists():
            return replace(settings, precision=read_settings(place)[0].precision)
    return settings


def _check_fit(path: Path, settings: FitSettings, data: dict[str, Any], resume: bool) -> bool:
    """Whether the fit is finished already; refuse one that differs or that was interrupted."""
    partial = partial_path(path)
    for place in (path, partial):
        if not place.exists():
            continue
        if place == partial and not (partial / "settings.json").exists():
            continue  # stopped before it had written anything
        old_settings, old_data = read_settings(place)
        old = {**asdict(old_settings), "data": old_data.get("fingerprint")}
        new = {**asdict(settings), "data": data["fingerprint"]}
        old["split"], new["split"] = (
            json.dumps(each.get("split"), sort_keys=True) for each in (old_data, data)
        )
        for name, value in new.items():
            if old[name] != value:
                what = (
                    f"with other {'subjects in its splits' if name == 'split' else 'data'}"
                    if name in ("data", "split")
                    else f"with {option_name(name)} {old[name]}, now {value}"
                )
                msg = f"{place}: holds a fit {what}; choose another --output-dir, or delete it."
                raise InputError(msg)
    if path.exists():
        return True
    if partial.exists() and not resume:
        msg = f"{partial}: an interrupted fit; add --resume to go on with it, or delete it."
        raise InputError(msg)
    return False
