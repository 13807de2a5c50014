"""Encodings learned as a function of a region's MNI coordinates."""

import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import skip_init

from neuro_pe.encodings._base import EncodingInputs, PositionalEncoding, register, reset_linear

__all__ = ["Coordinates", "FourierFeatures"]

SCALE = 100.0  # mm; about the half of a brain's length, so that inputs are within -1 and 1
FOURIER_SCALE = 20.0  # mm; a frequency of standard deviation 1 has a wavelength of 126 mm
FOURIER_HIDDEN = 64


@register("coordinates")
class Coordinates(PositionalEncoding):
    """A learned linear map of MNI x, y and z.

    Parameters
    ----------
    inputs : EncodingInputs
        `coordinates` in mm.

    Raises
    ------
    InputError
        If there are no coordinates.

    References
    ----------
    Ortega Caro et al. (2024), "BrainLM: a foundation model for brain activity recordings", ICLR.
    """

    places: torch.Tensor

    def __init__(self, inputs: EncodingInputs) -> None:
        super().__init__(inputs)
        places = inputs.need_coordinates("coordinates") / SCALE
        self.register_buffer("places", places.float())
        self.linear = skip_init(nn.Linear, 3, inputs.width)
        self.reset_parameters(torch.Generator().manual_seed(0))

    def reset_parameters(self, generator: torch.Generator) -> None:
        """Draw the map."""
        reset_linear(self.linear, generator)

    def forward(self) -> torch.Tensor:
        """Return the vectors, shape (region, width)."""
        return self.linear(self.places)


@register("fourier")
class FourierFeatures(PositionalEncoding):
    """Sines and cosines of learned frequencies over MNI x, y and z, then a small MLP.

    Frequencies start from a normal distribution of standard deviation 1 / (20 mm).

    Parameters
    ----------
    inputs : EncodingInputs
        `coordinates` in mm.

    Raises
    ------
    InputError
        If there are no coordinates.

    References
    ----------
    Li, Si, Li, Hsieh & Bengio (2021), "Learnable Fourier features for multi-dimensional spatial
    positional encoding", NeurIPS, algorithm 1.
    """

    places: torch.Tensor

    def __init__(self, inputs: EncodingInputs) -> None:
        super().__init__(inputs)
        places = inputs.need_coordinates("fourier") / FOURIER_SCALE
        self.register_buffer("places", places.float())
        n_frequencies = max(1, inputs.width // 2)
        self.frequencies = nn.Parameter(torch.empty(3, n_frequencies))
        self.hidden = skip_init(nn.Linear, 2 * n_frequencies, FOURIER_HIDDEN)
        self.out = skip_init(nn.Linear, FOURIER_HIDDEN, inputs.width)
        self.reset_parameters(torch.Generator().manual_seed(0))

    def reset_parameters(self, generator: torch.Generator) -> None:
        """Draw the frequencies and the MLP."""
        nn.init.normal_(self.frequencies, generator=generator)
        for layer in (self.hidden, self.out):
            reset_linear(layer, generator)

    def forward(self) -> torch.Tensor:
        """Return the vectors, shape (region, width)."""
        # Rounded phases would blur neighbors together: no bfloat16 up to here.
        with torch.autocast(self.places.device.type, enabled=False):
            phases = self.places @ self.frequencies
        waves = torch.cat([phases.cos(), phases.sin()], dim=1) / (2 * phases.shape[1]) ** 0.5
        return self.out(functional.gelu(self.hidden(waves)))
