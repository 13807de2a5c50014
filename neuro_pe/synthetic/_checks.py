"""What functions for synthetic tasks refuse of their arguments."""

from collections.abc import Callable, Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np

from neuro_pe.errors import InputError

__all__ = ["check_list", "check_noise", "check_number", "check_whole"]


def check_whole(name: str, value: Any, least: int, most: int | None = None) -> None:
    """Refuse what is no whole number, or is out of range."""
    is_whole = isinstance(value, Integral) and not isinstance(value, bool)
    if not is_whole or value < least or (most is not None and value > most):
        limit = f"of {least} or more" if most is None else f"from {least} to {most}"
        msg = f"{name}: found {value!r}; expected a whole number {limit}."
        raise InputError(msg)


def check_number(name: str, value: Any, is_right: Callable[[Any], bool], expected: str) -> None:
    """Refuse what is no number, or is out of range."""
    if not isinstance(value, Real) or not is_right(value):
        msg = f"{name}: found {value!r}; expected {expected}."
        raise InputError(msg)


def check_noise(value: Any) -> None:
    """Refuse what is no standard deviation."""
    check_number("noise", value, lambda number: 0 < number < np.inf, "a number over 0")


def check_list(name: str, values: Any) -> None:
    """Refuse what is no list of values, or an empty one."""
    is_list = isinstance(values, Sequence | np.ndarray) and not isinstance(values, str)
    if not is_list or not len(values):
        msg = f"{name}: found {values!r}; expected a list of values."
        raise InputError(msg)
