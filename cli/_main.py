"""The command group; subcommands are imported only when they are asked for."""

import errno
import importlib
import sys
import warnings
from dataclasses import fields
from typing import Any

import click

from neuro_pe import __version__
from neuro_pe.errors import InputError
from neuro_pe.settings import FitSettings, option_name

__all__ = ["main"]

COMMANDS = {
    "train": ("train", "Train masked-region models on a BIDS derivative."),
    "sweep": ("sweep", "Train models over lists of settings, on all cores or a cluster."),
    "compare-networks": ("compare_networks", "Compare what a model learned with brain networks."),
    "impute": ("impute", "Fill in the missing regions of runs with a trained model."),
    "synthetic": ("synthetic", "Tasks with a known truth: see what encodings learn."),
    "atlases": ("atlases", "List and show the atlases that are known by name."),
}


# How options are typed that Python calls by other names.
OPTIONS = {option.name: option_name(option.name) for option in fields(FitSettings)}
OPTIONS |= {f"n_{name}": f"--{name}" for name in ("regions", "modules", "subjects", "times")}
OPTIONS |= {name: f"--{name}" for name in ("within", "between", "noise", "size", "puzzles")}
OPTIONS["spectral_radius"] = "--spectral-radius"


NO_MEMORY = (
    "Error: the memory is not enough; ask for a smaller model (--width, --layers), smaller batches "
    "(--batch-size, --accumulate) or fewer --workers."
)


class _LazyGroup(click.Group):
    """A group that imports a subcommand's module when it is used, so ``--help`` is instant."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"neuro_pe.cli.{COMMANDS[cmd_name][0]}")
        return module.command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(
    cls=_LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="""\b
Examples:
  neuro-pe train --demo --output-dir demo_output
  neuro-pe train --bids-dir derivatives/xcp_d --atlas Glasser --output-dir results --seeds 3
  neuro-pe compare-networks results --partition yeo7
""",
)
@click.version_option(__version__, prog_name="neuro-pe")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def cli(debug: bool) -> None:
    """Train masked-region transformers on parcellated fMRI and ask what they learned.

    Each brain region is a token; a learnable positional encoding takes the place of region
    order, and is compared with the networks of brain atlases.
    """


def main(args: list[str] | None = None) -> None:
    """Run the command line; a user's mistake is one line and exit status 2.

    Parameters
    ----------
    args : list of str or None
        Arguments without the program's name; None takes them from the command line.
    """
    arguments = sys.argv[1:] if args is None else args
    debug = "--debug" in arguments
    # `--debug` is understood before and after the subcommand.
    arguments = [argument for argument in arguments if argument != "--debug"]
    warnings.showwarning = _show_warning
    try:
        code: Any = cli.main(args=arguments, prog_name="neuro-pe", standalone_mode=False)
    except click.ClickException as error:
        if debug:
            raise
        click.echo(_usage_line(error), err=True)
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt) as error:
        # Click turns the interrupt into an Abort; a command may have said how to go on.
        reason = error.__cause__ if isinstance(error, click.Abort) else error
        click.echo(str(reason or "") or "Interrupted.", err=True)
        sys.exit(130)
    except (InputError, OSError) as error:
        if debug:
            raise
        click.echo(f"Error: {_one_line(error)}", err=True)
        sys.exit(2)
    except (MemoryError, RuntimeError) as error:
        if debug or not (isinstance(error, MemoryError) or "memory" in str(error)):
            raise
        click.echo(NO_MEMORY, err=True)
        sys.exit(2)
    sys.exit(code if isinstance(code, int) else 0)


def _one_line(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        place = f"{error.filename}: " if error.filename else ""
        hint = ""
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            hint = " Make room and give the same command again (`train`: with --resume)."
        return f"{place}{error.strerror}.{hint}"
    text = " ".join(str(error).split())
    name, colon, rest = text.partition(":")
    # A setting is called as it was typed: `--mask-ratio`, not `mask_ratio`.
    return f"{OPTIONS[name]}{colon}{rest}" if name in OPTIONS else text


def _usage_line(error: click.ClickException) -> str:
    # New in click 8.2: the help page, for a command without any argument.
    if isinstance(error, getattr(click.exceptions, "NoArgsIsHelpError", ())):
        return error.format_message()
    text = " ".join(error.format_message().split())
    context = getattr(error, "ctx", None)
    hint = f" See `{context.command_path} --help`." if context else ""
    return f"Error: {text}{'' if text.endswith(('.', '?')) else '.'}{hint}"


def _show_warning(message: Warning | str, *_: object) -> None:
    click.echo(f"Warning: {' '.join(str(message).split())}", err=True)
