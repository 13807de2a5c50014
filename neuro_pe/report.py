"""Compare fits with a network partition: one table, figures and a report that opens offline."""

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd

from neuro_pe import atlases
from neuro_pe._fit_groups import Comparison, group_fits
from neuro_pe._report_page import comparison_text, draw_figures, render_page
from neuro_pe.comparison import (
    communities_for,
    compare_source,
    correlation_draws,
    cosine_similarity,
    label_permutations,
    match_partition,
    null_permutations,
    null_rows,
    procrustes_draws,
    tabulate,
)
from neuro_pe.derivatives import atomic_path, write_table
from neuro_pe.errors import InputError
from neuro_pe.jobs import check_described
from neuro_pe.model_folder import ModelFolder

__all__ = [
    "Comparison",
    "choose_partition",
    "compare_fits",
    "comparison_text",
    "default_folder",
    "write_comparison",
]

# Distances of permuted regions hardly vary (about 1 %), and each is a singular value
# decomposition: more would cost time and add nothing.
PROCRUSTES_PERMUTATIONS = 100


@dataclass(frozen=True, kw_only=True, eq=False)
class _Job:
    """One similarity matrix to compare."""

    fit: str
    source: str
    seed: float
    similarity: pd.DataFrame


def write_comparison(
    models: Sequence[ModelFolder],
    *,
    partition: pd.Series,
    output_dir: str | os.PathLike[str],
    n_permutations: int = 1000,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Comparison:
    """Compare fits with a partition; write ``comparison.tsv``, ``figures/``, ``report.html``.

    Parameters
    ----------
    models : sequence of ModelFolder
        Fits of the same data and split; they may differ in their settings and seeds.
    partition : Series, region name -> network
        Regions without a network (NaN) are left out.
    output_dir : path-like
        Made if missing. Files of an earlier comparison are replaced.
    n_permutations : int
        Relabellings a null.
    seed : int
        Seed of the relabellings and of the search for communities.
    progress : callable or None
        Called with the number of steps done and of all steps.

    Returns
    -------
    Comparison
        Its ``table`` is what ``comparison.tsv`` holds.

    Raises
    ------
    InputError
        If the fits are not of the same data, or the partition does not fit their regions.

    Examples
    --------
    >>> from neuro_pe.model_folder import find_model_folders
    >>> from neuro_pe.report import choose_partition, write_comparison
    >>> models = find_model_folders(["results"])  # doctest: +SKIP
    >>> write_comparison(models, partition=choose_partition(models, "yeo7"),
    ...                  output_dir="results")  # doctest: +SKIP
    """
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    check_described(output_dir)
    _check_replaceable(Path(output_dir) / "comparison.tsv")
    figures_dir = Path(output_dir) / "figures"
    # Before the work, so that a place that cannot be written shows at once.
    figures_dir.mkdir(parents=True, exist_ok=True)
    # The matrices are small: threads of the linear algebra cost more than they bring.
    with threadpool_limits(1):
        comparison = compare_fits(
            models, partition=partition, n_permutations=n_permutations, seed=seed, progress=progress
        )
        figures = draw_figures(comparison)
    page = render_page(comparison, figures, n_permutations=n_permutations, seed=seed)
    # All is made before the first file of an earlier comparison is replaced.
    write_table(comparison.table, Path(output_dir) / "comparison.tsv")
    for figure in figures:
        with atomic_path(figures_dir / f"{figure.name}.png") as temporary:
            temporary.write_bytes(figure.png)
    with atomic_path(Path(output_dir) / "report.html") as temporary:
        temporary.write_text(page, encoding="utf-8")
    return comparison


def compare_fits(
    models: Sequence[ModelFolder],
    *,
    partition: pd.Series,
    n_permutations: int = 1000,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Comparison:
    """Compare fits with a partition, without writing anything.

    Parameters
    ----------
    models, partition, n_permutations, seed, progress
        See :func:`write_comparison`.

    Returns
    -------
    Comparison

    Raises
    ------
    InputError
        See :func:`write_comparison`.
    """
    groups, first = group_fits(models), models[0]
    networks = match_partition(partition, [str(name) for name in first.regions["name"]])
    names = list(networks.index)
    fc = first.functional_connectivity.loc[names, names]
    jobs = [_Job(fit="", source="fc", seed=np.nan, similarity=fc), *_encoding_jobs(groups, names)]
    notes = [note for fit, seeds in groups.items() for note in _left_out(fit, seeds[0])]

    def step(done: int) -> None:
        if progress is not None:
            progress(done, 2 * len(jobs))

    communities = []
    has_places = {"x", "y", "z"} <= set(first.regions.columns)
    # The rotations leave the interpreter free, so communities are searched meanwhile.
    with ThreadPoolExecutor(max_workers=1) as background:
        waiting = background.submit(
            null_permutations,
            names,
            coordinates=first.regions if has_places else None,
            n_permutations=n_permutations,
            seed=seed,
        )
        for done, job in enumerate(jobs, start=1):
            communities.append(communities_for(job.similarity, networks=networks, seed=seed))
            step(done)
        nulls = waiting.result()
    if "spin" not in nulls:
        notes.append("Not all regions have coordinates: no spatial null (spin).")

    label = str(networks.name or "partition")
    tables: list[pd.DataFrame] = []
    found: dict[tuple[str, str], pd.Series] = {}
    for done, (job, own) in enumerate(zip(jobs, communities, strict=True), start=len(jobs) + 1):
        result = compare_source(
            job.similarity, source=job.source, networks=networks, nulls=nulls, communities=own
        )
        tables.append(result.table.assign(seed=job.seed, fit=job.fit))
        found.setdefault((job.fit, job.source), result.communities)
        step(done)
    tables += _correlations(jobs, nulls, partition=label)
    tables += _distances(groups, names, partition=label, n_permutations=n_permutations, seed=seed)
    table = pd.concat([table.astype({"seed": object}) for table in tables], ignore_index=True)
    table["fit"] = table["fit"].replace("", np.nan)
    return Comparison(
        table=table,
        groups=groups,
        networks=networks,
        similarities=_of_first_seeds(jobs),
        communities=found,
        notes=notes,
    )


def choose_partition(models: Sequence[ModelFolder], name: str | None = None) -> pd.Series:
    """Find the partition that a name or a file stands for, for the atlas of the fits.

    Parameters
    ----------
    models : sequence of ModelFolder
    name : str or None
        Partition of the atlas, or a file of region names and networks; None takes the atlas's
        first.

    Returns
    -------
    Series, region name -> network
        With the atlas's names also where a file spells them another way.

    Raises
    ------
    InputError
        If the atlas has no such partition, the regions are of no known atlas and `name` is no
        file, or the file cannot be used.
    """
    atlas_name = models[0].data.get("atlas")
    is_file = name is not None and (Path(name).suffix != "" or Path(name).is_file())
    if atlas_name is None and not is_file:
        msg = (
            f"{models[0].path}: its regions are of no known atlas; give --partition a file with "
            "the columns name and network, separated by a tab."
        )
        raise InputError(msg)
    atlas = None if atlas_name is None else atlases.load(atlas_name)
    if not is_file:
        assert atlas is not None
        return atlas.partition(name or atlas.partitions[0])
    partition = atlases.read_partition(str(name))
    if atlas is None or set(models[0].regions["name"]) <= set(partition.index):
        return partition
    found = atlas.match([str(region) for region in partition.index], source=str(name)).regions
    if len(found) < 0.95 * len(partition):
        return partition
    return partition.iloc[found["column"]].set_axis(pd.Index(found["name"]))


def default_folder(models: Sequence[ModelFolder]) -> Path:
    """Return the folder that holds the model folders.

    Raises
    ------
    InputError
        If they are in different folders.
    """
    folders = sorted({model.path.resolve().parent for model in models})
    if len(folders) > 1:
        msg = (
            f"the models are in {len(folders)} folders (first: {folders[0]}, {folders[1]}); "
            "say with --output-dir where the report goes."
        )
        raise InputError(msg)
    return models[0].path.parent


def _encodings(model: ModelFolder) -> dict[str, pd.DataFrame]:
    """Return the encoding and the learned change of a fit, as far as it has them."""
    found = {"pe": model.positional_encoding, "change": model.positional_encoding_change}
    return {
        source: table
        for source, table in found.items()
        if table is not None and np.any(table.to_numpy(dtype=float))
    }


def _encoding_jobs(groups: dict[str, list[ModelFolder]], names: list[str]) -> list[_Job]:
    jobs = []
    for fit, seeds in groups.items():
        for model in seeds:
            for source, encoding in _encodings(model).items():
                cosine = cosine_similarity(encoding.loc[names].to_numpy())
                matrix = pd.DataFrame(cosine, index=names, columns=names)
                job = _Job(fit=fit, source=source, seed=model.settings.seed, similarity=matrix)
                jobs.append(job)
    return jobs


def _of_first_seeds(jobs: list[_Job]) -> dict[tuple[str, str], pd.DataFrame]:
    """Keep one matrix a fit and source, connectivity last, as the figures are shown."""
    similarities: dict[tuple[str, str], pd.DataFrame] = {}
    for job in [*jobs[1:], jobs[0]]:
        similarities.setdefault((job.fit, job.source), job.similarity)
    return similarities


def _check_replaceable(path: Path) -> None:
    """Refuse to replace a table that is not of an earlier comparison."""
    if path.exists() and path.read_bytes()[:12] != b"source\tseed\t":
        msg = f"{path}: not the table of an earlier comparison; choose another --output-dir."
        raise InputError(msg)


def _left_out(fit: str, model: ModelFolder) -> list[str]:
    """Say what a fit has no numbers for, and warn of it."""
    sources = _encodings(model)
    note = ""
    if "pe" not in sources:
        note = f"{fit}: no positional encoding to compare; only its errors are shown."
    elif "change" not in sources:
        note = f"{fit}: its encoding is as it started; there is no learned change to compare."
    if note:
        warnings.warn(note, stacklevel=3)
    return [note] if note else []


def _correlations(
    jobs: list[_Job],
    nulls: Mapping[str, np.ndarray],
    *,
    partition: str,
) -> list[pd.DataFrame]:
    """Correlations of all similarities with functional connectivity, the first of the jobs."""
    fc, *others = jobs
    if not others:
        return []
    matrices = [job.similarity.to_numpy() for job in others]
    reference = fc.similarity.to_numpy()
    draws = {null: correlation_draws(matrices, reference, orders) for null, orders in nulls.items()}
    tables = []
    for position, job in enumerate(others):
        own = {null: values[position] for null, values in draws.items()}
        rows = null_rows(own, statistic="correlation_with_fc", network="all")
        table = tabulate(rows, source=job.source, partition=partition, seed=job.seed)
        tables.append(table.assign(fit=job.fit))
    return tables


def _distances(
    groups: dict[str, list[ModelFolder]],
    names: list[str],
    *,
    partition: str,
    n_permutations: int,
    seed: int,
) -> list[pd.DataFrame]:
    """Procrustes distances between the seeds of each fit."""
    count = min(n_permutations, PROCRUSTES_PERMUTATIONS)
    orders = label_permutations(len(names), n_permutations=count, seed=seed)
    tables = []
    for fit, seeds in groups.items():
        encodings = [_encodings(model) for model in seeds]
        for one, two in combinations(range(len(seeds)), 2):
            pair = f"{seeds[one].settings.seed}-{seeds[two].settings.seed}"
            for source in ("pe", "change"):
                if source not in encodings[one] or source not in encodings[two]:
                    continue
                draws = procrustes_draws(
                    encodings[one][source].loc[names].to_numpy(),
                    encodings[two][source].loc[names].to_numpy(),
                    orders,
                )
                rows = null_rows(
                    {"label_permutation": draws}, statistic="procrustes", network="all"
                )
                table = tabulate(rows, source=source, partition=partition, seed=pair)
                tables.append(table.assign(fit=fit))
    return tables
