"""The error for a user's mistake."""

__all__ = ["InputError"]


class InputError(ValueError):
    """Input that cannot be used, told in one line.

    The message names the file or option, what was found, what was expected and what to do.
    The command line prints it without a traceback and exits with status 2.
    """
