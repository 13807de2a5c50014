"""``neuro-pe compare-networks``."""

import sys
import time
from pathlib import Path

import click

__all__ = ["command"]


@click.command(
    epilog="""\b
Examples:
  neuro-pe compare-networks results
  neuro-pe compare-networks results --partition yeo17
  neuro-pe compare-networks results/encoding-learn_sigma-0.1_mask-0.9_seed-0 \\
      --partition my_networks.tsv --output-dir comparison
""",
)
@click.argument("models", metavar="MODEL...", nargs=-1, required=True, type=click.Path())
@click.option(
    "--partition",
    metavar="NAME|FILE.tsv",
    help="Networks of the atlas (yeo7, yeo17, gordon, power, cole-anticevic), or a file with the "
    "columns name and network; n/a leaves a region out. [default: the atlas's first]",
)
@click.option(
    "--output-dir",
    type=click.Path(),
    help="Where table, figures and report go; those of an earlier comparison are replaced. "
    "[default: the folder that holds the models]",
)
@click.option(
    "--permutations",
    type=click.IntRange(min=10),
    default=1000,
    show_default=True,
    help="Relabellings of the networks a null model.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Seed of relabellings and community search.",
)
def command(
    models: tuple[str, ...],
    partition: str | None,
    output_dir: str | None,
    permutations: int,
    seed: int,
) -> None:
    """Compare what fits learned with the networks of the brain.

    MODEL is a model folder, or a folder that holds some; all must be fits of the same data.
    The positional encoding, its learned change and the functional connectivity of the training
    subjects stand side by side, each beside its null models.
    """
    from neuro_pe.model_folder import find_model_folders
    from neuro_pe.report import choose_partition, comparison_text, default_folder, write_comparison

    fits = find_model_folders(models)
    folder = Path(output_dir) if output_dir else default_folder(fits)
    comparison = write_comparison(
        fits,
        partition=choose_partition(fits, partition),
        output_dir=folder,
        n_permutations=permutations,
        seed=seed,
        progress=_Bar() if sys.stderr.isatty() else None,
    )
    click.echo(comparison_text(comparison))
    click.echo(f"Report: {folder / 'report.html'}")


class _Bar:
    """A bar on standard error, once the work has lasted two seconds."""

    def __init__(self) -> None:
        self.started = time.monotonic()

    def __call__(self, done: int, total: int) -> None:
        if time.monotonic() - self.started > 2 or done == total:
            filled = 30 * done // total
            bar = "#" * filled + "." * (30 - filled)
            end = "\n" if done == total else ""
            click.echo(f"\rComparing [{bar}] {done} of {total}{end}", err=True, nl=False)
