"""Sweeps of Latin Square Task fits: which encodings solve unlike puzzles, and what they learned."""

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from neuro_pe.derivatives import read_table, write_table
from neuro_pe.errors import InputError
from neuro_pe.fitting import resolve_machine
from neuro_pe.jobs import DaskCluster, Job, JobProgress
from neuro_pe.model_folder import partial_path
from neuro_pe.settings import FitSettings, uses_sigma
from neuro_pe.sweeps import encoding_parts, grid_settings, name_of_parts, option_parts, seeded
from neuro_pe.synthetic._checks import check_list
from neuro_pe.synthetic._fits import (
    finished_fits,
    job_data,
    job_settings,
    mean_interval,
    output_folder,
    run_fits,
)
from neuro_pe.synthetic.lst import METRICS, fit_lst, lst_settings, new_lst_network
from neuro_pe.synthetic.lst_folder import LatinSquareFolder, read_lst_folder, write_lst_folder
from neuro_pe.synthetic.lst_truth import attention_correlation, measure_fit
from neuro_pe.synthetic.puzzle_splits import split_puzzles

__all__ = ["LatinSquareSweep", "lst_job", "lst_name", "summarize_lst", "sweep_lst"]

ACCURACIES = ["fit", "recipe", "encoding", "sigma", "heads", "size", "seed", "epoch"]
ACCURACIES += ["core_seconds", "split", "complexity", "accuracy", "n"]
ACCURACIES += ["procrustes", "change_procrustes"]
STRUCTURE = ["fit", "seed", "source", "part", "statistic", "value"]
STRUCTURE += ["null", "null_mean", "null_sd", "z", "p", "n_permutations"]
UNLIKE = ("human108", "unlike")
MOVED = ("encodings", "encoder")
TRUTH = "2d-fixed"


@dataclass(frozen=True, kw_only=True, eq=False)
class LatinSquareSweep:
    """What came of a sweep.

    Parameters
    ----------
    table : DataFrame
        A row a fit: ``name, status, error``, options, results (``sweep.tsv``).
    accuracies : DataFrame
        ``lst.tsv``: accuracy by fit, seed, epoch, split and complexity; at the last epoch also
        the Procrustes distance of the encoding and of its learned change to ``2d-fixed``, mean
        over blocks.
    structure : DataFrame
        ``lst_structure.tsv``: what encodings, attention and weights are like.
    settings : DataFrame
        A row a setting (:func:`summarize_lst`).
    folders : list of LatinSquareFolder
        Finished fits.
    """

    table: pd.DataFrame
    accuracies: pd.DataFrame
    structure: pd.DataFrame
    settings: pd.DataFrame
    folders: list[LatinSquareFolder]

    @property
    def failed(self) -> pd.DataFrame:
        """Rows of the fits that failed."""
        return self.table[self.table["status"] != "done"]


def sweep_lst(
    *,
    output_dir: str | os.PathLike[str],
    grid: Mapping[str, Sequence[Any]] | None = None,
    recipe: str = "fast",
    sizes: Sequence[int] = (4,),
    puzzles: str | None = None,
    n_seeds: int = 1,
    n_workers: int | None = None,
    dask: DaskCluster | None = None,
    progress: Callable[[JobProgress], None] | None = None,
) -> LatinSquareSweep:
    """Fit a network for every combination of settings and every seed.

    The same call again does only what is missing; other settings are added to the folder.

    Parameters
    ----------
    output_dir : path-like
        Gets a model folder a fit, ``sweep.tsv``, ``lst.tsv`` and ``lst_structure.tsv``.
    grid : mapping of str to sequence
        Values of options of :class:`neuro_pe.settings.FitSettings`, as ``{"sigma": [0.1, 1]}``.
    recipe : {"fast", "paper"}
        See :func:`neuro_pe.synthetic.lst_settings`.
    sizes : sequence of int
        Of the squares.
    puzzles : {"published", "generated"} or None
        See :func:`neuro_pe.synthetic.split_puzzles`.
    n_seeds : int
    n_workers : int or None
        Processes on this machine, each with one thread; None is one a core.
    dask : DaskCluster or None
        Takes the place of processes on this machine.
    progress : callable or None
        Called when fits have been started and when one ends.

    Raises
    ------
    InputError
        If options are wrong, or the folder holds something else.

    Examples
    --------
    >>> from neuro_pe.synthetic import sweep_lst
    >>> result = sweep_lst(output_dir="lst", n_seeds=5,
    ...                    grid={"sigma": [0.1, 0.2, 1, 2]})  # doctest: +SKIP
    """
    jobs = _jobs(dict(grid or {}), recipe, sizes, puzzles, n_seeds)
    folder = output_folder(output_dir)
    how: dict[str, Any] = {"n_workers": n_workers, "dask": dask, "progress": progress}
    how |= {"path_of": _model_path, "leaves": ("lst.tsv", "lst_structure.tsv")}
    table = run_fits(jobs, lst_job, output_dir=folder, **how)
    fits = finished_fits(folder, path_of=_model_path, results_of=_results)
    folders = [read_lst_folder(fit.path) for fit in fits]
    accuracies, structure = _collect(folders)
    if os.access(folder, os.W_OK):  # else it has been said
        write_table(accuracies, folder / "lst.tsv")
        write_table(structure, folder / "lst_structure.tsv")
    return LatinSquareSweep(
        table=table,
        accuracies=accuracies,
        structure=structure,
        settings=summarize_lst(accuracies, structure),
        folders=folders,
    )


