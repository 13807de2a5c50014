"""A sweep over simulated networks as people read it: printed table, figures, report."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from neuro_pe._report_page import PageFigure, page_figure
from neuro_pe.comparison import cosine_similarity
from neuro_pe.model_folder import read_model_folder
from neuro_pe.plotting import COLOURS, INK, plot_similarity
from neuro_pe.synthetic._fits import without_sigma
from neuro_pe.synthetic.nmar_results import SOURCES
from neuro_pe.synthetic.nmar_sweep import NmarSweep, modules_of
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

__all__ = ["nmar_tables", "nmar_text", "write_nmar_report"]

LABELS = {"pe": "encoding", "change": "learned change", "fc": "functional connectivity"}
PREDICTORS = ("noise_ceiling", "space_time_gaussian", "gaussian", "visible_mean", "zero")
READING = (
    "MSE is that of hidden regions of unseen subjects, 1 being the variance of a region. The noise "
    "ceiling is the posterior mean of the hidden values under the equations that made the data: "
    "nothing can do better.",
    "Other predictors, fitted to the same training subjects: zero is the mean of a region; "
    "visible_mean the mean of the visible regions at that time; gaussian the conditional mean of "
    "the hidden regions given the visible ones at that time, and space_time_gaussian given all of "
    "the window, under a normal distribution (a ridge chosen on validation subjects).",
    "pe is the positional encoding, change what was learned of it, fc functional connectivity "
    "(correlation in the training subjects). in-out: mean similarity of pairs of one module minus "
    "that of pairs of two.",
    "ARI compares communities found in the similarities with the true modules: 0 is chance, 1 is "
    "equal. The resolution with the highest ARI is taken, for connectivity as for encodings.",
    "The learned change is the encoding minus its start. A start with a large sigma hides what was "
    "learned on top of it.",
    "Weights: correlation, over pairs of regions, of similarity with the strength of the true "
    "coupling in either direction.",
    "Every seed draws a network, its noise and a model, and every setting has the same networks. "
    "Intervals are over seeds. The F-test takes a fit as its unit and knows nothing of that "
    "pairing.",
    CORE_SECONDS,
)


def nmar_tables(sweep: NmarSweep) -> list[PageTable]:
    """Lay the numbers of a sweep out.

    Parameters
    ----------
    sweep : NmarSweep
    """
    settings = sweep.settings.to_dict("records")
    errors = PageTable(
        title="Reconstruction of hidden regions",
        text="Mean squared error on unseen subjects, mean over seeds.",
        header=["setting", "seeds", "model", *PREDICTORS, "core-s"],
        rows=[
            [
                row["fit"],
                str(row["n_seeds"]),
                *(_number(row, f"mse_{name}", digits=4) for name in ("model", *PREDICTORS)),
                _number(row, "core_seconds", digits=0),
            ]
            for row in settings
        ],
    )
    structure = PageTable(
        title="Modules",
        text="ARI with the true modules, mean over seeds [95 % interval] (with labels permuted); "
        "similarity within minus between modules (in-out); correlation with the true weights.",
        header=[
            "setting",
            *(f"{what}: {name}" for what in ("ARI", "in-out", "weights") for name in SOURCES),
        ],
        rows=[
            [
                row["fit"],
                *(_ari(row, name) for name in SOURCES),
                *(_number(row, f"{name}_within_minus_between") for name in SOURCES),
                *(_number(row, f"{name}_correlation_with_weights") for name in SOURCES),
            ]
            for row in settings
        ],
    )
    return [errors, structure]


def _ari(row: dict[Any, Any], source: str) -> str:
    names = [f"{source}_ari{end}" for end in ("", "_low", "_high")]
    text = spread_text(*(row.get(name, np.nan) for name in names))
    return f"{text} ({row[f'{source}_ari_null']:.3f})" if text else ""


def _number(row: dict[Any, Any], name: str, *, digits: int = 3) -> str:
    value = row.get(name, np.nan)
    return "" if pd.isna(value) else f"{value:.{digits}f}"


def nmar_text(sweep: NmarSweep) -> str:
    """Return what the end of a sweep prints."""
    if not len(sweep.settings):
        return NOTHING
    return page_text(nmar_tables(sweep), _test_lines(sweep))


def _test_lines(sweep: NmarSweep) -> list[str]:
    return [
        f"F-test of the model's MSE over settings, {row['network']}: F({row['df_between']}, "
        f"{row['df_within']}) = {row['f']:.3g}, p = {row['p']:.2g}."
        for row in sweep.tests.to_dict("records")
    ]


def write_nmar_report(sweep: NmarSweep, output_dir: str | os.PathLike[str]) -> Path:
    """Write ``figures/`` and ``report.html`` into the folder of a sweep.

    Parameters
    ----------
    sweep : NmarSweep
    output_dir : path-like

    Returns
    -------
    Path
        Of the report.
    """
    n_failed = len(sweep.failed)
    return write_page(
        output_dir,
        title="Did the positional encoding find the modules of a simulated network?",
        lead=f"NMAR: {len(sweep.fits)} fits of {len(sweep.settings)} settings.",
        notes=[f"{n_failed} fits failed and are left out."] if n_failed else [],
        tables=nmar_tables(sweep),
        figures=_figures(sweep),
        reading=[*READING, *_test_lines(sweep)],
    )


def _figures(sweep: NmarSweep) -> list[PageFigure]:
    figures = []
    learned = sweep.settings[sweep.settings["encoding"] == "learn"]
    if learned["sigma"].nunique() > 1:
        caption = (
            "Agreement with the true modules, and error, against sigma: means over seeds. Dotted: "
            "functional connectivity, and the noise ceiling."
        )
        figures.append(page_figure("nmar_sigma", caption, _plot_sigma(learned)))
    shown = [fit for fit in sweep.fits if fit.job.arguments["encoding"] == "learn"]
    first = min((fit.job.arguments["seed"] for fit in shown), default=0)
    shown = [fit for fit in shown if fit.job.arguments["seed"] == first]
    shown.sort(key=lambda fit: fit.job.arguments["sigma"])
    for path in dict.fromkeys(fit.path for fit in (shown[:1] + shown[-1:])):
        figures += _similarities(path)
    return figures


def _similarities(path: Path) -> list[PageFigure]:
    model, modules = read_model_folder(path), modules_of(path.parent)
    found = []
    for source, table in (
        ("pe", model.positional_encoding),
        ("change", model.positional_encoding_change),
    ):
        assert table is not None
        similar = cosine_similarity(table.to_numpy())
        matrix = pd.DataFrame(similar, index=table.index, columns=table.index)
        drawn = plot_similarity(
            matrix, modules, title=LABELS[source].capitalize(), label="cosine similarity"
        )
        caption = f"Similarity of regions, sorted by module: {LABELS[source]} of {path.name}."
        found.append(page_figure(f"nmar_{source}_{path.name}", caption, drawn))
    return found


def _plot_sigma(learned: pd.DataFrame) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4.5), layout="constrained")
    left, right = figure.subplots(1, 2)
    groups = learned.groupby(learned["fit"].map(without_sigma), sort=False)
    for number, (setting, rows) in enumerate(groups):
        colour = COLOURS[number % len(COLOURS)]
        rows = rows.sort_values("sigma")
        for source, style in (("pe", "-"), ("change", "--"), ("fc", ":")):
            if (column := f"{source}_ari") in rows:  # an encoding that stayed as it was has none
                label = f"{setting}, {LABELS[source]}"
                left.plot(rows["sigma"], rows[column], style, color=colour, marker=".", label=label)
        right.plot(rows["sigma"], rows["mse_model"], "-", color=colour, marker=".")
        right.plot(rows["sigma"], rows["mse_noise_ceiling"], ":", color=colour)
    sigmas = sorted(learned["sigma"].unique())
    for axes, label in ((left, "ARI with the true modules"), (right, "MSE of hidden regions")):
        axes.set(xscale="log", xlabel="sigma", ylabel=label)
        axes.set_xticks(sigmas, [f"{sigma:g}" for sigma in sigmas])
        axes.minorticks_off()
        axes.spines[["top", "right"]].set_visible(False)
    left.axhline(0, color=INK, lw=0.5)
    figure.legend(frameon=False, fontsize="small", loc="outside lower center", ncols=3)
    return figure
