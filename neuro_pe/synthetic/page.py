"""The report of a synthetic task: tables and figures on one page that needs no other file."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from neuro_pe._report_page import PageFigure, render
from neuro_pe.derivatives import atomic_path

__all__ = [
    "CORE_SECONDS",
    "FIGURES",
    "NOTHING",
    "PAGE",
    "PageTable",
    "page_text",
    "spread_text",
    "write_page",
]

FIGURES = "figures"
PAGE = ("report.html", FIGURES)  # what a page is made of
CORE_SECONDS = "core-s: processor time of the training, summed over cores, mean over seeds."
NOTHING = "No fit succeeded, so there is nothing to compare."


@dataclass(frozen=True, kw_only=True)
class PageTable:
    """A table as people read it.

    Parameters
    ----------
    title, text : str
        What it is, and what its numbers are.
    header : list of str
    rows : list of list of str
        The first cell says what the row is.
    """

    title: str
    text: str
    header: list[str]
    rows: list[list[str]]


def page_text(tables: Sequence[PageTable], lines: Sequence[str]) -> str:
    """Lay tables out for a terminal, and lines after them."""
    parts = [f"{table.title}. {table.text}\n{_table_text(table)}\n" for table in tables]
    return "\n".join([*parts, *lines]).rstrip()


def _table_text(table: PageTable) -> str:
    lines = [table.header, *table.rows]
    widths = [max(len(line[number]) for line in lines) for number in range(len(table.header))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if number == 0 else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def spread_text(mean: float, low: float, high: float, *, digits: int = 3) -> str:
    """Write a mean with its interval; nothing for what is missing."""
    if mean is None or np.isnan(mean):
        return ""
    interval = "" if np.isnan(low) else f" [{low:.{digits}f}, {high:.{digits}f}]"
    return f"{mean:.{digits}f}{interval}"


def write_page(
    output_dir: str | os.PathLike[str],
    *,
    title: str,
    lead: str,
    tables: Sequence[PageTable],
    figures: Sequence[PageFigure],
    reading: Sequence[str],
    notes: Sequence[str] = (),
) -> Path:
    """Write ``figures/`` and ``report.html``.

    Parameters
    ----------
    output_dir : path-like
    title, lead : str
    tables : sequence of PageTable
    figures : sequence of PageFigure
    reading : sequence of str
        How to read it, a paragraph each.
    notes : sequence of str
        What must not be overlooked.

    Returns
    -------
    Path
        Of the page.
    """
    folder = Path(output_dir)
    (folder / FIGURES).mkdir(exist_ok=True)
    for figure in figures:
        with atomic_path(folder / FIGURES / f"{figure.name}.png") as temporary:
            temporary.write_bytes(figure.png)
    content = render(
        Path(__file__).with_name("page.html"),
        title=title,
        lead=lead,
        tables=tables,
        figures=figures,
        reading=reading,
        notes=notes,
    )
    page = folder / PAGE[0]
    with atomic_path(page) as temporary:
        temporary.write_text(content, encoding="utf-8")
    return page
