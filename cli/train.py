"""``neuro-pe train``."""

from typing import Any

import click

from neuro_pe.cli._options import data_options, data_request, settings_options
from neuro_pe.cli._output import Progress, results_table
from neuro_pe.errors import InputError
from neuro_pe.settings import FitSettings

__all__ = ["command"]

# The bundled data are a tenth of a small study: fewer steps, so the demo ends in minutes.
DEMO_EPOCHS = 100


@click.command(
    epilog="""\b
Examples:
  neuro-pe train --demo --output-dir demo_output
  neuro-pe train --bids-dir derivatives/xcp_d --atlas Glasser --output-dir results --seeds 3
  neuro-pe train --bids-dir derivatives/xcp_d --atlas 4S456Parcels --task rest \\
      --sigma 1.0 --test-subjects sub-17,sub-18,sub-19,sub-20 --output-dir results
""",
)
@data_options
@click.option("--cache-dir", type=click.Path(), help="Keep the values there, out of the memory.")
@click.option("--seeds", default=1, show_default=True, help="Number of fits, from --seed on.")
@click.option("--resume", is_flag=True, help="Go on with interrupted fits.")
@click.option("--save-attention", is_flag=True, help="Leave attention.npz in the model folder.")
@settings_options
def command(
    output_dir: str,
    cache_dir: str | None,
    seeds: int,
    test_subjects: float | int | list[str],
    validation_subjects: float | int | list[str],
    group_column: str | None,
    resume: bool,
    save_attention: bool,
    **options: Any,
) -> None:
    """Train masked-region models on parcellated fMRI, one a seed.

    Each model is judged on unseen subjects beside linear predictors, and left with its
    positional encoding in a folder of its own below the output folder.
    """
    bids_dir, filters = data_request(options)
    if bids_dir is None and cache_dir:
        msg = "--cache-dir: keeps the values of --bids-dir; leave it out of --demo."
        raise InputError(msg)
    if seeds < 1:
        msg = f"--seeds: found {seeds}; expected a whole number of 1 or more."
        raise InputError(msg)
    if bids_dir is None and options["epochs"] is None:
        options["epochs"] = DEMO_EPOCHS
    settings = FitSettings(**options)

    from neuro_pe.bids import load_bids, load_demo
    from neuro_pe.experiment import train_models

    cohort = (
        load_demo() if bids_dir is None else load_bids(bids_dir, cache_dir=cache_dir, **filters)
    )
    click.echo(
        f"{len(cohort.subjects)} subjects, {len(cohort)} runs, {len(cohort.region_names)} regions"
        f" ({cohort.atlas or 'no atlas known'})"
    )
    try:
        with Progress(seeds) as progress:
            folders = train_models(
                cohort,
                output_dir=output_dir,
                settings=settings,
                n_seeds=seeds,
                test_subjects=test_subjects,
                validation_subjects=validation_subjects,
                group_column=group_column,
                resume=resume,
                save_attention=save_attention,
                progress=progress.update,
            )
    except KeyboardInterrupt:
        msg = "Interrupted; the same command with --resume goes on."
        raise KeyboardInterrupt(msg) from None
    click.echo(results_table(folders))
    click.echo(f"\nModels are in {output_dir}. Next: neuro-pe compare-networks {output_dir}")
