"""Command-line options made from the fields of FitSettings, and small parsers."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

import click

from neuro_pe.errors import InputError
from neuro_pe.settings import FitSettings, kind_of, option_name

__all__ = [
    "data_options",
    "data_request",
    "filter_options",
    "filters_request",
    "lists_request",
    "output_dir_option",
    "parse_values",
    "settings_lists",
    "settings_options",
    "subjects_request",
    "sweep_options",
    "sweep_request",
]


def _folder(_context: Any, _parameter: Any, value: str) -> str:
    """Refuse the empty name that an unset variable of a shell gives: it is the current folder.

    A shell leaves the ~ of `--output-dir=~/results` as it is.
    """
    if not value.strip():
        msg = "--output-dir: found an empty name; expected a folder, such as . for this one."
        raise InputError(msg)
    return os.path.expanduser(value)


output_dir_option = click.option(
    "--output-dir",
    type=click.Path(),
    required=True,
    callback=_folder,
    help="Where the models go.",
)
ENTITIES = ("atlas", "task", "session", "run", "space", "desc")


def settings_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command one option for every field of FitSettings."""
    for option in reversed(fields(FitSettings)):
        choices = option.metadata.get("choices")
        kind = kind_of(option)
        command = click.option(
            option_name(option.name),
            type=click.Choice(choices) if choices else kind,
            default=option.default,
            show_default=option.default is not None,
            help=option.metadata["help"],
        )(command)
    return command


def subjects_request(
    _context: click.Context, parameter: click.Parameter, value: str
) -> float | int | list[str]:
    """Read a share (0.2), a number of subjects (4) or labels (sub-01,sub-02)."""
    # 05 is a label, 5 a number.
    if "," in value or value.startswith("sub-") or (value.startswith("0") and value[1:].isdigit()):
        return [label.strip() for label in value.split(",") if label.strip()]
    try:
        return int(value) if value.isdigit() else float(value)
    except ValueError:
        msg = (
            f"found {value!r}; expected a share such as 0.2, a number of subjects such as 4, or "
            "labels such as sub-01,sub-02"
        )
        raise click.BadParameter(msg, param=parameter) from None


def settings_lists(
    command: Callable[..., Any], *, defaults: Mapping[str, str] | None = None
) -> Callable[..., Any]:
    """Give a command one option for every field of FitSettings, each a list of values.

    With `defaults` only for the fields that it names, with what it says of their default.
    """
    for option in reversed(fields(FitSettings)):
        if defaults is not None and option.name not in defaults:
            continue
        shown = str(option.default) if defaults is None else defaults[option.name]
        choices = option.metadata.get("choices")
        what = option.metadata["help"].removesuffix(".")
        if defaults is not None and shown != "None":
            what = what.partition("  [default")[0].removesuffix(".")
        command = click.option(
            option_name(option.name),
            metavar="|".join(choices) + ",..." if choices else "VALUE,...",
            help=what if shown == "None" or "[default" in what else f"{what}.  [default: {shown}]",
        )(command)
    return command