def _jobs(
    grid: dict[str, Any], recipe: str, sizes: Sequence[int], puzzles: str | None, n_seeds: int
) -> list[Job]:
    check_list("sizes", sizes)
    usual = asdict(lst_settings(recipe))
    settings = seeded(grid_settings({**{k: [v] for k, v in usual.items()}, **grid}), n_seeds)
    jobs: dict[str, Job] = {}
    for size in sizes:
        # Refused before anything is written.
        split_puzzles(size=size, source=puzzles)
        for each in dict.fromkeys(replace(each, seed=0) for each in settings):
            new_lst_network(resolve_machine(each), size=size)
        for each in settings:
            source = puzzles or ("published" if size == 4 else "generated")
            job = _named(each, {"recipe": recipe, "size": size, "puzzles": source})
            jobs[job.name] = job
    return list(jobs.values())


def _named(settings: FitSettings, data: Mapping[str, Any]) -> Job:
    """Return the job of a fit: `data` has ``recipe, size, puzzles``."""
    name = lst_name(settings, **{part: data[part] for part in ("recipe", "size", "puzzles")})
    arguments = {"task": "lst", "recipe": data["recipe"], "size": data["size"]}
    arguments |= {"puzzles": data["puzzles"], **asdict(settings)}
    return Job(name=name, arguments=arguments)


def _model_path(job: Job, folder: Path) -> Path:
    return folder / job.name


def lst_name(
    settings: FitSettings, *, recipe: str, size: int = 4, puzzles: str | None = None
) -> str:
    """Name a fit by what was asked, seed last.

    Examples
    --------
    >>> from neuro_pe.synthetic import lst_settings
    >>> from neuro_pe.synthetic.lst_sweep import lst_name
    >>> lst_name(lst_settings("fast", sigma=0.2, epochs=5), recipe="fast")
    'encoding-learn_sigma-0.2_heads-1_size-4_recipe-fast_epochs-5_seed-0'
    """
    parts = [*encoding_parts(settings), f"heads-{settings.heads}", f"size-{size}"]
    parts.append(f"recipe-{recipe}")
    if puzzles == "generated" and size == 4:
        parts.append("puzzles-generated")
    named = ("encoding", "sigma", "heads", "seed")
    parts += option_parts(settings, lst_settings(recipe), leave_out=named)
    return name_of_parts(parts, seed=settings.seed)


def lst_job(job: Job, context: dict[str, Any]) -> dict[str, Any]:
    """Do one fit of a sweep and return its row of the table."""
    settings = job_settings(job, context)
    path = _model_path(job, Path(context["output_dir"]))
    data = {name: job.arguments[name] for name in ("task", "recipe", "size", "puzzles")}
    data |= job_data(job)
    if not path.exists():
        partial = partial_path(path)
        partial.mkdir(exist_ok=True)
        fit = fit_lst(_splits(data["size"], data["puzzles"]), settings, folder=partial)
        write_lst_folder(fit, path, data=data, structure=measure_fit(fit))
    if read_lst_folder(path).data != data:
        msg = f"{path}: holds a fit of another name; delete it, and the same command fits it again."
        raise InputError(msg)
    return _results(path)


def _results(path: Path) -> dict[str, float]:
    """Return the row of the table of a fit, from its model folder."""
    metrics = read_table(path / METRICS).astype({"complexity": str})
    last = metrics[(metrics["epoch"] == metrics["epoch"].max()) & (metrics["complexity"] == "all")]
    found = {f"{row['split']}_accuracy": row["accuracy"] for row in last.to_dict("records")}
    return {"core_seconds": float(metrics["core_seconds"].max()), **found}


