"""The command ``neuro-pe``: one file a command; a command turns options into one call."""

from neuro_pe.cli._main import main

__all__ = ["main"]
