"""The comparison as people read it: figures, a printed table, one HTML page."""

import base64
import datetime
import io
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from neuro_pe import __version__, plotting
from neuro_pe._fit_groups import Comparison
from neuro_pe._report_errors import error_rows, network_error_rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "PageFigure",
    "comparison_text",
    "draw_figures",
    "page_figure",
    "render",
    "render_page",
    "summarize",
]

SOURCES = {"pe": "positional encoding", "change": "learned change", "fc": "functional connectivity"}
STATISTICS = {
    "within": "mean similarity within networks",
    "between": "mean similarity between networks",
    "within_minus_between": "within minus between",
    "q_partition": "modularity Q of the partition (gamma 1)",
    "q_found": "highest Q of any partition found (gamma 1)",
    "ari": "ARI, best resolution",
    "ami": "AMI, best resolution",
    "gamma_found": "resolution gamma of the best ARI",
    "n_communities": "communities there",
    "ari_matched": "ARI, matched number of communities",
    "ami_matched": "AMI, matched number of communities",
    "gamma_matched": "resolution gamma, matched",
    "n_communities_matched": "communities there, matched",
    "correlation_with_fc": "correlation with functional connectivity",
    "procrustes": "Procrustes distance between seeds",
}
PRINTED = {
    "within_minus_between": "within minus between",
    "q_partition": "modularity Q of the partition",
    "ari": "ARI, best resolution",
    "ari_matched": "ARI, matched resolution",
    "ami_matched": "AMI, matched resolution",
    "correlation_with_fc": "correlation with connectivity",
    "procrustes": "Procrustes distance of seeds",
}
WIDTHS = (31, 35)
NULLS = {"label_permutation": "labels permuted", "spin": "map rotated (spin)", "": ""}
HCP = (
    "Data were provided [in part] by the Human Connectome Project, WU-Minn Consortium (Principal "
    "Investigators: David Van Essen and Kamil Ugurbil; 1U54MH091657) funded by the 16 NIH "
    "Institutes and Centers that support the NIH Blueprint for Neuroscience Research; and by the "
    "McDonnell Center for Systems Neuroscience at Washington University."
)


@dataclass(frozen=True, kw_only=True, eq=False)
class PageFigure:
    """A figure of the report: the name of its file, what it shows, its PNG."""

    name: str
    caption: str
    png: bytes

    @property
    def uri(self) -> str:
        """The picture as a data URI, so that the page needs no other file."""
        return "data:image/png;base64," + base64.b64encode(self.png).decode("ascii")


def summarize(table: pd.DataFrame) -> pd.DataFrame:
    """Bring the seeds of each fit together.

    Parameters
    ----------
    table : DataFrame
        ``comparison.tsv``.

    Returns
    -------
    DataFrame
        One row a ``fit, source, network, statistic, null`` (empty text where missing) with the
        mean ``value``, ``sd`` and number ``n`` over seeds, mean ``null_mean`` and ``z``, and the
        largest ``p``.
    """
    keys = ["fit", "source", "network", "statistic", "null"]
    table = table.assign(fit=table["fit"].fillna(""), null=table["null"].fillna(""))
    return (
        table.groupby(keys, sort=False)
        .agg(
            value=("value", "mean"),
            sd=("value", "std"),
            n=("value", "size"),
            null_mean=("null_mean", "mean"),
            z=("z", "mean"),
            p=("p", "max"),
        )
        .reset_index()
    )


def comparison_text(comparison: Comparison) -> str:
    """Lay the main numbers out for a terminal: encoding, learned change, connectivity in turn.

    Parameters
    ----------
    comparison : Comparison

    Returns
    -------
    str
    """
    summary = summarize(comparison.table)
    null = "spin" if (summary["null"] == "spin").any() else "label_permutation"
    # Procrustes distances have the one null.
    shown = summary[(summary["null"] == null) | (summary["statistic"] == "procrustes")]
    shown = shown[shown["network"] == "all"]
    cell_of = {
        (row["fit"], row["source"], row["statistic"]): _text_cell(row) for row in _records(shown)
    }
    first, other = WIDTHS
    label = comparison.networks.name or "partition"
    lines = [
        f"{len(comparison.networks)} regions, {comparison.networks.nunique()} networks ({label})"
    ]
    for fit, models in comparison.groups.items():
        count = f"{len(models)} seeds, mean ± SD" if len(models) > 1 else "1 seed"
        lines += ["", f"{fit} ({count})"]
        lines.append(
            " " * first + "".join(f"{name:<{other}}" for name in SOURCES.values()).rstrip()
        )
        for statistic, text in PRINTED.items():
            keys = [("" if source == "fc" else fit, source, statistic) for source in SOURCES]
            cells = [cell_of.get(key, "") for key in keys]
            if any(cells):
                row = "".join(f"{cell:<{other}}" for cell in cells)
                lines.append(f"{text:<{first}}{row}".rstrip())
    draws = int(comparison.table["n_permutations"].max())
    lines += ["", f"z, p: {NULLS[null]}, {draws} times; Procrustes: regions permuted."]
    return "\n".join(lines)


