"""A sweep of Latin Square Task fits as people read it: printed table, figures, report."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy import stats
from scipy.spatial.distance import pdist, squareform

from neuro_pe._report_page import PageFigure, page_figure
from neuro_pe.plotting import COLOURS, INK
from neuro_pe.synthetic._fits import mean_interval, without_sigma
from neuro_pe.synthetic.lst_folder import LatinSquareFolder
from neuro_pe.synthetic.lst_sweep import UNLIKE, LatinSquareSweep
from neuro_pe.synthetic.lst_truth import grid_distances
from neuro_pe.synthetic.page import (
    CORE_SECONDS,
    NOTHING,
    PageTable,
    page_text,
    spread_text,
    write_page,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["lst_tables", "lst_text", "write_lst_report"]

SPLITS = {"train": "trained on", "heldout": "held out", "unlike": "unlike"}
STRUCTURE_HEADER = ["Procrustes", "of change", "line", "line of change", "grid", "grid of change"]
STRUCTURE_HEADER += ["attention", "encodings moved", "encoder moved"]
READING = (
    "Chance is one over the size of the square. Puzzles that are held out were drawn like those "
    "trained on; unlike puzzles share at most a fifth of their (cell, symbol) pairs with any of "
    "them. For squares of size 4 they are the 108 that people solved.",
    "The last epoch is shown: no puzzle chose it. Intervals are over seeds (t distribution), so "
    "they say what chance in training can do.",
    "Procrustes: distance to the sinusoids of row and column (2d-fixed), the sum of squared "
    "differences after both are centred, scaled to norm 1 and rotated or reflected to fit best, "
    "mean over the encodings of all blocks; 0 is equal, 2 the most. Beside it stands its mean when "
    "cells are permuted: with more dimensions than cells even unrelated encodings come close.",
    "Line: rank correlation, over pairs of cells, of their distance in the encoding with "
    "being in different rows and columns; the task asks for nothing but lines. Grid: the same with "
    "the distance over rows and columns. Both are about 0 for an encoding that knows neither.",
    "Attention: correlation of the attention maps, block by block, with the mean of those of the "
    "other 2d-fixed networks of this sweep with as many heads; empty without any.",
    "The learned change is the encoding minus its start. A start with a large sigma hides what was "
    "learned on top of it.",
    "Moved: norm of learned minus initial weights over that of the initial ones. Little is the "
    "lazy regime, much the rich one.",
    CORE_SECONDS,
)


def lst_tables(sweep: LatinSquareSweep) -> list[PageTable]:
    """Lay the numbers of a sweep out.

    Parameters
    ----------
    sweep : LatinSquareSweep
    """
    settings = sweep.settings.to_dict("records")
    accuracy = PageTable(
        title="Accuracy",
        text="Share of puzzles solved at the last epoch: mean over seeds [95 % interval], and the "
        "lowest of the seeds for the unlike ones.",
        header=["setting", "seeds", *SPLITS.values(), "lowest", "core-s"],
        rows=[
            [
                row["fit"],
                str(row["n_seeds"]),
                *(_cell(row, split) for split in SPLITS),
                f"{row['unlike_min']:.3f}",
                f"{row['core_seconds']:.0f}",
            ]
            for row in settings
        ],
    )
    structure = PageTable(
        title="What was learned of rows and columns",
        text="Mean over seeds and blocks; in brackets the mean when cells are permuted.",
        header=["setting", *STRUCTURE_HEADER],
        rows=[
            [
                row["fit"],
                *(
                    _number(row, f"{source}_{statistic}", null=statistic == "procrustes")
                    for statistic in ("procrustes", "line_correlation", "grid_correlation")
                    for source in ("pe", "change")
                ),
                _number(row, "attention_correlation_with_2d_fixed"),
                _number(row, "encodings_moved"),
                _number(row, "encoder_moved"),
            ]
            for row in settings
        ],
    )
    return [accuracy, structure, _by_complexity(sweep.accuracies)]


def _cell(row: dict[Any, Any], split: str) -> str:
    return spread_text(row[split], row[f"{split}_low"], row[f"{split}_high"])


def _number(row: dict[Any, Any], name: str, *, null: bool = False) -> str:
    value = row.get(name, np.nan)
    if pd.isna(value):
        return ""
    beside = row.get(f"{name}_null", np.nan)
    return f"{value:.3f}" + (f" ({beside:.3f})" if null and not pd.isna(beside) else "")


def _by_complexity(accuracies: pd.DataFrame) -> PageTable:
    """Accuracy on the unlike puzzles, by complexity."""
    chosen = _last(accuracies)
    chosen = chosen[chosen["split"].isin(UNLIKE) & (chosen["complexity"] != "all")]
    levels = sorted(chosen["complexity"].unique())
    rows = []
    for fit, group in chosen.groupby("fit", sort=False):
        cells = []
        for level in levels:
            values = group.loc[group["complexity"] == level, "accuracy"]
            cells.append(spread_text(*mean_interval(values, limits=(0, 1))))
        rows.append([str(fit), *cells])
    return PageTable(
        title="Unlike puzzles by complexity",
        text="Rows and columns that have to be combined. Mean over seeds [95 % interval].",
        header=["setting", *(f"{level}" for level in levels)],
        rows=rows,
    )


def _last(accuracies: pd.DataFrame) -> pd.DataFrame:
    newest = accuracies.groupby(["fit", "seed"])["epoch"].transform("max")
    return accuracies[accuracies["epoch"] == newest]


def lst_text(sweep: LatinSquareSweep) -> str:
    """Return what the end of a sweep prints: accuracy, structure, what goes with sigma."""
    if not len(sweep.settings):
        return NOTHING
    return page_text(lst_tables(sweep)[:2], _sigma_lines(sweep.settings))


def _by_sigma(settings: pd.DataFrame, n_sigmas: int) -> dict[str, pd.DataFrame]:
    """Learned encodings of several sigmas that differ in nothing else, by what they share."""
    learned = settings[settings["encoding"] == "learn"].sort_values("sigma")
    return {
        str(label): group
        for label, group in learned.groupby(learned["fit"].map(without_sigma), sort=False)
        if len(group) >= n_sigmas
    }


def _sigma_lines(settings: pd.DataFrame) -> list[str]:
    lines = []
    for label, group in _by_sigma(settings, 3).items():
        found = [
            f"{text} {stats.spearmanr(group['sigma'], group[name].astype(float)).statistic:+.2f}"
            for name, text in (
                ("unlike", "accuracy"),
                ("pe_procrustes", "Procrustes distance"),
                ("change_procrustes", "that of the learned change"),
            )
        ]
        lines.append(
            f"Rank correlation with sigma ({len(group)} sigmas, {label}): {', '.join(found)}."
        )
    return lines


def write_lst_report(sweep: LatinSquareSweep, output_dir: str | os.PathLike[str]) -> Path:
    """Write ``figures/`` and ``report.html`` into the folder of a sweep.

    Parameters
    ----------
    sweep : LatinSquareSweep
    output_dir : path-like

    Returns
    -------
    Path
        Of the report.
    """
    n_failed = len(sweep.failed)
    return write_page(
        output_dir,
        title="Did the positional encoding learn rows and columns?",
        lead=f"Latin Square Task: {len(sweep.folders)} fits of {len(sweep.settings)} settings.",
        notes=[f"{n_failed} fits failed and are left out."] if n_failed else [],
        tables=lst_tables(sweep),
        figures=_figures(sweep),
        reading=[*READING, *_sigma_lines(sweep.settings)],
    )


def _figures(sweep: LatinSquareSweep) -> list[PageFigure]:
    figures = []
    if _by_sigma(sweep.settings, 2):
        caption = (
            "Accuracy and Procrustes distance against sigma. Dots are fits, lines means over "
            "seeds; thin lines, the distance with cells permuted."
        )
        figures.append(page_figure("lst_sigma", caption, _plot_sigma(sweep)))
    caption = "Accuracy of every fit on unlike puzzles; the line is chance."
    figures.append(page_figure("lst_accuracy", caption, _plot_accuracy(sweep)))
    shown = [each for each in sweep.folders if each.positional_encoding_change is not None]
    learned = [each for each in shown if each.settings.encoding == "learn"]
    if learned:
        first = {each.path.name.rpartition("_seed-")[0]: each for each in reversed(learned)}
        order = sorted(first.values(), key=lambda each: each.settings.sigma)
        for each in dict.fromkeys([order[0], order[-1]]):
            name = each.path.name
            caption = (
                f"Distances between cells, row by row: truth, the first encoding of {name}, and "
                "its learned change."
            )
            figures.append(page_figure(f"lst_distances_{name}", caption, _plot_distances(each)))
    return figures


def _plot_sigma(sweep: LatinSquareSweep) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4.5), layout="constrained")
    left, right = figure.subplots(1, 2)
    last = _last(sweep.accuracies)
    last = last[last["split"].isin(UNLIKE) & (last["complexity"] == "all")]
    groups = _by_sigma(sweep.settings, 2)
    for number, (label, rows) in enumerate(groups.items()):
        colour = COLOURS[number % len(COLOURS)]
        for split, style in (("unlike", "-"), ("heldout", "--")):
            name = f"{label}: {SPLITS[split]}"
            left.plot(rows["sigma"], rows[split], style, color=colour, label=name)
        fits = last[last["fit"].isin(rows["fit"])]
        left.plot(fits["sigma"], fits["accuracy"], ".", color=colour, alpha=0.5)
        for source, style, null in (("pe", "-", ":"), ("change", "--", "-.")):
            name = f"{label}: {'encoding' if source == 'pe' else 'learned change'}"
            column = f"{source}_procrustes"
            if column in rows:
                right.plot(rows["sigma"], rows[column], style, color=colour, label=name)
                permuted = rows[f"{column}_null"]
                name = f"{name}, cells permuted"
                right.plot(rows["sigma"], permuted, null, color=colour, lw=1, label=name)
    left.set(ylabel="accuracy", ylim=(0, 1.02))
    right.set(ylabel="Procrustes distance to 2d-fixed")
    sigmas = sorted({sigma for rows in groups.values() for sigma in rows["sigma"]})
    for axes in (left, right):
        axes.set(xscale="log", xlabel="sigma")
        axes.set_xticks(sigmas, [f"{sigma:g}" for sigma in sigmas])
        axes.minorticks_off()
        axes.spines[["top", "right"]].set_visible(False)
    figure.legend(frameon=False, fontsize="small", loc="outside lower center", ncols=2)
    return figure


def _plot_accuracy(sweep: LatinSquareSweep) -> Figure:
    from matplotlib.figure import Figure

    last = _last(sweep.accuracies)
    last = last[last["split"].isin(UNLIKE) & (last["complexity"] == "all")]
    order = list(sweep.settings.sort_values("unlike")["fit"])
    figure = Figure(figsize=(9, 0.32 * len(order) + 1.2), layout="constrained")
    axes = figure.subplots()
    for place, fit in enumerate(order):
        values = last.loc[last["fit"] == fit, "accuracy"]
        axes.plot(values, [place] * len(values), "o", color=COLOURS[0], ms=4, alpha=0.6)
        axes.plot(1 / int(last.loc[last["fit"] == fit, "size"].iloc[0]), place, "|", color=INK)
    axes.set(yticks=range(len(order)), xlabel="accuracy on unlike puzzles", xlim=(0, 1.02))
    axes.set_yticklabels(order, fontsize="small")
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def _plot_distances(folder: LatinSquareFolder) -> Figure:
    from matplotlib.figure import Figure

    truth = grid_distances(folder.size)
    panels = {"over rows and columns": truth["grid"], "other row and column": truth["line"]}
    for name, table in (
        ("encoding", folder.positional_encoding),
        ("learned change", folder.positional_encoding_change),
    ):
        assert table is not None
        first = table.to_numpy()[:, : folder.settings.width]
        panels[name] = squareform(pdist(first))
    figure = Figure(figsize=(11, 3.2), layout="constrained")
    for axes, (title, matrix) in zip(figure.subplots(1, len(panels)), panels.items(), strict=True):
        away = matrix[~np.eye(len(matrix), dtype=bool)]
        axes.imshow(matrix, cmap="viridis", vmin=away.min(), vmax=away.max())
        axes.set(title=title, xticks=[], yticks=[], xlabel="cells, row by row")
    return figure
