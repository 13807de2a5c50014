"""``neuro-pe train``."""

from typing import Any

import click

from neuro_pe.cli._options import settings_options, subjects_request
from neuro_pe.cli._output import Progress, results_table
from neuro_pe.errors import InputError
from neuro_pe.settings import FitSettings, option_name

__all__ = ["command"]

# The bundled data are a tenth of a small study: fewer steps, so the demo ends in minutes.
DEMO_EPOCHS = 100
ENTITIES = ("atlas", "task", "session", "run", "space", "desc")


@click.command(
    epilog="""\b
Examples:
  neuro-pe train --demo --output-dir demo_output
  neuro-pe train --bids-dir derivatives/xcp_d --atlas Glasser --output-dir results --seeds 3
  neuro-pe train --bids-dir derivatives/xcp_d --atlas 4S456Parcels --task rest \\
      --sigma 1.0 --test-subjects sub-17,sub-18,sub-19,sub-20 --output-dir results
""",
)
@click.option("--bids-dir", type=click.Path(), help="BIDS derivative with region time series.")
@click.option("--demo", is_flag=True, help="Use the bundled data: 12 HCP subjects, 400 TRs each.")
@click.option("--output-dir", type=click.Path(), required=True, help="Where the models go.")
@click.option("--atlas", help="Atlas of the time series, e.g. Glasser, Schaefer400, 4S456Parcels.")
@click.option("--task", multiple=True, help="Only runs of this task; may be repeated.")
@click.option("--session", multiple=True, help="Only this session; may be repeated.")
@click.option("--run", multiple=True, help="Only this run; may be repeated.")
@click.option("--space", help="Only time series in this space, e.g. fsLR.")
@click.option("--desc", help="Only time series of this description, e.g. denoiseSimple.")
@click.option("--region-names", type=click.Path(), help="Names of the columns, one a line.")
@click.option("--seeds", default=1, show_default=True, help="Number of fits, from --seed on.")
@click.option(
    "--test-subjects", default="0.2", show_default=True, callback=subjects_request,
    help="Subjects that nothing is learned from: a share, a number, or labels.",
)  # fmt: skip
@click.option(
    "--validation-subjects", default="0.15", show_default=True, callback=subjects_request,
    help="Subjects that stop the training and choose the ridges: likewise.",
)  # fmt: skip
@click.option("--group-column", help="Column of participants.tsv kept in one split (family, site).")
@click.option("--resume", is_flag=True, help="Go on with interrupted fits.")
@click.option("--save-attention", is_flag=True, help="Leave attention.npz in the model folder.")
@settings_options
def command(
    bids_dir: str | None,
    demo: bool,
    output_dir: str,
    region_names: str | None,
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
    if demo == (bids_dir is not None):
        msg = "--bids-dir: give either --bids-dir DIR or --demo."
        raise InputError(msg)
    if seeds < 1:
        msg = f"--seeds: found {seeds}; expected a whole number of 1 or more."
        raise InputError(msg)
    entities = {name: options.pop(name) or None for name in ENTITIES}
    unused = [name for name, value in {**entities, "region_names": region_names}.items() if value]
    if demo and unused:
        msg = (
            f"{option_name(unused[0])}: chooses among files of --bids-dir; leave it out of --demo."
        )
        raise InputError(msg)
    if demo and options["epochs"] is None:
        options["epochs"] = DEMO_EPOCHS
    settings = FitSettings(**options)

    from neuro_pe.bids import load_bids, load_demo
    from neuro_pe.experiment import train_models

    cohort = load_demo() if demo else load_bids(bids_dir, region_names=region_names, **entities)
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
