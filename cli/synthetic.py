"""``neuro-pe synthetic``: tasks whose truth is known, to see what encodings learn."""

from functools import partial
from typing import Any

import click

from neuro_pe.cli._options import (
    lists_request,
    settings_lists,
    sweep_options,
    sweep_request,
)
from neuro_pe.cli._output import SweepProgress, tell_failures
from neuro_pe.errors import InputError

__all__ = ["command"]

OF_RECIPE = "of the recipe"
LST_OPTIONS = {
    "encoding": "learn",
    "sigma": "0.2",
    "distribution": "normal",
    "rank": "None",
    "inject": "every-block",
    "layers": "4",
    "heads": "1",
    "width": "160",
    "epochs": OF_RECIPE,
    "optimizer": OF_RECIPE,
    "lr": OF_RECIPE,
    "encoding_lr": OF_RECIPE,
    "muon_lr": OF_RECIPE,
    "schedule": OF_RECIPE,
    "weight_decay": OF_RECIPE,
    "batch_size": "128",
    "precision": "auto",
    "device": "auto",
    "seed": "0",
}


@click.group()
def command() -> None:
    """Tasks with an exact ground truth, to see what encodings learn."""


@command.command(
    "lst",
    epilog="""\b
Examples:
  neuro-pe synthetic lst --seeds 3 --output-dir lst
  neuro-pe synthetic lst --encoding learn,2d-fixed,rope --sigma 0.1,0.2,1,2 --heads 1,4 \\
      --seeds 5 --output-dir lst
  neuro-pe synthetic lst --size 5,6 --seeds 3 --output-dir larger_squares
""",
)
@click.option("--output-dir", type=click.Path(), required=True, help="Where the models go.")
@click.option(
    "--recipe",
    type=click.Choice(["fast", "paper"]),
    default="fast",
    show_default=True,
    help="Train in minutes, or as Ito et al. did (4,000 epochs).",
)
@click.option(
    "--size", default="4", metavar="N,...", show_default=True, help="Rows of the squares: 4 to 7."
)
@click.option(
    "--puzzles",
    type=click.Choice(["published", "generated"]),
    help="Those of Hearne et al. (size 4), or drawn ones.  [default: published, if there are any]",
)
@sweep_options
@partial(settings_lists, defaults=LST_OPTIONS)
def latin_square(
    output_dir: str, recipe: str, size: str, puzzles: str | None, **options: Any
) -> int:
    """Latin Square Task: see whether encodings find rows and columns.

    One network a combination of the lists below and a seed, trained on puzzles of an n x n Latin
    square, and judged by puzzles unlike them; what it learned is measured against the grid.
    Leaves lst.tsv, lst_structure.tsv, figures, report.html and a model folder a fit. The same
    command again does only what is missing or failed.
    """
    try:
        sizes = [int(text) for text in size.split(",")]
    except ValueError:
        msg = f"--size: found {size!r}; expected whole numbers such as 4 or 4,5."
        raise InputError(msg) from None
    grid = lists_request(options)

    from neuro_pe.synthetic import lst_text, sweep_lst, write_lst_report

    with SweepProgress() as progress:
        sweep = sweep_lst(
            output_dir=output_dir,
            grid=grid,
            recipe=recipe,
            sizes=sizes,
            puzzles=puzzles,
            progress=progress.update,
            **sweep_request(options),
        )
    click.echo(lst_text(sweep))
    if len(sweep.settings):
        click.echo(f"\nThe report is {write_lst_report(sweep, output_dir)}.")
    return tell_failures(sweep.table)
