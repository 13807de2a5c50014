"""``neuro-pe impute``."""

from typing import TYPE_CHECKING, Any

import click

from neuro_pe.cli._options import filter_options, filters_request
from neuro_pe.cli._output import RunProgress

if TYPE_CHECKING:
    from neuro_pe.imputed_derivative import ImputedDerivative

__all__ = ["command"]

MEASURED = {
    "complete_runs": "R2: measured on complete runs of other subjects ({n}), whom the model was "
    "not trained on, with the same regions hidden.",
    "test_subjects": "R2: of the model's test subjects, at {ratio:.0%} hidden regions; no complete "
    "run here is of a subject that the model was not trained on.",
    "none": "R2: not measured; no complete run here is of a subject that the model was not trained "
    "on, and the model has no test subjects.",
}


@click.command(
    epilog="""\b
Examples:
  neuro-pe impute results/encoding-learn_sigma-0.1_mask-0.9_seed-0 \\
      --bids-dir derivatives/xcp_d --output-dir derivatives/imputed
  neuro-pe impute results --bids-dir derivatives/xcp_d --task rest --output-dir imputed
""",
)
@click.argument("model", type=click.Path())
@click.option(
    "--bids-dir", type=click.Path(), required=True, help="BIDS derivative with region time series."
)
@click.option("--output-dir", type=click.Path(), required=True, help="Where the filled runs go.")
@filter_options
def command(model: str, bids_dir: str, output_dir: str, **options: Any) -> None:
    """Fill in the missing regions of runs with the model in the folder MODEL.

    Missing are n/a, columns that are not there, and constant columns. Runs that lack nothing are
    not written again. imputation.tsv says how good the filled values are, region by region,
    beside a linear predictor.
    """
    filters = filters_request(options)

    from neuro_pe.imputed_derivative import impute_bids

    with RunProgress() as progress:
        done = impute_bids(
            model, bids_dir, output_dir=output_dir, filters=filters, progress=progress.update
        )
    click.echo(_text(done))
    click.echo(f"Table: {output_dir}/imputation.tsv")


def _text(done: "ImputedDerivative") -> str:
    """Say what was filled in, a line a run, and how good that is."""
    lines = []
    for file, rows in done.table.groupby("file", sort=False):
        regions = f"{len(rows)} region{'s' if len(rows) > 1 else ''}"
        r2, gaussian = rows["r2"].mean(), rows["r2_gaussian"].mean()
        quality = f"mean R2 {r2:.2f}, Gaussian imputer {gaussian:.2f}" if r2 == r2 else "R2 n/a"
        lines.append(f"{file}: {regions}, {quality}")
    complete = done.n_runs - done.n_filled - done.n_left_out
    lines.append(
        f"{done.n_filled} of {done.n_runs} runs filled in; {complete} lack nothing and are not "
        "written again."
    )
    for estimate, rows in done.table.groupby("estimate", sort=False):
        row = rows.iloc[0]
        lines.append(MEASURED[str(estimate)].format(n=row["n_subjects"], ratio=row["mask_ratio"]))
    better = done.table["r2_gaussian"] > done.table["r2"]
    if better.any():
        lines.append(
            f"The linear imputer does better in {better.sum()} of {len(better)} rows of the table; "
            "a model that was trained longer, or on more subjects, may pass it."
        )
    return "\n".join(lines)
