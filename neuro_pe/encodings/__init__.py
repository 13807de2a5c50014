"""Positional encodings: what tells one region from another.

An encoding is a module that returns one vector a region, shape (region, width), added to the
tokens. Build one by its name with :func:`make_encoding`.
"""

from neuro_pe.encodings._base import PositionalEncoding, make_encoding
from neuro_pe.encodings._fixed import Sinusoids1d, Sinusoids3d
from neuro_pe.encodings._learned import LearnedEncoding, NoEncoding, RandomEncoding

__all__ = [
    "LearnedEncoding",
    "NoEncoding",
    "PositionalEncoding",
    "RandomEncoding",
    "Sinusoids1d",
    "Sinusoids3d",
    "make_encoding",
]
