"""The sigma curve of a sweep."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from neuro_pe._sweep_summary import OPTIONS, SPLITS, SweepSummary, label_of
from neuro_pe.plotting import COLOURS, INK
from neuro_pe.settings import uses_sigma

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["plot_sigma_curve"]

BASELINE_STYLES = {
    "visible_mean": ":",
    "gaussian": "-.",
    "space_time_gaussian": "--",
}


def plot_sigma_curve(summary: SweepSummary) -> Figure:
    """Draw validation and test MSE against sigma, beside the baselines.

    Parameters
    ----------
    summary : SweepSummary

    Returns
    -------
    Figure
        Dots are fits, lines the means over seeds, bars their 95 % intervals. Encodings without
        sigma are horizontal lines, as are the baselines if all settings share them.
    """
    from matplotlib.figure import Figure

    done = summary.table[summary.table["status"] == "done"]
    varied = [name for name in OPTIONS if name != "seed" and done[name].nunique(dropna=False) > 1]
    curves = summary.settings.assign(
        curve=[
            label_of(row, varied).replace(f", sigma {row['sigma']:g}", "")
            for row in summary.settings.to_dict("records")
        ]
    )
    splits = [split for split in SPLITS if done[f"{split}_mse"].notna().any()]
    figure = Figure(figsize=(4.6 * len(splits), 4.2), layout="constrained")
    axes = figure.subplots(1, len(splits), squeeze=False)[0]
    for ax, split in zip(axes, splits, strict=True):
        for number, (label, rows) in enumerate(curves.groupby("curve", sort=False)):
            colour = COLOURS[number % len(COLOURS)]
            _draw(ax, rows, split, str(label), colour)
            if uses_sigma(rows["encoding"].iloc[0]):
                fits = done.merge(rows[[name for name in OPTIONS if name != "seed"]])
                ax.plot(fits["sigma"], fits[f"{split}_mse"], ".", color=colour, ms=4, alpha=0.5)
        for name, style in BASELINE_STYLES.items():
            errors = done.get(f"{split}_mse_{name}", pd.Series(dtype=float)).dropna()
            if len(errors) and errors.max() - errors.min() < 1e-6:
                label = name.replace("_", " ")
                ax.axhline(errors.iloc[0], ls=style, color=INK, lw=1, label=label)
        sigmas = sorted(curves.loc[curves["encoding"].map(uses_sigma), "sigma"].unique())
        ax.set(xscale="log", xlabel="sigma", ylabel="MSE of hidden regions", title=split)
        ax.set_xticks(sigmas, [f"{sigma:g}" for sigma in sigmas])
        ax.minorticks_off()
        ax.spines[["top", "right"]].set_visible(False)
    axes[-1].legend(frameon=False, fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def _draw(ax: Axes, rows: pd.DataFrame, split: str, label: str, colour: str) -> None:
    rows = rows.sort_values("sigma")
    means = rows[f"{split}_mse"]
    if uses_sigma(rows["encoding"].iloc[0]):
        half = (means - rows[f"{split}_low"]).fillna(0)
        ax.errorbar(rows["sigma"], means, yerr=half, color=colour, capsize=3, label=label)
    else:
        ax.axhline(means.iloc[0], color=colour, label=label)