def draw_figures(comparison: Comparison) -> list[PageFigure]:
    """Draw the figures of a comparison, of the first seed of each fit.

    Parameters
    ----------
    comparison : Comparison

    Returns
    -------
    list of PageFigure
    """
    networks = comparison.networks
    places = _coordinates(comparison)
    fc = comparison.similarities["", "fc"]
    figures = []
    for (fit, source), matrix in comparison.similarities.items():
        what, end = SOURCES[source], f"_{fit}" if fit else ""
        which = _which(comparison, fit)
        label = "correlation" if source == "fc" else "cosine similarity"
        title = what.capitalize()
        caption = f"Similarity of the regions, sorted by network: {what}{which}."
        drawn = plotting.plot_similarity(matrix, networks, title=title, label=label)
        figures.append(page_figure(f"similarity_{source}{end}", caption, drawn))
        if source != "fc":
            drawn = plotting.plot_similarity_against_fc(matrix, fc, networks, title=title)
            caption = f"Every pair of regions: {what} against functional connectivity{which}."
            figures.append(page_figure(f"against_fc_{source}{end}", caption, drawn))
        if places is not None and source == "pe":
            communities = comparison.communities[fit, source]
            drawn = plotting.plot_communities(places, communities, networks, title=title)
            caption = (
                f"Communities found in the {what}, at the resolution with about as many as "
                f"there are networks{which}."
            )
            figures.append(page_figure(f"communities_{source}{end}", caption, drawn))
    for fit in comparison.groups:
        figures += _error_figures(comparison, fit, places)
    return figures


def render_page(
    comparison: Comparison, figures: Sequence[PageFigure], *, n_permutations: int, seed: int
) -> str:
    """Fill the template of ``report.html``.

    Parameters
    ----------
    comparison : Comparison
    figures : sequence of PageFigure
    n_permutations, seed : int
        As asked.

    Returns
    -------
    str
    """
    summary = summarize(comparison.table)
    sources = [name for name in SOURCES if name in set(summary["source"])]
    first = next(iter(comparison.groups.values()))[0]
    origins = " ".join(str(source) for source in first.data.get("sources", []))
    return render(
        Path(__file__).with_name("report_template.html"),
        partition=comparison.networks.name or "partition",
        n_networks=comparison.networks.nunique(),
        n_compared=len(comparison.networks),
        first=first,
        splits=first.subjects["split"].value_counts().to_dict(),
        groups=comparison.groups,
        settings=_settings_rows(comparison),
        errors={fit: error_rows(comparison, fit) for fit in comparison.groups},
        network_errors={fit: network_error_rows(comparison, fit) for fit in comparison.groups},
        sources={name: SOURCES[name] for name in sources},
        rows={fit: _statistic_rows(summary, fit, sources) for fit in comparison.groups},
        network_rows={fit: _network_rows(summary, fit, sources) for fit in comparison.groups},
        figures=figures,
        notes=comparison.notes,
        n_permutations=n_permutations,
        seed=seed,
        acknowledgement=HCP if "demo_data" in origins or "hcp" in origins.lower() else "",
    )


def render(template: Path, **content: Any) -> str:
    """Fill a template of a page that needs no other file: style, date and versions come too.

    Parameters
    ----------
    template : Path
    **content
        What the template names.
    """
    import jinja2

    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"number": _number}
    style = Path(__file__).with_name("report_style.css").read_text(encoding="utf-8")
    return environment.from_string(template.read_text(encoding="utf-8")).render(
        style=style,
        today=datetime.date.today().isoformat(),
        versions={"neuro_pe": __version__}
        | {name: version(name) for name in ("torch", "numpy", "scipy", "bctpy", "nilearn")},
        **content,
    )


def _statistic_rows(
    summary: pd.DataFrame, fit: str, sources: Sequence[str]
) -> list[dict[str, Any]]:
    whole = summary[(summary["network"] == "all") & summary["fit"].isin([fit, ""])]
    rows = []
    for statistic, text in STATISTICS.items():
        chosen = whole[whole["statistic"] == statistic]
        rows += [
            {"label": text, "null": NULLS[null], "cells": _cells(part, sources)}
            for null in NULLS
            if len(part := chosen[chosen["null"] == null])
        ]
    return rows


