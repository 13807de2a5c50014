"""Command-line options made from the fields of FitSettings, and small parsers."""

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import click

from neuro_pe.settings import FitSettings, option_name

__all__ = ["settings_options", "subjects_request"]


def settings_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command one option for every field of FitSettings."""
    for option in reversed(fields(FitSettings)):
        choices = option.metadata.get("choices")
        kind = int if option.default is None else type(option.default)
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
    if "," in value or value.startswith("sub-"):
        return [label.strip() for label in value.split(",") if label.strip()]
    try:
        return int(value) if value.isdigit() else float(value)
    except ValueError:
        msg = (
            f"found {value!r}; expected a share such as 0.2, a number of subjects such as 4, or "
            "labels such as sub-01,sub-02"
        )
        raise click.BadParameter(msg, param=parameter) from None
