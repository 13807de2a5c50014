"""The incomplete runs of a BIDS derivative, filled in by a model and written as another one."""

import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from neuro_pe._model_input import check_same_atlas, check_times
from neuro_pe.bids import load_bids
from neuro_pe.building import load_network
from neuro_pe.derivatives import (
    check_output_dir,
    write_dataset_description,
    write_json,
    write_table,
)
from neuro_pe.errors import InputError
from neuro_pe.imputation import (
    FilledRun,
    HiddenRegions,
    fill_run,
    missing_regions,
    pooled_errors,
    region_error_table,
)
from neuro_pe.model_folder import ModelFolder, find_model_folder
from neuro_pe.reconstruction import ModelImputer
from neuro_pe.timeseries import Cohort, RegionTimeSeries
from neuro_pe.transformer import MaskedRegionTransformer
from neuro_pe.windows import WindowSource

__all__ = ["COLUMNS", "ImputedDerivative", "impute_bids"]

COLUMNS = [
    "subject", "file", "region", "n_filled_trs", "estimate", "mask_ratio", "r2", "r2_gaussian",
    "n_subjects", "n",
]  # fmt: skip
# Where the truth is known, so many subjects say how good the filled values are.
MAX_REFERENCES = 20
SCALE = (
    "A region that lacked some volumes is filled in on the scale of its others. One that lacked "
    "all has the median mean and the median standard deviation of the run's other regions: its "
    "level and amplitude mean nothing."
)
R2_SOURCES = {
    "complete_runs": "Complete runs of {n} that the model was not trained on, with the same "
    "regions hidden.",
    "test_subjects": "The model's test subjects, with {ratio:.0%} of the regions hidden at "
    "random: another share than is missing here.",
    "none": "Not measured: no complete run of a subject that the model was not trained on.",
}


@dataclass(frozen=True, kw_only=True, eq=False)
class ImputedDerivative:
    """What was filled in, and how good that is.

    Parameters
    ----------
    table : DataFrame
        ``imputation.tsv``: a row a run and region.
    n_runs : int
        Runs that were looked at.
    n_filled : int
        Runs that lacked something and were written.
    n_left_out : int
        Runs that lacked something and could not be filled in.
    """

    table: pd.DataFrame
    n_runs: int
    n_filled: int
    n_left_out: int


