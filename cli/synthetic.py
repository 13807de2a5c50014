"""``neuro-pe synthetic``: tasks whose truth is known, to see what encodings learn."""

import os
from functools import partial
from typing import Any

import click

from neuro_pe.cli._options import (
    lists_request,
    output_dir_option,
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

NETWORK_OPTIONS = ("n_regions", "n_modules", "within", "between", "spectral_radius")
NETWORK_OPTIONS += ("n_subjects", "n_times")
NMAR_OPTIONS = {
    "encoding": "learn",
    "sigma": "0.1",
    "distribution": "normal",
    "rank": "None",
    "mask_ratio": "0.5",
    "test_mask_ratio": "0.5",
    "target_ratio": "0.5",
    "window": "4",
    "layers": "2",
    "heads": "4",
    "width": "64",
    "epochs": "22",
    "optimizer": "muon",
    "lr": "0.002",
    "encoding_lr": "0.006",
    "muon_lr": "0.003",
    "weight_decay": "0.05",
    "batch_size": "64",
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
@output_dir_option
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
    """Solve Latin Square Task puzzles and see whether encodings find rows and columns.

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
    if len(sweep.settings) and os.access(output_dir, os.W_OK):
        click.echo(f"\nThe report is {write_lst_report(sweep, output_dir)}.")
    return tell_failures(sweep.table)


@command.command(
    "nmar",
    epilog="""\b
Examples:
  neuro-pe synthetic nmar --sigma 0.1,1 --seeds 3 --output-dir nmar
  neuro-pe synthetic nmar --encoding learn,random,nope --sigma 0.01,0.1,0.2,1,2 \\
      --noise 0.5,1,2 --seeds 10 --output-dir nmar
""",
)
@output_dir_option
@click.option(
    "--noise", default="1", metavar="X,...", show_default=True, help="SD of each region's noise."
)
@click.option("--regions", "n_regions", default=40, show_default=True, help="Of the network.")
@click.option("--modules", "n_modules", default=4, show_default=True, help="Of equal size.")
@click.option(
    "--within", default=0.3, show_default=True, help="Share of connected pairs in a module."
)
@click.option(
    "--between", default=0.015, show_default=True, help="Share of connected pairs elsewhere."
)
@click.option("--spectral-radius", default=0.9, show_default=True, help="Of the weights, under 1.")
@click.option("--subjects", "n_subjects", default=10, show_default=True, help="A run each.")
@click.option("--times", "n_times", type=int, default=2000, show_default=True, help="Steps a run.")
@sweep_options
@partial(settings_lists, defaults=NMAR_OPTIONS)
def modular_network(output_dir: str, noise: str, **options: Any) -> int:
    """Simulate networks and see whether encodings find their modules.

    Nonlinear multivariate autoregression. Every seed draws a network with modules, simulates it
    and fits a model; what encodings, learned changes and functional connectivity say is measured
    against the true modules, errors against the noise ceiling. Leaves nmar.tsv, figures,
    report.html, and a folder a network with its model folders. The same command again does only
    what is missing or failed.
    """
    try:
        noises = [float(text) for text in noise.split(",")]
    except ValueError:
        msg = f"--noise: found {noise!r}; expected numbers such as 1 or 0.5,1,2."
        raise InputError(msg) from None
    grid = lists_request(options)
    request = sweep_request(options)
    network = {name: value for name, value in options.items() if name in NETWORK_OPTIONS}

    from neuro_pe.synthetic import nmar_text, sweep_nmar, write_nmar_report

    with SweepProgress() as progress:
        sweep = sweep_nmar(
            output_dir=output_dir,
            grid=grid,
            noises=noises,
            network=network,
            progress=progress.update,
            **request,
        )
    click.echo(nmar_text(sweep))
    if len(sweep.settings) and os.access(output_dir, os.W_OK):
        click.echo(f"\nThe report is {write_nmar_report(sweep, output_dir)}.")
    return tell_failures(sweep.table)