def _network_rows(summary: pd.DataFrame, fit: str, sources: Sequence[str]) -> list[dict[str, Any]]:
    rows = []
    chosen = summary[(summary["network"] != "all") & summary["fit"].isin([fit, ""])]
    for network in chosen["network"].unique():
        own = chosen[chosen["network"] == network]
        rows += [
            {"label": network, "null": NULLS[null], "cells": _cells(part, sources)}
            for null in NULLS
            if len(part := own[own["null"] == null])
        ]
    return rows


def _cells(part: pd.DataFrame, sources: Sequence[str]) -> list[dict[str, Any] | None]:
    """Give one cell a source; None where the source lacks the statistic."""
    cells = {row["source"]: row for row in _records(part)}
    return [cells.get(source) for source in sources]


def _records(table: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(key): value for key, value in row.items()} for row in table.to_dict("records")]


def _settings_rows(comparison: Comparison) -> list[tuple[str, list[str], bool]]:
    """Rows of option, value in each fit, and whether the values differ."""
    columns = [asdict(models[0].settings) for models in comparison.groups.values()]
    rows = []
    for option in columns[0]:
        if option == "seed":
            continue
        values = [f"{column[option]}" for column in columns]
        rows.append((option, values, len(set(values)) > 1))
    seeds = [
        ", ".join(str(model.settings.seed) for model in models)
        for models in comparison.groups.values()
    ]
    return [*rows, ("seeds", seeds, False)]


def _error_figures(
    comparison: Comparison, fit: str, places: pd.DataFrame | None
) -> list[PageFigure]:
    models = comparison.groups[fit]
    errors = pd.concat([model.region_errors for model in models]).dropna(subset=["mse"])
    if errors.empty:
        return []
    count = f"{len(models)} seeds" if len(models) > 1 else "one seed"
    which = f" ({fit}, {count})" if len(comparison.groups) > 1 else f" ({count})"
    title = "Reconstruction error by network"
    drawn = plotting.plot_network_errors(errors, comparison.networks, title=title)
    caption = (
        f"Error on hidden entries of the test subjects, by network, with 95 % intervals{which}."
    )
    figures = [page_figure(f"errors_by_network_{fit}", caption, drawn)]
    if places is not None:
        by_region = errors[errors["predictor"] == "model"].groupby("region")["r2"].mean()
        by_region = by_region[by_region.index.isin(places.index)]
        drawn = plotting.plot_region_errors(
            places,
            by_region,
            title="How well the model predicts each region when it is hidden",
            label="R2 of hidden entries (0 = predicting the region's mean)",
        )
        caption = f"R2 on hidden entries, by region, mean over the test subjects{which}."
        figures.append(page_figure(f"r2_by_region_{fit}", caption, drawn))
    return figures


def _coordinates(comparison: Comparison) -> pd.DataFrame | None:
    """Coordinates of the regions that have them; None when a region to show lacks them."""
    regions = next(iter(comparison.groups.values()))[0].regions
    if not {"x", "y", "z"} <= set(regions.columns):
        return None
    places = regions.set_index("name")[["x", "y", "z"]].astype(float).dropna()
    return places if comparison.networks.index.isin(places.index).all() else None


def _which(comparison: Comparison, fit: str) -> str:
    """Say which fit and seed a figure shows, where there are several."""
    if not fit:
        return ", training subjects"
    parts = [fit] if len(comparison.groups) > 1 else []
    models = comparison.groups[fit]
    parts += [f"seed {models[0].settings.seed}"] if len(models) > 1 else []
    return f" ({', '.join(parts)})" if parts else ""


def page_figure(name: str, caption: str, drawn: "Figure") -> PageFigure:
    """Turn a figure into what a page shows."""
    buffer = io.BytesIO()
    drawn.savefig(buffer, format="png", dpi=110)
    return PageFigure(name=name, caption=caption, png=buffer.getvalue())


def _text_cell(row: dict[str, Any]) -> str:
    spread = f" ± {row['sd']:.3f}" if row["n"] > 1 else ""
    tail = "" if np.isnan(row["z"]) else f"  z {row['z']:.1f}  p {row['p']:.2g}"
    return f"{row['value']:.3f}{spread}{tail}"


def _number(value: float | None, digits: int = 3) -> str:
    if value is None or pd.isna(value):
        return ""
    return f"{value:.{digits}f}".replace("-", "\N{MINUS SIGN}")
