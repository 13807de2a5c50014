"""Figures of what an encoding learned; tables in, a matplotlib figure out.

The figures are made without pyplot: no window opens, the backend stays the user's, and nothing
is kept in memory after the figure is dropped. Save one with ``figure.savefig(file)``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from neuro_pe.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "plot_communities",
    "plot_network_errors",
    "plot_region_errors",
    "plot_similarity",
    "plot_similarity_against_fc",
]

# Okabe and Ito's palette without yellow (faint on white), then four of Tol's muted colours.
COLOURS = (
    "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9",
    "#000000", "#999933", "#332288", "#882255", "#44AA99", "#AA4499",
)  # fmt: skip
SMALL = "#D0D0D0"
INK = "#333333"


def plot_similarity(
    similarity: pd.DataFrame, networks: pd.Series, *, title: str = "", label: str = "similarity"
) -> Figure:
    """Similarity matrix with the regions sorted by network.

    Parameters
    ----------
    similarity : DataFrame, region x region
        Indexed by region name.
    networks : Series, region name -> network
        Regions without a network are left out.
    title : str
    label : str
        What the colours mean.

    Returns
    -------
    Figure
        Colours end at the 99th percentile of the absolute similarity of region pairs.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> from neuro_pe.plotting import plot_similarity
    >>> names = list("abcd")
    >>> matrix = pd.DataFrame(np.eye(4), index=names, columns=names)
    >>> figure = plot_similarity(matrix, pd.Series(list("VVDD"), index=names), title="PE")
    >>> figure.axes[0].get_title()
    'PE'
    """
    networks = networks.dropna().astype(str)
    order = networks.sort_values(kind="stable").index
    matrix = similarity.loc[order, order].to_numpy(dtype=float)
    sizes = networks.value_counts().sort_index()
    ends = np.cumsum(sizes.to_numpy())
    centres = ends - sizes.to_numpy() / 2 - 0.5
    pairs = np.abs(matrix[~np.eye(len(matrix), dtype=bool)])
    limit = float(np.quantile(pairs, 0.99)) or 1.0

    # Inches; a layout engine would take as long as the drawing.
    names = 0.4 + 0.085 * max(map(len, sizes.index))
    width = names + 6.4
    figure = _figure(width, 5.7)
    axes = figure.add_axes((names / width, 0.06, 5.1 / width, 5.1 / 5.7))
    image = axes.imshow(matrix, cmap="RdBu_r", vmin=-limit, vmax=limit, interpolation="nearest")
    for end in ends[:-1]:
        axes.axhline(end - 0.5, color=INK, linewidth=0.5)
        axes.axvline(end - 0.5, color=INK, linewidth=0.5)
    axes.set(xticks=[], yticks=[], title=title, xlabel=f"{len(matrix)} regions, sorted by network")
    # Small networks would have their names on top of each other: spread them, keep a line.
    places = _spread(centres, gap=len(matrix) / 30, end=len(matrix) - 1)
    beside = axes.get_yaxis_transform()
    for name, centre, place in zip(sizes.index, centres, places, strict=True):
        axes.plot(
            [-0.005, -0.04], [centre, place], color="#888888", linewidth=0.6, transform=beside,
            clip_on=False,
        )  # fmt: skip
        axes.text(-0.05, place, name, transform=beside, ha="right", va="center", fontsize=9)
    place = figure.add_axes(((names + 5.3) / width, 0.2, 0.15 / width, 0.6))
    figure.colorbar(image, cax=place, label=label, extend="both")
    return figure


def plot_similarity_against_fc(
    similarity: pd.DataFrame,
    functional_connectivity: pd.DataFrame,
    networks: pd.Series,
    *,
    title: str = "",
) -> Figure:
    """Similarity of encodings against functional connectivity, one point a region pair.

    Parameters
    ----------
    similarity, functional_connectivity : DataFrame, region x region
        Indexed by region name.
    networks : Series, region name -> network
        Regions without a network are left out.
    title : str

    Returns
    -------
    Figure
        Hexagons count pairs; the lines are means of pairs in the same network and in different
        networks, by functional connectivity.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> from neuro_pe.plotting import plot_similarity_against_fc
    >>> names = list("abcd")
    >>> fc = pd.DataFrame(np.arange(16.0).reshape(4, 4), index=names, columns=names)
    >>> figure = plot_similarity_against_fc(fc, fc, pd.Series(list("VVDD"), index=names))
    >>> figure.axes[0].get_xlabel()
    'functional connectivity (r)'
    """
    from scipy.stats import binned_statistic

    networks = networks.dropna().astype(str)
    names = networks.index
    pairs = np.triu_indices(len(names), k=1)
    x = functional_connectivity.loc[names, names].to_numpy(dtype=float)[pairs]
    y = similarity.loc[names, names].to_numpy(dtype=float)[pairs]
    same = (networks.to_numpy()[:, None] == networks.to_numpy()[None, :])[pairs]
    varied = len(x) > 1 and np.ptp(x) > 0 and np.ptp(y) > 0
    r = float(np.corrcoef(x, y)[0, 1]) if varied else float("nan")

    figure = _figure(6.8, 4.8)
    axes = figure.add_axes((0.12, 0.12, 0.68, 0.79))
    image = axes.hexbin(x, y, gridsize=60, bins="log", cmap="Greys", mincnt=1, linewidths=0.1)
    low, high = np.quantile(x, [0.001, 0.999])
    edges = np.linspace(low, high, 21)
    lines = ((same, COLOURS[3], "same network"), (~same, COLOURS[0], "different networks"))
    for members, colour, name in lines:
        count, _, _ = binned_statistic(x[members], None, "count", edges)
        mean, _, _ = binned_statistic(x[members], y[members], "mean", edges)
        # A mean of few pairs says little.
        mean[count < 10] = np.nan
        centre = (edges[:-1] + edges[1:]) / 2
        axes.plot(centre, mean, color=colour, linewidth=2, marker="o", markersize=3, label=name)
    axes.axhline(0, color="#888888", linewidth=0.6, zorder=0)
    axes.set(
        xlabel="functional connectivity (r)",
        ylabel="similarity of encodings (cosine)",
        title=f"{title}   r = {r:.2f}".strip(),
    )
    axes.legend(frameon=False, loc="upper left", title="mean of region pairs in")
    place = figure.add_axes((0.83, 0.12, 0.025, 0.79))
    scale = figure.colorbar(image, cax=place, label="region pairs")
    scale.ax.minorticks_off()
    return figure


def plot_communities(
    coordinates: pd.DataFrame, communities: pd.Series, networks: pd.Series, *, title: str = ""
) -> Figure:
    """Glass brain with the regions in the colours of the communities found.

    Parameters
    ----------
    coordinates : DataFrame
        Columns ``x``, ``y``, ``z`` (MNI, mm), indexed by region name.
    communities : Series, region name -> community
    networks : Series, region name -> network
        The legend names the network that most regions of a community belong to.
    title : str

    Returns
    -------
    Figure
        The twelve largest communities have a colour of their own; the others are grey.

    Examples
    --------
    >>> import pandas as pd
    >>> from neuro_pe.plotting import plot_communities
    >>> xyz = pd.DataFrame({"x": [-40.0, 40.0], "y": 0.0, "z": 20.0}, index=["L", "R"])
    >>> figure = plot_communities(xyz, pd.Series([0, 1], index=xyz.index),
    ...                           pd.Series(["SomMot", "SomMot"], index=xyz.index))
    >>> [text.get_text() for text in figure.legends[0].get_texts()]
    ['SomMot 1 of 1', 'SomMot 1 of 1']
    """
    from matplotlib.colors import ListedColormap
    from matplotlib.lines import Line2D

    sizes = communities.value_counts().sort_values(ascending=False, kind="stable")
    shown = list(sizes.index[: len(COLOURS)])
    rank = {community: position for position, community in enumerate(shown)}
    values = [rank.get(community, len(COLOURS)) for community in communities]
    entries = []
    for community in shown:
        members = networks[communities.index[communities == community]].astype(str)
        top, count = next(iter(members.value_counts().items()))
        entries.append((COLOURS[rank[community]], f"{top} {count} of {len(members)}"))
    if len(sizes) > len(shown):
        rest = int(sizes.iloc[len(shown) :].sum())
        entries.append((SMALL, f"{len(sizes) - len(shown)} smaller ({rest} regions)"))
    handles = [
        Line2D([], [], color=colour, label=text, marker="o", linestyle="", markersize=7)
        for colour, text in entries
    ]

    figure = _figure(11.0, 4.3)
    _glass_brain(
        figure.add_axes((0.0, 0.27, 1.0, 0.62)),
        coordinates.loc[communities.index],
        values,
        cmap=ListedColormap([*COLOURS, SMALL]),
        limits=(0, len(COLOURS)),
    )
    figure.suptitle(title, y=0.98)
    figure.legend(
        handles=handles, loc="lower center", ncols=min(5, len(handles)), frameon=False, fontsize=9,
        title="community found: its most frequent network",
    )  # fmt: skip
    return figure


def plot_region_errors(
    coordinates: pd.DataFrame, errors: pd.Series, *, title: str = "", label: str = "MSE"
) -> Figure:
    """Glass brain with the regions coloured by their reconstruction error, or by R2.

    Parameters
    ----------
    coordinates : DataFrame
        Columns ``x``, ``y``, ``z`` (MNI, mm), indexed by region name.
    errors : Series, region name -> error or R2
    title : str
    label : str
        What the colours mean, with its unit.

    Returns
    -------
    Figure
        Colours end at the 2nd and 98th percentile.

    Examples
    --------
    >>> import pandas as pd
    >>> from neuro_pe.plotting import plot_region_errors
    >>> xyz = pd.DataFrame({"x": [-40.0, 40.0], "y": 0.0, "z": 20.0}, index=["L", "R"])
    >>> figure = plot_region_errors(xyz, pd.Series({"L": 0.6, "R": 0.8}), label="MSE (a.u.)")
    >>> figure.axes[-1].get_xlabel()
    'MSE (a.u.)'
    """
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    errors = errors.dropna()
    low, high = np.quantile(errors, [0.02, 0.98])
    high = high if high > low else low + 1e-6
    figure = _figure(11.0, 3.8)
    _glass_brain(
        figure.add_axes((0.0, 0.22, 1.0, 0.68)),
        coordinates.loc[errors.index],
        np.clip(errors, low, high),
        cmap="cividis",
        limits=(low, high),
    )
    figure.suptitle(title, y=0.98)
    scale = ScalarMappable(norm=Normalize(low, high), cmap="cividis")
    place = figure.add_axes((0.3, 0.17, 0.4, 0.035))
    figure.colorbar(scale, cax=place, orientation="horizontal", label=label, extend="both")
    return figure


def plot_network_errors(
    region_errors: pd.DataFrame, networks: pd.Series, *, title: str = ""
) -> Figure:
    """Reconstruction error by network, the model beside the baselines.

    Parameters
    ----------
    region_errors : DataFrame
        ``region, subject, predictor, mse`` (``region_errors.tsv``).
    networks : Series, region name -> network
        Regions without a network are left out.
    title : str

    Returns
    -------
    Figure
        Points are means over the subjects of each subject's mean over the regions of a network;
        bars are 95 % intervals over subjects (t distribution), absent with one subject.

    Raises
    ------
    InputError
        If no row of the table belongs to a region with a network.

    Examples
    --------
    >>> import pandas as pd
    >>> from neuro_pe.plotting import plot_network_errors
    >>> errors = pd.DataFrame({"region": ["a", "b"] * 2, "subject": ["1", "1", "2", "2"],
    ...                        "predictor": "model", "mse": [0.6, 0.7, 0.7, 0.9]})
    >>> figure = plot_network_errors(errors, pd.Series({"a": "Vis", "b": "Default"}))
    >>> [tick.get_text() for tick in figure.axes[0].get_yticklabels()]
    ['Default (1)', 'Vis (1)']
    """
    from scipy.stats import t as student

    networks = networks.dropna().astype(str)
    table = region_errors.assign(network=region_errors["region"].map(networks)).dropna(
        subset=["network", "mse"]
    )
    if table.empty:
        msg = "region errors: no region of the table has a network; expected the model's regions."
        raise InputError(msg)
    by_subject = table.groupby(["network", "predictor", "subject"])["mse"].mean()
    summary = by_subject.groupby(["network", "predictor"]).agg(["mean", "sem", "count"])
    names = sorted(table["network"].unique())
    predictors = sorted(set(table["predictor"]), key=lambda name: (name != "model", name))

    figure = _figure(8.6, 1.6 + 0.36 * len(names))
    figure.set_layout_engine("constrained")
    axes = figure.subplots()
    for position, predictor in enumerate(predictors):
        rows = summary.xs(predictor, level="predictor").reindex(names)
        width = student.ppf(0.975, np.maximum(rows["count"] - 1, 1)) * rows["sem"]
        offset = 0.5 * ((position + 0.5) / len(predictors) - 0.5)
        axes.errorbar(
            rows["mean"],
            np.arange(len(names)) + offset,
            xerr=width.fillna(0.0),
            fmt="os^Dv"[position % 5],
            color=COLOURS[3] if predictor == "model" else COLOURS[(0, 2, 4, 6, 5)[position % 5]],
            markersize=6 if predictor == "model" else 4,
            linewidth=1,
            label=predictor.replace("_", " "),
        )
    counts = networks.value_counts()
    axes.set(
        yticks=range(len(names)),
        xlabel="MSE of hidden entries (1 = the region's variance)",
        title=title,
    )
    axes.set_yticklabels([f"{name} ({counts[name]})" for name in names])
    axes.invert_yaxis()
    axes.grid(axis="x", color="#E5E5E5", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure


def _figure(width: float, height: float) -> Figure:
    """Make a figure that pyplot knows nothing of; sizes in inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height))


