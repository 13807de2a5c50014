"""``neuro-pe sweep``."""

import csv
import difflib
import os
from dataclasses import fields
from typing import Any

import click

from neuro_pe.cli._options import (
    data_options,
    data_request,
    lists_request,
    parse_values,
    settings_lists,
    sweep_options,
    sweep_request,
)
from neuro_pe.cli._output import SweepProgress, tell_failures
from neuro_pe.errors import InputError
from neuro_pe.settings import FitSettings, option_name

__all__ = ["command"]

NAMES = [option.name for option in fields(FitSettings)]


def _refuse_cache_dir(_context: Any, _parameter: Any, value: str | None) -> None:
    if value is not None:
        msg = f"--cache-dir {value}: a sweep keeps the values in OUTPUT_DIR/cache; leave it out."
        raise InputError(msg)


@click.command(
    epilog="""\b
Examples:
  neuro-pe sweep --demo --epochs 20 --sigma 0.1,1 --seeds 2 --output-dir demo_sweep
  neuro-pe sweep --bids-dir derivatives/xcp_d --sigma 0.05,0.1,0.2,1 --encoding learn,random \\
      --mask-ratio 0.5,0.9 --seeds 15 --output-dir sweep
  neuro-pe sweep --bids-dir derivatives/xcp_d --settings settings.tsv --seeds 15 \\
      --dask-scheduler-file scheduler.json --output-dir sweep
""",
)
@data_options
@sweep_options
@click.option(
    "--settings",
    "settings_file",
    type=click.Path(),
    metavar="FILE.tsv",
    help="One row a setting, columns named like options; crossed with the lists below.",
)
@click.option("--cache-dir", hidden=True, callback=_refuse_cache_dir, expose_value=False)
@settings_lists
def command(
    output_dir: str,
    settings_file: str | None,
    test_subjects: float | int | list[str],
    validation_subjects: float | int | list[str],
    group_column: str | None,
    **options: Any,
) -> int:
    """Fit a model for every combination of settings and every seed.

    Options of a fit take lists: --sigma 0.1,0.2,1. There is a row a fit in sweep.tsv, as soon as
    it ends. The same command again does only what is missing or failed. Exit status 1: some fits
    failed.
    """
    bids_dir, filters = data_request(options)
    grid = lists_request(options)

    from neuro_pe.sweeps import grid_settings, sweep, sweep_text

    if settings_file is None:
        settings, n_rows = grid_settings(grid), 1
    else:
        settings, n_rows = _read_settings(settings_file, grid)
    n_asked = n_rows * _product(len(values) for values in grid.values())
    if n_asked > len(settings):
        click.echo(
            f"{n_asked} combinations are {len(settings)} settings: some differ only in a sigma "
            "that their encoding does not use, or stand there twice."
        )
    if bids_dir is None:
        from neuro_pe.bids import demo_dir

        bids_dir, filters = os.fspath(demo_dir()), {"atlas": "Glasser"}
    with SweepProgress() as progress:
        summary = sweep(
            bids_dir,
            output_dir=output_dir,
            settings=settings,
            test_subjects=test_subjects,
            validation_subjects=validation_subjects,
            group_column=group_column,
            filters=filters,
            progress=progress.update,
            **sweep_request(options),
        )
    click.echo(sweep_text(summary))
    click.echo(f"\nThe table is {os.path.join(output_dir, 'sweep.tsv')}.")
    return tell_failures(summary.table)


def _product(sizes: Any) -> int:
    total = 1
    for size in sizes:
        total *= size
    return total


def _read_settings(file: str, grid: dict[str, Any]) -> tuple[list[FitSettings], int]:
    """Read a table of settings, crossed with the grid: a row each, ``n/a`` for the default."""
    from neuro_pe.sweeps import grid_settings

    table = _read_cells(file)
    header = [name.strip().replace("-", "_").lstrip("_") for name in table[0]] if table else []
    _check_header(file, header, grid)
    settings: dict[FitSettings, None] = {}
    n_rows = 0
    for number, cells in enumerate(table[1:], start=2):
        if not any(cell.strip() for cell in cells):
            continue
        if len(cells) != len(header):
            msg = (
                f"--settings {file}: line {number} has {len(cells)} cells where its header has "
                f"{len(header)}; separate them by tabs."
            )
            raise InputError(msg)
        try:
            row = {
                name: parse_values(name, [cell])[0]
                for name, cell in zip(header, cells, strict=True)
                if cell.strip() not in ("", "n/a")
            }
            settings |= dict.fromkeys(grid_settings(grid, [row]))
        except InputError as error:
            msg = f"--settings {file}: line {number}: {error}"
            raise InputError(msg) from None
        n_rows += 1
    if not n_rows:
        msg = f"--settings {file}: no rows; expected a header of options and a row a setting."
        raise InputError(msg)
    return list(settings), n_rows


def _read_cells(file: str) -> list[list[str]]:
    try:
        with open(file, encoding="utf-8-sig", newline="") as lines:
            return list(csv.reader(lines, delimiter="\t"))
    except OSError as error:
        msg = f"--settings {file}: {error.strerror}; expected a tab-separated table."
    except (UnicodeDecodeError, csv.Error):
        msg = f"--settings {file}: no text in UTF-8; save it as tab-separated text in UTF-8."
    raise InputError(msg)


def _check_header(file: str, header: list[str], grid: dict[str, Any]) -> None:
    for name in header:
        if name not in NAMES:
            what = f"no option of a fit; {_advice(name)}"
        elif name in grid:
            what = f"{option_name(name)} is given too."
        elif header.count(name) > 1:
            what = "twice."
        else:
            continue
        msg = f"--settings {file}: column {name!r}: {what}"
        raise InputError(msg)


def _advice(name: str) -> str:
    if any(separator in name for separator in ",; "):
        return "expected one option a column, and tabs between columns."
    close = difflib.get_close_matches(name, NAMES, n=1)
    return f"do you mean {close[0]}?" if close else f"expected some of {', '.join(NAMES)}."
