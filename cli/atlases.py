"""``neuro-pe atlases``: list the known atlases, show one."""

import click

__all__ = ["command"]


@click.group()
def command() -> None:
    """List and show the atlases that are known by name."""


@command.command(
    "list",
    epilog="""\b
Example:
  neuro-pe atlases list
""",
)
def list_atlases() -> None:
    """List the atlases: regions, network partitions, source, version, licence."""
    from neuro_pe import atlases

    click.echo(atlases.available().to_string(index=False, justify="left"))


@command.command(
    "show",
    epilog="""\b
Examples:
  neuro-pe atlases show Schaefer400
  neuro-pe atlases show Glasser --partition yeo7 > my_networks.tsv
""",
)
@click.argument("name")
@click.option(
    "--partition",
    metavar="NAME",
    help="Print region name and network only: a file that --partition of other commands takes.",
)
def show_atlas(name: str, partition: str | None) -> None:
    """Print the region table of the atlas NAME, separated by tabs."""
    from neuro_pe import atlases

    atlas = atlases.load(name)
    table = atlas.regions
    if partition is not None:
        table = atlas.partition(partition).rename("network").reset_index()
    click.echo(table.to_csv(sep="\t", index=False, na_rep="n/a", lineterminator="\n"), nl=False)
