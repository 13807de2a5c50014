"""Networks from settings: untrained, as they start, and trained, from a model folder."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
import torch
from torch import nn

from neuro_pe.encodings import PositionalEncoding, make_encoding
from neuro_pe.errors import InputError
from neuro_pe.model_folder import ModelFolder
from neuro_pe.settings import FitSettings
from neuro_pe.timeseries import Cohort, coordinates_of
from neuro_pe.transformer import MaskedRegionTransformer

__all__ = [
    "INITIAL",
    "build_network",
    "load_network",
    "new_network",
    "relative_weight_change",
    "weight_change",
]

INITIAL = "positional_encoding_initial"  # beside the weights in model.safetensors


def build_network(
    settings: FitSettings,
    *,
    n_regions: int,
    coordinates: np.ndarray | None,
    connectivity: np.ndarray | None = None,
) -> MaskedRegionTransformer:
    """Build the untrained network that the settings describe.

    Parameters
    ----------
    settings : FitSettings
    n_regions : int
    coordinates : ndarray, shape (region, 3), or None
        MNI x y z in mm.
    connectivity : ndarray, shape (region, region), or None
        Functional connectivity of the training subjects.

    Raises
    ------
    InputError
        If the encoding cannot be made from these, or not be injected as asked.
    """
    n_blocks = settings.layers + (settings.design == "cross-attention")

    def encoding() -> PositionalEncoding:
        return make_encoding(
            settings.encoding,
            n_regions=n_regions,
            width=settings.width,
            heads=settings.heads,
            n_blocks=n_blocks,
            sigma=settings.sigma,
            distribution=settings.distribution,
            rank=settings.rank,
            coordinates=coordinates,
            connectivity=connectivity,
        )

    encodings = [encoding()]
    if settings.inject == "every-block":
        if encodings[0]() is None:
            msg = (
                f"inject: encoding {settings.encoding!r} adds nothing to the tokens that every "
                "block could have of its own; leave it at 'input'."
            )
            raise InputError(msg)
        encodings += [encoding() for _ in range(n_blocks - 1)]
    # PyTorch's layers draw a start of their own, which must not move the global generator.
    with torch.random.fork_rng(devices=[]):
        return MaskedRegionTransformer(
            window=settings.window,
            width=settings.width,
            layers=settings.layers,
            heads=settings.heads,
            encodings=encodings,
            generator=torch.Generator().manual_seed(settings.seed),
            design=settings.design,
            norm=settings.norm,
            readout_gain=settings.readout_gain,
        )


def new_network(settings: FitSettings, cohort: Cohort) -> MaskedRegionTransformer:
    """Build the untrained network of a cohort.

    Parameters
    ----------
    settings : FitSettings
    cohort : Cohort

    Raises
    ------
    InputError
        If there are under two regions, or the encoding needs coordinates that they lack.
    """
    n_regions = len(cohort.region_names)
    if n_regions < 2:
        msg = (
            f"{cohort[0].label}: found {n_regions} region; expected at least 2, one to hide and "
            "one to see."
        )
        raise InputError(msg)
    return build_network(
        settings,
        n_regions=n_regions,
        coordinates=cohort.coordinates,
        connectivity=cohort.functional_connectivity().to_numpy(),
    )


def relative_weight_change(folder: ModelFolder) -> pd.DataFrame:
    """Measure how far training moved the weights: little is the lazy regime, much the rich one.

    The start is drawn anew from the seed of the fit.

    Parameters
    ----------
    folder : ModelFolder

    Returns
    -------
    DataFrame
        See :func:`weight_change`.

    Raises
    ------
    InputError
        As :func:`load_network`.
    """
    return weight_change(_untrained(folder), load_network(folder).state_dict())


def weight_change(start: nn.Module, learned: Mapping[str, torch.Tensor]) -> pd.DataFrame:
    """Measure how far weights are from their start, part by part.

    Parameters
    ----------
    start : Module
        The network as it started.
    learned : mapping of str to Tensor
        Its weights after training, by the same names.

    Returns
    -------
    DataFrame
        A row a part (``encodings``, ``embed``, ``encoder``, ``decoder``, ``readout``): ``part,
        start_norm, change`` with the Frobenius norm of the start, and that of learned minus
        start over that of the start (NaN where a part starts from zeros).

    References
    ----------
    Chizat et al. (2019), "On lazy training in differentiable programming", NeurIPS.
    """
    squares: dict[str, np.ndarray] = {}
    for name, parameter in start.named_parameters():
        if not parameter.requires_grad or "norm" in name:
            continue
        first = parameter.detach().double()
        change = (learned[name].double() - first).square().sum().item()
        added = np.array([first.square().sum().item(), change])
        part = name.split(".")[0]
        squares[part] = squares.get(part, 0) + added
    table = pd.DataFrame(np.sqrt(list(squares.values())), columns=["start_norm", "change"])
    table.insert(0, "part", list(squares))
    table["change"] /= table["start_norm"].where(table["start_norm"] > 0)
    return table


def _untrained(folder: ModelFolder) -> MaskedRegionTransformer:
    return build_network(
        folder.settings,
        n_regions=len(folder.regions),
        coordinates=coordinates_of(folder.regions),
        connectivity=folder.functional_connectivity.to_numpy(),
    )


def load_network(folder: ModelFolder) -> MaskedRegionTransformer:
    """Build the trained network of a model folder, ready to predict (in evaluation mode).

    Raises
    ------
    InputError
        If the weights are damaged or do not fit the settings.
    """
    network = _untrained(folder)
    weights = folder.weights()
    weights.pop(INITIAL, None)
    try:
        network.load_state_dict(weights)
    except RuntimeError:
        msg = f"{folder.path}: the weights do not fit settings.json and regions.tsv; fit it again."
        raise InputError(msg) from None
    return network.eval()