_splits = functools.lru_cache(maxsize=4)(
    lambda size, puzzles: split_puzzles(size=size, source=puzzles)
)


def _collect(folders: Sequence[LatinSquareFolder]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Put the tables of all fits together, and hold their attention beside the truth's."""
    accuracies, structure = [], []
    for each in folders:
        fit = each.path.name.rpartition("_seed-")[0]
        seed = each.settings.seed
        table = pd.concat([each.structure, _attention(each, folders)], ignore_index=True)
        structure.append(table.assign(fit=fit, seed=seed))
        mean = table[table["statistic"] == "procrustes"].groupby("source")["value"].mean()
        sigma = each.settings.sigma if uses_sigma(each.settings.encoding) else np.nan
        is_last = each.metrics["epoch"] == each.metrics["epoch"].max()
        accuracies.append(
            each.metrics.assign(
                fit=fit,
                recipe=each.data["recipe"],
                encoding=each.settings.encoding,
                sigma=sigma,
                heads=each.settings.heads,
                size=each.size,
                seed=seed,
                procrustes=np.where(is_last, mean.get("pe", np.nan), np.nan),
                change_procrustes=np.where(is_last, mean.get("change", np.nan), np.nan),
            )
        )
    return (
        pd.concat([pd.DataFrame(columns=ACCURACIES), *accuracies], ignore_index=True)[ACCURACIES],
        pd.concat([pd.DataFrame(columns=STRUCTURE), *structure], ignore_index=True)[STRUCTURE],
    )


def _attention(one: LatinSquareFolder, folders: Sequence[LatinSquareFolder]) -> pd.DataFrame:
    """Correlate its attention with the mean of the other fits that know rows and columns."""
    known = [
        other.attention.mean(axis=1)
        for other in folders
        if other.settings.encoding == TRUTH
        and other.path != one.path
        and (other.size, other.data["recipe"]) == (one.size, one.data["recipe"])
        and other.settings.layers == one.settings.layers
        and other.settings.heads == one.settings.heads
    ]
    if not known:
        return pd.DataFrame(columns=STRUCTURE)
    reference = np.mean(known, axis=0)[:, None]
    values = attention_correlation(one.attention, reference)
    rows = [
        {"source": "attention", "part": f"block_{number}", "statistic": "correlation_with_2d_fixed"}
        for number in range(len(values))
    ]
    return pd.DataFrame(rows).assign(value=values)


def summarize_lst(accuracies: pd.DataFrame, structure: pd.DataFrame) -> pd.DataFrame:
    """Bring the seeds of each setting together, at the last epoch.

    Parameters
    ----------
    accuracies, structure : DataFrame
        Of :class:`LatinSquareSweep`.

    Returns
    -------
    DataFrame
        A row a setting: ``fit, recipe, encoding, sigma, heads, size, n_seeds, core_seconds``; for
        the splits ``train, heldout, unlike`` the mean accuracy, ``_low`` and ``_high`` (95 %
        interval over seeds, t distribution) and ``_min``; the mean over seeds and blocks of each
        ``source_statistic``, with ``_null`` where there is one; and how far encodings and encoder
        ``_moved`` from their start, relative to it.
    """
    rows = []
    for fit, group in accuracies.groupby("fit", sort=False):
        last = group[(group["epoch"] == group["epoch"].max()) & (group["complexity"] == "all")]
        row = {name: last.iloc[0][name] for name in ("fit", "recipe", "encoding", "sigma")}
        row |= {name: last.iloc[0][name] for name in ("heads", "size")}
        row |= {"n_seeds": last["seed"].nunique(), "core_seconds": last["core_seconds"].mean()}
        for split, part in last.groupby(last["split"].replace(dict.fromkeys(UNLIKE, "unlike"))):
            row |= _spread(str(split), part["accuracy"].to_numpy(dtype=float))
        own = structure[structure["fit"] == fit]
        for (source, name), part in own.groupby(["source", "statistic"]):
            if source == "weights":
                moved = part.groupby("part")["value"].mean()
                row |= {f"{each}_moved": moved[each] for each in MOVED if each in moved}
                continue
            row[f"{source}_{name}"] = part["value"].astype(float).mean()
            if part["null_mean"].notna().any():
                row[f"{source}_{name}_null"] = part["null_mean"].astype(float).mean()
        rows.append(row)
    return pd.DataFrame(rows)


def _spread(name: str, values: np.ndarray) -> dict[str, float]:
    mean, low, high = mean_interval(values, limits=(0, 1))
    return {
        name: mean,
        f"{name}_low": low,
        f"{name}_high": high,
        f"{name}_min": float(values.min()),
    }