def impute_bids(
    model: str | os.PathLike[str],
    bids_dir: str | os.PathLike[str],
    *,
    output_dir: str | os.PathLike[str],
    filters: Mapping[str, Any] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> ImputedDerivative:
    """Fill in the missing regions of the runs of a folder, and measure how good that is.

    Runs that lack nothing are not written again. How good: the same regions are hidden in
    complete runs of other subjects of the folder, one run of up to 20 subjects, none of whom
    trained or validated the model (by their labels). Where there is none, the errors on the
    model's test subjects stand in their place, at another share of hidden regions.

    Parameters
    ----------
    model : path-like
        A model folder, or a folder that holds exactly one.
    bids_dir : path-like
        As for :func:`neuro_pe.load_bids`.
    output_dir : path-like
        Becomes a BIDS derivative: ``*_desc-imputed_timeseries.tsv`` with a JSON sidecar each, and
        ``imputation.tsv``.
    filters : mapping or None
        Further arguments of :func:`neuro_pe.load_bids`. The atlas is the model's if not given.
    progress : callable or None
        Called with the number of runs done and of all runs that lack something.

    Returns
    -------
    ImputedDerivative

    Raises
    ------
    InputError
        If a folder cannot be used, the data are of another atlas than the model, `output_dir`
        holds an earlier imputation or is `bids_dir`, or no run could be filled in.

    Examples
    --------
    >>> import neuro_pe as npe
    >>> done = npe.impute_bids("results", "derivatives/xcp_d",
    ...                        output_dir="derivatives/imputed")  # doctest: +SKIP
    >>> done.table[["subject", "region", "r2", "r2_gaussian"]]  # doctest: +SKIP
    """
    folder = find_model_folder(model)
    network = load_network(folder)
    output_dir = Path(output_dir)
    _check_place(output_dir, Path(bids_dir))
    asked = {"atlas": folder.data.get("atlas"), **(filters or {})}
    cohort = load_bids(bids_dir, keep_missing=True, **asked)
    check_same_atlas(folder, cohort)
    check_times(folder, cohort)
    output_dir.mkdir(parents=True, exist_ok=True)

    names = [str(name) for name in folder.regions["name"]]
    lacking = {number: missing_regions(run, names) for number, run in enumerate(cohort)}
    estimates = _Estimates(
        folder, network, [cohort[n] for n, lacks in lacking.items() if not lacks]
    )
    incomplete = {number: lacks for number, lacks in lacking.items() if lacks}
    tables, refused = [], []
    predictor = ModelImputer(network)
    for done, (number, hidden) in enumerate(incomplete.items(), start=1):
        try:
            filled = fill_run(cohort[number], folder, predictor)
        except InputError as error:
            refused.append(error)
        else:
            tables.append(_write_run(filled, estimates.of(hidden), folder, output_dir))
        if progress is not None:
            progress(done, len(incomplete))
    if refused and not tables:
        raise refused[0]
    for reason in refused:
        warnings.warn(f"{str(reason).rstrip('.')}; left out.", stacklevel=2)
    none = pd.DataFrame(columns=COLUMNS)
    table = pd.concat(tables, ignore_index=True) if tables else none
    write_dataset_description(
        output_dir, name="Imputed region time series", sources=[os.fspath(bids_dir)]
    )
    write_table(table, output_dir / "imputation.tsv")
    return ImputedDerivative(
        table=table, n_runs=len(cohort), n_filled=len(tables), n_left_out=len(refused)
    )


def _check_place(output_dir: Path, bids_dir: Path) -> None:
    if output_dir.resolve() == bids_dir.resolve():
        msg = f"--output-dir {output_dir}: is the --bids-dir; choose a folder of its own."
        raise InputError(msg)
    check_output_dir(output_dir)
    if (output_dir / "imputation.tsv").exists():
        msg = (
            f"--output-dir {output_dir}: holds an earlier imputation; choose another folder, or "
            "delete it."
        )
        raise InputError(msg)


class _Estimates:
    """How well regions are predicted that are hidden together; measured once for each set."""

    def __init__(
        self,
        folder: ModelFolder,
        network: MaskedRegionTransformer,
        complete: list[RegionTimeSeries],
    ) -> None:
        self.folder = folder
        self.network = network
        self.names = [str(name) for name in folder.regions["name"]]
        seen = folder.subjects.loc[folder.subjects["split"] != "test", "subject"]
        window = folder.settings.window
        first: dict[str, RegionTimeSeries] = {}  # the first run of each subject
        for run in complete:
            if run.subject not in set(seen) and run.n_times >= window:
                first.setdefault(run.subject, run.select(self.names))
        runs = tuple(first.values())[:MAX_REFERENCES]
        cohort = Cohort(runs=runs, regions=folder.regions)
        self.source = WindowSource(cohort, window=window) if runs else None
        self._known: dict[tuple[str, ...], pd.DataFrame] = {}

    def of(self, hidden: list[str]) -> pd.DataFrame:
        """Return ``estimate, mask_ratio, r2, r2_gaussian, n_subjects, n`` by hidden region."""
        if (key := tuple(hidden)) not in self._known:
            self._known[key] = self._measure(hidden)
        return self._known[key]

    def _measure(self, hidden: list[str]) -> pd.DataFrame:
        if self.source is not None and len(hidden) < len(self.names):
            estimate, ratio = "complete_runs", len(hidden) / len(self.names)
            held_out = HiddenRegions(self.source, hidden)
            errors = region_error_table(held_out, self.folder, self.network)
        else:
            ratio = self.folder.settings.test_mask_ratio
            errors = self.folder.region_errors.dropna(subset=["mse"])
            errors = errors[errors["region"].isin(hidden)]
            estimate = "test_subjects" if len(errors) else "none"
        pooled = pooled_errors(errors, "region").set_index("region")
        model = pooled[pooled["predictor"] == "model"].reindex(hidden)
        gaussian = pooled[pooled["predictor"] == "gaussian"].reindex(hidden)
        return pd.DataFrame(
            {
                "estimate": estimate,
                "mask_ratio": ratio if estimate != "none" else np.nan,
                "r2": model["r2"],
                "r2_gaussian": gaussian["r2"],
                "n_subjects": model["n_subjects"].fillna(0).astype(int),
                "n": model["n"].fillna(0).astype(int),
            }
        )


def _write_run(
    filled: FilledRun, quality: pd.DataFrame, folder: ModelFolder, output_dir: Path
) -> pd.DataFrame:
    """Write a filled run and its sidecar; return its rows of ``imputation.tsv``."""
    run = filled.run
    file = _file_of(run)
    quality = quality.loc[list(filled.n_filled)]
    path = output_dir / file
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(_sidecar(filled, quality, folder), path.with_suffix(".json"))
    write_table(pd.DataFrame(run.values, columns=list(run.regions)), path)
    rows = quality.rename_axis("region").reset_index()
    rows = rows.assign(
        subject=run.subject, file=file.as_posix(), n_filled_trs=list(filled.n_filled.values())
    )
    return rows[COLUMNS]


def _file_of(run: RegionTimeSeries) -> Path:
    """Name of a filled run: that of its source, with ``desc-imputed``."""
    name = Path(run.source).name.removesuffix(".tsv").removesuffix(".ptseries.nii")
    *parts, suffix = name.split("_")
    kept = [part for part in parts if not part.startswith("desc-")]
    kept += [suffix] if "-" in suffix else []
    folders = [f"sub-{run.subject}", *([f"ses-{run.session}"] if run.session else []), "func"]
    return Path(*folders) / "_".join([*kept, "desc-imputed", "timeseries.tsv"])


def _sidecar(filled: FilledRun, quality: pd.DataFrame, folder: ModelFolder) -> dict[str, Any]:
    first = quality.iloc[0]
    regions = {
        region: {
            "FilledVolumes": n_filled,
            "Scale": "median of other regions" if region in filled.borrowed_scale else "own",
            "R2": _number(quality["r2"][region]),
            "R2OfGaussianImputer": _number(quality["r2_gaussian"][region]),
        }
        for region, n_filled in filled.n_filled.items()
    }
    tr = {} if filled.run.tr is None else {"RepetitionTime": filled.run.tr}
    return tr | {
        "Description": "Region time series with missing values filled in by a masked-region model",
        "Sources": [filled.run.source],
        "Model": os.fspath(folder.path),
        "ModelMaskRatio": folder.settings.mask_ratio,
        "ImputedRegions": regions,
        "R2Source": R2_SOURCES[first["estimate"]].format(
            n=_subjects(first["n_subjects"]), ratio=first["mask_ratio"]
        ),
        "Scale": SCALE,
    }


def _subjects(count: int) -> str:
    return f"{count} subject{'s' if count > 1 else ''}"


def _number(value: float) -> float | None:
    return None if np.isnan(value) else round(float(value), 4)