def _glass_brain(
    axes: Axes,
    coordinates: pd.DataFrame,
    values: Sequence[float] | pd.Series,
    *,
    cmap: Any,
    limits: tuple[float, float],
) -> None:
    from nilearn.plotting import plot_markers

    plot_markers(
        np.asarray(values, dtype=float),
        coordinates[["x", "y", "z"]].to_numpy(dtype=float),
        node_size=float(np.clip(9000 / len(coordinates), 8, 60)),
        node_cmap=cmap, node_vmin=limits[0], node_vmax=limits[1], alpha=0.9, colorbar=False,
        display_mode="lzr", figure=axes.figure, axes=axes,
    )  # fmt: skip


def _spread(places: np.ndarray, *, gap: float, end: float) -> np.ndarray:
    """Move sorted places apart to at least `gap`, within 0 and `end`, as little as needed."""
    gap = min(gap, end / max(len(places) - 1, 1))
    steps = gap * np.arange(len(places))
    # Without the steps, "at least a gap apart" is "in order": isotonic regression by running
    # extremes from both sides, whose mean is in order too.
    free = places - steps
    spread = (np.maximum.accumulate(free) + np.minimum.accumulate(free[::-1])[::-1]) / 2
    return np.clip(spread, 0, end - steps[-1]) + steps