def lists_request(options: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Read the lists that :func:`settings_lists` gave, those that were typed."""
    names = [option.name for option in fields(FitSettings)]
    given = {name: options[name] for name in names if options.get(name) is not None}
    return {name: parse_values(name, text.split(",")) for name, text in given.items()}


def sweep_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that say how many fits run and where."""
    for option in reversed(SWEEP_OPTIONS):
        command = option(command)
    return command


SWEEP_OPTIONS = (
    click.option("--seeds", default=1, show_default=True, help="Fits a setting, from --seed on."),
    click.option("--workers", type=int, help="Processes, a thread each.  [default: one a core]"),
    click.option("--dask", metavar="ADDRESS", help="Run on the Dask cluster of this scheduler."),
    click.option(
        "--dask-scheduler-file", type=click.Path(), metavar="FILE", help="The same, from its file."
    ),
)


def sweep_request(options: dict[str, Any]) -> dict[str, Any]:
    """Take the options of :func:`sweep_options` out of `options`, as the Python calls name them."""
    from neuro_pe.jobs import DaskCluster

    address, file = options.pop("dask"), options.pop("dask_scheduler_file")
    is_given = address is not None or file is not None
    return {
        "n_seeds": options.pop("seeds"),
        "n_workers": options.pop("workers"),
        "dask": DaskCluster(address=address, scheduler_file=file) if is_given else None,
    }


def parse_values(name: str, texts: Sequence[str]) -> list[Any]:
    """Read values of an option of a fit, as they are typed or stand in a table.

    Raises
    ------
    InputError
        If one is not of the option's kind or out of its range.
    """
    option = next(option for option in fields(FitSettings) if option.name == name)
    kind = kind_of(option)
    if not all(text.strip() for text in texts):
        listed = ",".join(texts)
        msg = f"{name}: found {listed!r}, where a value is missing; expected values between commas."
        raise InputError(msg)
    values = []
    for text in texts:
        test, expected = option.metadata["check"]
        try:
            value = kind(text.strip())
            is_right = value == value and test(value)
        except ValueError:
            is_right = False
        if not is_right:
            msg = f"{name}: found {text.strip()!r}; expected {expected}."
            raise InputError(msg)
        values.append(value)
    return values


def data_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that say where the data are and how subjects are split."""
    for option in reversed(DATA_OPTIONS):
        command = option(command)
    return command


def filter_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that choose among the files of a folder."""
    for option in reversed(FILTER_OPTIONS):
        command = option(command)
    return command


def filters_request(options: dict[str, Any]) -> dict[str, Any]:
    """Take the options of :func:`filter_options` out of `options`, those that were given."""
    filters = {name: options.pop(name) or None for name in (*ENTITIES, "region_names")}
    return {name: value for name, value in filters.items() if value}


FILTER_OPTIONS = (
    click.option(
        "--atlas", help="Atlas of the time series, e.g. Glasser, Schaefer400, 4S456Parcels."
    ),
    click.option("--task", multiple=True, help="Only runs of this task; may be repeated."),
    click.option("--session", multiple=True, help="Only this session; may be repeated."),
    click.option("--run", multiple=True, help="Only this run; may be repeated."),
    click.option("--space", help="Only time series in this space, e.g. fsLR."),
    click.option("--desc", help="Only time series of this description, e.g. denoiseSimple."),
    click.option("--region-names", type=click.Path(), help="Names of the columns, one a line."),
)
DATA_OPTIONS = (
    click.option("--bids-dir", type=click.Path(), help="BIDS derivative with region time series."),
    click.option(
        "--demo", is_flag=True, help="Use the bundled data: 12 HCP subjects, 400 TRs each."
    ),
    output_dir_option,
    *FILTER_OPTIONS,
    click.option(
        "--test-subjects",
        default="0.2",
        show_default=True,
        callback=subjects_request,
        help="Subjects that nothing is learned from: a share (0.2), a number (4), or labels "
        "(sub-17,sub-18).",
    ),
    click.option(
        "--validation-subjects",
        default="0.15",
        show_default=True,
        callback=subjects_request,
        help="Subjects that stop the training and choose the ridges: likewise.",
    ),
    click.option(
        "--group-column", help="Column of participants.tsv kept in one split (family, site)."
    ),
)


def data_request(options: dict[str, Any]) -> tuple[str | None, dict[str, Any]]:
    """Take the data options out of `options`; return the folder and the options of load_bids.

    Returns
    -------
    tuple of (str or None, dict)
        The folder is None for the bundled data.

    Raises
    ------
    InputError
        If it is not either a folder or the bundled data.
    """
    bids_dir, demo = options.pop("bids_dir"), options.pop("demo")
    if demo == (bids_dir is not None):
        msg = "--bids-dir: give either --bids-dir DIR or --demo."
        raise InputError(msg)
    filters = filters_request(options)
    if demo and filters:
        name = option_name(next(iter(filters)))
        msg = f"{name}: chooses among files of --bids-dir; leave it out of --demo."
        raise InputError(msg)
    return bids_dir, filters
