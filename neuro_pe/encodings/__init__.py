"""Positional encodings: what tells one region from another.

An encoding is a module that is added to the tokens (one vector a region) or takes a hand in the
attention. Build one by its name with :func:`make_encoding`; add your own with :func:`register`.
"""

from neuro_pe.encodings._base import (
    AttentionEncoding,
    EncodingInputs,
    Places,
    PositionalEncoding,
    fused_attention,
    make_encoding,
    register,
    registered_modules,
    reset_linear,
)
from neuro_pe.encodings._context import ContextualPositions, Dape
from neuro_pe.encodings._coordinates import Coordinates, FourierFeatures
from neuro_pe.encodings._digits import DigitSequences
from neuro_pe.encodings._distance import Alibi, T5Bias, alibi_slopes
from neuro_pe.encodings._graph import (
    Gradients,
    LaplacianEigenvectors,
    Pearl,
    diffusion_gradients,
    laplacian_eigenvectors,
    region_graph,
)
from neuro_pe.encodings._learned import LearnedEncoding, NoEncoding, RandomEncoding
from neuro_pe.encodings._relative import CausalRelative, Relative
from neuro_pe.encodings._rotary import Rotary
from neuro_pe.encodings._sinusoids import (
    RandomizedSinusoids,
    Sinusoids1d,
    Sinusoids2d,
    Sinusoids3d,
)

__all__ = [
    "Alibi",
    "AttentionEncoding",
    "CausalRelative",
    "ContextualPositions",
    "Coordinates",
    "Dape",
    "DigitSequences",
    "EncodingInputs",
    "FourierFeatures",
    "Gradients",
    "LaplacianEigenvectors",
    "LearnedEncoding",
    "NoEncoding",
    "Pearl",
    "Places",
    "PositionalEncoding",
    "RandomEncoding",
    "RandomizedSinusoids",
    "Relative",
    "Rotary",
    "Sinusoids1d",
    "Sinusoids2d",
    "Sinusoids3d",
    "T5Bias",
    "alibi_slopes",
    "diffusion_gradients",
    "fused_attention",
    "laplacian_eigenvectors",
    "make_encoding",
    "region_graph",
    "register",
    "registered_modules",
    "reset_linear",
]
