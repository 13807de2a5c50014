"""The interface of an encoding and the registry of names."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from neuro_pe.errors import InputError
from neuro_pe.settings import ENCODINGS

__all__ = [
    "AttentionEncoding",
    "EncodingInputs",
    "Places",
    "PositionalEncoding",
    "fused_attention",
    "make_encoding",
    "register",
    "registered_modules",
    "reset_linear",
]


@dataclass(frozen=True, kw_only=True)
class EncodingInputs:
    """What an encoding may be built from.

    Parameters
    ----------
    n_regions, width : int
    heads : int
        Attention heads, of width / heads dimensions each.
    n_blocks : int
        Attention blocks of the model, which may have parameters of their own.
    sigma : float
        Standard deviation of the start of ``learn`` and ``random``.
    distribution : {"normal", "uniform"}
        What ``learn`` and ``random`` start from.
    rank : int or None
        Rank of the start of ``learn`` and ``random``; None is full.
    coordinates : ndarray, shape (region, 3), or None
        MNI x y z in mm.
    grid : tuple of (int, int) or None
        Rows and columns, if the tokens are the cells of a grid, row by row.
    connectivity : ndarray, shape (region, region), or None
        Functional connectivity of the training subjects.
    """

    n_regions: int
    width: int
    heads: int = 1
    n_blocks: int = 1
    sigma: float = 0.1
    distribution: str = "normal"
    rank: int | None = None
    coordinates: np.ndarray | None = None
    grid: tuple[int, int] | None = None
    connectivity: np.ndarray | None = None

    @property
    def head_width(self) -> int:
        """Dimensions of a head."""
        return self.width // self.heads

    def need_coordinates(self, name: str) -> torch.Tensor:
        """Return the coordinates, shape (region, 3), as float64; refuse if there are none."""
        if self.coordinates is None:
            msg = (
                f"encoding: {name!r} needs MNI coordinates of every region, and at least one "
                "region has none; choose another encoding or an atlas with coordinates."
            )
            raise InputError(msg)
        # A copy: tables hand out arrays that must not be written to, of which PyTorch warns.
        return torch.from_numpy(np.array(self.coordinates, dtype=float))

    def need_connectivity(self, name: str) -> np.ndarray:
        """Return the functional connectivity; refuse if there is none."""
        if self.connectivity is None:
            msg = (
                f"encoding: {name!r} needs the functional connectivity of training subjects, "
                "which these tokens do not have; choose another encoding."
            )
            raise InputError(msg)
        return self.connectivity

    def need_grid(self, name: str) -> torch.Tensor:
        """Return row and column of every token, shape (token, 2), as float64; refuse if none."""
        if self.grid is None:
            msg = (
                f"encoding: {name!r} needs tokens on a grid of rows and columns, and brain regions "
                "have none; choose 3d-fixed or rope-3d, which take MNI coordinates."
            )
            raise InputError(msg)
        rows, columns = self.grid
        return torch.cartesian_prod(torch.arange(rows), torch.arange(columns)).double()


@dataclass(frozen=True, kw_only=True)
class Places:
    """Which regions ask which others in an attention block.

    Parameters
    ----------
    rows : Tensor of int64, shape (batch, row)
        The regions that ask.
    columns : Tensor of int64, shape (batch, column)
        The regions that are asked.
    block : int
        Number of the attention block.
    """

    rows: torch.Tensor
    columns: torch.Tensor
    block: int

    @property
    def difference(self) -> torch.Tensor:
        """Index of the column minus that of the row, shape (batch, row, column)."""
        return self.columns[:, None, :] - self.rows[:, :, None]

    def pick(self, table: torch.Tensor) -> torch.Tensor:
        """Pick from a table of all pairs of regions, to shape (batch, row, column)."""
        return table[self.rows[:, :, None], self.columns[:, None, :]]


class PositionalEncoding(nn.Module):
    """What tells one region from another: vectors added to tokens, or a hand in the attention.

    A subclass overrides :meth:`forward`, or :meth:`scores` and :meth:`attend`. It is built from
    :class:`EncodingInputs` and named by :func:`register`.

    Parameters
    ----------
    inputs : EncodingInputs
    """

    def __init__(self, inputs: EncodingInputs) -> None:
        super().__init__()
        self.inputs = inputs

    def reset_parameters(self, generator: torch.Generator) -> None:
        """Draw the start anew; fixed encodings have nothing to draw."""

    def resample(self, generator: torch.Generator) -> None:
        """Draw what is random in every training step; called before each."""

    def forward(self) -> torch.Tensor | None:
        """Return the vectors that are added to the tokens, shape (region, width), or None."""
        return None

    def scores(self, query: torch.Tensor, key: torch.Tensor, at: Places) -> torch.Tensor:
        """Return the attention scores, of which a softmax over columns is taken.

        Parameters
        ----------
        query : Tensor, shape (batch, head, row, dimension)
        key : Tensor, shape (batch, head, column, dimension)
        at : Places
            The regions of rows and columns.

        Returns
        -------
        Tensor, shape (batch, head, row, column)
        """
        return query @ key.mT / query.shape[-1] ** 0.5

    def attend(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, at: Places
    ) -> torch.Tensor:
        """Return the attended values: the softmax of :meth:`scores` times `value`, but faster.

        Parameters
        ----------
        query, key, at
            See :meth:`scores`.
        value : Tensor, shape (batch, head, column, dimension)

        Returns
        -------
        Tensor, shape (batch, head, row, dimension)
        """
        return fused_attention(query, key, value)

    def extra_repr(self) -> str:
        """Say the size and how many numbers are learned."""
        learned = sum(each.numel() for each in self.parameters() if each.requires_grad)
        inputs = self.inputs
        return f"n_regions={inputs.n_regions}, width={inputs.width}, learned={learned}"


class AttentionEncoding(PositionalEncoding):
    """An encoding that changes the scores in ways that no fused attention knows.

    Parameters
    ----------
    inputs : EncodingInputs
    """

    def attend(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, at: Places
    ) -> torch.Tensor:
        """Return the softmax of the scores times `value`, all in float32."""
        query, key, value = query.float(), key.float(), value.float()
        with torch.autocast(query.device.type, enabled=False):
            return self.scores(query, key, at).softmax(dim=-1) @ value


def fused_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    bias: torch.Tensor | None = None,
) -> torch.Tensor:
    """Attend; on a CPU in float32, since the backward pass is many times slower in bfloat16.

    Parameters
    ----------
    query, key, value : Tensor, shape (batch, head, token, dimension)
    bias : Tensor, shape (batch, head, row, column), or None
        Added to the scores.
    """
    if query.device.type != "cpu":
        mask = None if bias is None else bias.to(query.dtype)
        return functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
    with torch.autocast("cpu", enabled=False):
        return functional.scaled_dot_product_attention(
            query.float(), key.float(), value.float(), attn_mask=bias
        )


def reset_linear(linear: nn.Linear, generator: torch.Generator) -> None:
    """Draw a layer's start: PyTorch's own default, from our generator."""
    bound = linear.in_features**-0.5
    for parameter in (linear.weight, linear.bias):
        nn.init.uniform_(parameter, -bound, bound, generator=generator)


_REGISTRY: dict[str, Callable[[EncodingInputs], PositionalEncoding]] = {}
_BUILT_IN = tuple(ENCODINGS)

Builder = Callable[[EncodingInputs], PositionalEncoding]


def register(name: str) -> Callable[[Any], Any]:
    """Give an encoding its name, by which settings and ``neuro-pe`` call it.

    Parameters
    ----------
    name : str
        Letters, digits and hyphens.

    Returns
    -------
    callable
        A decorator of a class, or of a function that builds one, from :class:`EncodingInputs`.

    Raises
    ------
    ValueError
        If the name is taken by another encoding.

    Examples
    --------
    >>> import torch
    >>> from neuro_pe.encodings import PositionalEncoding, make_encoding, register
    >>> @register("hemisphere")
    ... class Hemisphere(PositionalEncoding):
    ...     '''Left is -1, right is +1, in the first dimension.'''
    ...     def __init__(self, inputs):
    ...         super().__init__(inputs)
    ...         x = inputs.need_coordinates("hemisphere")[:, :1].sign().float()
    ...         vectors = torch.nn.functional.pad(x, (0, inputs.width - 1))
    ...         self.register_buffer("vectors", vectors)
    ...     def forward(self):
    ...         return self.vectors
    >>> make_encoding("hemisphere", n_regions=2, width=8, coordinates=[[-9, 0, 0], [9, 0, 0]])
    Hemisphere(n_regions=2, width=8, learned=0)
    """

    def add(builder: Any) -> Any:
        old = _REGISTRY.get(name)
        if old is not None and (old.__module__, old.__qualname__) != (
            builder.__module__,
            builder.__qualname__,
        ):
            msg = f"encoding {name!r}: the name is taken by {old.__module__}.{old.__qualname__}."
            raise ValueError(msg)
        _REGISTRY[name] = builder
        if name not in ENCODINGS:
            ENCODINGS.append(name)
        return builder

    return add


def registered_modules() -> list[str]:
    """Return the modules that registered encodings of their own, for other processes to import."""
    found = {_REGISTRY[name].__module__ for name in _REGISTRY if name not in _BUILT_IN}
    return sorted(found - {"__main__"})


def make_encoding(name: str, *, n_regions: int, width: int, **inputs: Any) -> PositionalEncoding:
    """Build an encoding by its name.

    Parameters
    ----------
    name : str
        One of ``neuro_pe.settings.ENCODINGS``.
    n_regions, width : int
    **inputs
        The other fields of :class:`EncodingInputs`.

    Raises
    ------
    InputError
        If the name is unknown, or the encoding needs what there is not (coordinates, a grid).

    Examples
    --------
    >>> from neuro_pe.encodings import make_encoding
    >>> make_encoding("learn", n_regions=360, width=128)
    LearnedEncoding(n_regions=360, width=128, learned=46080, sigma=0.1)
    """
    if name not in _REGISTRY:
        msg = (
            f"encoding: found {name!r}; expected one of {', '.join(_REGISTRY)}; import the module "
            "that registers an encoding of your own."
        )
        raise InputError(msg)
    return _REGISTRY[name](EncodingInputs(n_regions=n_regions, width=width, **inputs))
