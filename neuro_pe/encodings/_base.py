"""The interface of an encoding and the registry of names."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from neuro_pe.errors import InputError

__all__ = ["EncodingInputs", "PositionalEncoding", "make_encoding", "register"]


@dataclass(frozen=True, kw_only=True)
class EncodingInputs:
    """What an encoding may be built from.

    Parameters
    ----------
    n_regions, width : int
    sigma : float
        Standard deviation of the start.
    coordinates : ndarray, shape (region, 3), or None
        MNI x y z in mm.
    """

    n_regions: int
    width: int
    sigma: float
    coordinates: np.ndarray | None = None


class PositionalEncoding(nn.Module):
    """One vector a region, added to its token.

    Subclasses keep `vectors`, a parameter or a buffer of shape (region, width).
    """

    vectors: torch.Tensor

    def reset_parameters(self, generator: torch.Generator) -> None:
        """Draw the start anew; fixed encodings have nothing to draw."""

    def forward(self) -> torch.Tensor:
        """Return the encoding, shape (region, width)."""
        return self.vectors

    def extra_repr(self) -> str:
        """Say the size and how many numbers are learned."""
        n_regions, width = self.vectors.shape
        learned = sum(parameter.numel() for parameter in self.parameters())
        return f"n_regions={n_regions}, width={width}, learned={learned}"


_REGISTRY: dict[str, Callable[[EncodingInputs], PositionalEncoding]] = {}


def register(
    name: str,
) -> Callable[
    [Callable[[EncodingInputs], PositionalEncoding]],
    Callable[[EncodingInputs], PositionalEncoding],
]:
    """Give a builder of an encoding its name."""

    def add(
        builder: Callable[[EncodingInputs], PositionalEncoding],
    ) -> Callable[[EncodingInputs], PositionalEncoding]:
        _REGISTRY[name] = builder
        return builder

    return add


def make_encoding(
    name: str,
    *,
    n_regions: int,
    width: int,
    sigma: float = 0.1,
    coordinates: np.ndarray | None = None,
) -> PositionalEncoding:
    """Build an encoding by its name.

    Parameters
    ----------
    name : {"learn", "random", "nope", "1d-fixed", "3d-fixed"}
    n_regions, width : int
    sigma : float
        Standard deviation of the start of ``learn`` and of ``random``.
    coordinates : ndarray, shape (region, 3), or None
        MNI x y z in mm, for ``3d-fixed``.

    Raises
    ------
    InputError
        If the name is unknown, or the encoding needs coordinates and there are none.

    Examples
    --------
    >>> from neuro_pe.encodings import make_encoding
    >>> make_encoding("learn", n_regions=360, width=128)
    LearnedEncoding(n_regions=360, width=128, learned=46080, sigma=0.1)
    """
    if name not in _REGISTRY:
        msg = f"encoding: found {name!r}; expected one of {', '.join(_REGISTRY)}."
        raise InputError(msg)
    inputs = EncodingInputs(n_regions=n_regions, width=width, sigma=sigma, coordinates=coordinates)
    return _REGISTRY[name](inputs)
