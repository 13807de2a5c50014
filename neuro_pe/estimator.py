"""The scikit-learn face: parameters, fit, load."""

import os
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils import Tags, check_random_state

from neuro_pe._model_input import as_cohort
from neuro_pe.building import INITIAL, load_network
from neuro_pe.fitting import (
    describe_data,
    fit_network,
    history_metrics,
)
from neuro_pe.model_folder import find_model_folder
from neuro_pe.reconstruction import NO_REGION_ERRORS, EvaluationSet
from neuro_pe.settings import FitSettings
from neuro_pe.trained_model import TrainedModel
from neuro_pe.windows import WindowSource, long_enough, split_subjects

__all__ = ["MaskedRegionModel", "from_pretrained"]

_DEFAULT = FitSettings()


class MaskedRegionModel(TrainedModel):
    """A transformer that reconstructs hidden brain regions from the visible ones.

    Parameters
    ----------
    encoding : str
        Positional encoding of the regions: "learn" or another of ``neuro_pe.settings.ENCODINGS``.
    sigma : float
        Standard deviation that a learned or random encoding starts from.
    distribution : {"normal", "uniform"}
        What it starts from.
    rank : int or None
        Rank of its start; None is full.
    inject : {"input", "every-block"}
        Add the encoding at the input, or one of its own in every block.
    mask_ratio, test_mask_ratio : float
        Share of regions hidden in training, and in validation and scoring.
    mask_ratio_min : float or None
        Draw the share for each batch, from this to `mask_ratio`; None keeps it fixed.
    target_ratio : float
        Share of all regions that a training step reconstructs, drawn from the hidden ones.
    mask_pattern : {"uniform", "network", "hemisphere"}
        What is hidden in training: regions at random, whole networks or a hemisphere.
    window : int
        Length of a window, in TRs.
    stride : int or None
        TRs from one window to the next; None is `window`.
    layers, heads, width : int
        Encoder layers, attention heads and width of a token.
    design : {"cross-attention", "bert"}
        Encode visible regions and let hidden ones ask, or encode all regions together.
    norm : {"pre", "post"}
        LayerNorm before or after each part of a block.
    readout_gain : float
        Multiplies the start of the last layer: small is the rich, large the lazy regime.
    epochs : int or None
        Passes through the training runs at most; None makes about 2,500 steps.
    patience : int
        Stop after this many epochs without a better validation error.
    optimizer : {"muon", "adamw"}
        Of the blocks' weight matrices; all else is trained by AdamW.
    lr, encoding_lr, muon_lr : float
        Peak learning rates of AdamW, of the encoding (AdamW too) and of Muon.
    schedule : {"cosine", "constant"}
        Of the learning rates: warm-up, then half a cosine to zero; or none.
    weight_decay : float
        Of the blocks' matrices; 0 turns it off in the first and last layer too.
    batch_size : int
        Windows a training step.
    accumulate : int
        Parts that a batch is computed in, one after the other, to save memory.
    precision : {"auto", "float32", "bfloat16"}
        Number format of the matrix products in training; "auto" takes what is faster here.
    device : {"auto", "cpu", "cuda", "mps"}
    validation_subjects : float, int or sequence of str
        Subjects held out of `fit` for early stopping: a share, a number or labels. With fewer
        than three subjects a share holds nobody out.
    random_state : int, RandomState or None
        Seed of weights, windows and masks.

    Attributes
    ----------
    positional_encoding_ : DataFrame, shape (region, width)
        What was learned, of all blocks side by side; None if nothing is added to the tokens
        (``nope``, ``rope`` and others that work in the attention).
    positional_encoding_change_ : DataFrame, shape (region, width)
        Learned minus initial; None likewise.
    regions_ : DataFrame
        Regions in column order.
    functional_connectivity_ : DataFrame, shape (region, region)
        Of the training subjects.
    metrics_ : DataFrame
        Errors epoch by epoch, as in ``metrics.tsv``; ``seconds`` are core-seconds.
    network_ : MaskedRegionTransformer
    n_features_in_ : int
        Number of regions.

    References
    ----------
    Ito et al. (2025), "Learning interpretable positional encodings in transformers depends on
    initialization", ICML, arXiv 2406.08272.

    Examples
    --------
    >>> import numpy as np
    >>> from neuro_pe import MaskedRegionModel
    >>> rng = np.random.default_rng(0)
    >>> X = [rng.normal(size=(60, 10)) for _ in range(4)]  # 4 subjects, 60 TRs, 10 regions
    >>> model = MaskedRegionModel(window=10, width=16, heads=2, epochs=1, random_state=0).fit(X)
    >>> model.transform(X).shape
    (4, 10, 16)
    """

    def __init__(
        self,
        *,
        encoding: str = _DEFAULT.encoding,
        sigma: float = _DEFAULT.sigma,
        distribution: str = _DEFAULT.distribution,
        rank: int | None = _DEFAULT.rank,
        inject: str = _DEFAULT.inject,
        mask_ratio: float = _DEFAULT.mask_ratio,
        mask_ratio_min: float | None = _DEFAULT.mask_ratio_min,
        target_ratio: float = _DEFAULT.target_ratio,
        mask_pattern: str = _DEFAULT.mask_pattern,
        test_mask_ratio: float = _DEFAULT.test_mask_ratio,
        window: int = _DEFAULT.window,
        stride: int | None = _DEFAULT.stride,
        layers: int = _DEFAULT.layers,
        heads: int = _DEFAULT.heads,
        width: int = _DEFAULT.width,
        design: str = _DEFAULT.design,
        norm: str = _DEFAULT.norm,
        readout_gain: float = _DEFAULT.readout_gain,
        epochs: int | None = _DEFAULT.epochs,
        patience: int = _DEFAULT.patience,
        optimizer: str = _DEFAULT.optimizer,
        lr: float = _DEFAULT.lr,
        encoding_lr: float = _DEFAULT.encoding_lr,
        muon_lr: float = _DEFAULT.muon_lr,
        schedule: str = _DEFAULT.schedule,
        weight_decay: float = _DEFAULT.weight_decay,
        batch_size: int = _DEFAULT.batch_size,
        accumulate: int = _DEFAULT.accumulate,
        precision: str = _DEFAULT.precision,
        device: str = _DEFAULT.device,
        validation_subjects: float | int | Sequence[str] = 0.15,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.encoding = encoding
        self.sigma = sigma
        self.distribution = distribution
        self.rank = rank
        self.inject = inject
        self.mask_ratio = mask_ratio
        self.mask_ratio_min = mask_ratio_min
        self.target_ratio = target_ratio
        self.mask_pattern = mask_pattern
        self.test_mask_ratio = test_mask_ratio
        self.window = window
        self.stride = stride
        self.layers = layers
        self.heads = heads
        self.width = width
        self.design = design
        self.norm = norm
        self.readout_gain = readout_gain
        self.epochs = epochs
        self.patience = patience
        self.optimizer = optimizer
        self.lr = lr
        self.encoding_lr = encoding_lr
        self.muon_lr = muon_lr
        self.schedule = schedule
        self.weight_decay = weight_decay
        self.batch_size = batch_size
        self.accumulate = accumulate
        self.precision = precision
        self.device = device
        self.validation_subjects = validation_subjects
        self.random_state = random_state

    def fit(self, X: Any, y: None = None) -> "MaskedRegionModel":
        """Train on runs; some subjects are held out to stop early.

        Parameters
        ----------
        X : Cohort, or sequence of ndarray of shape (time, region), one a subject
            What :func:`neuro_pe.load_bids` returns, or arrays as for nilearn's
            ``ConnectivityMeasure``; also an array of shape (subject, time, region).
        y : None
            Ignored.

        Returns
        -------
        MaskedRegionModel

        Raises
        ------
        InputError
            If the data or a parameter cannot be used.
        """
        seed = self.random_state
        if not isinstance(seed, (int, np.integer)):
            seed = check_random_state(seed).randint(2**31 - 1)
        options = {name: value for name, value in self.get_params().items() if name in _OPTIONS}
        settings = FitSettings(**options, seed=int(seed))
        cohort = long_enough(as_cohort(X), window=settings.window)
        request = self.validation_subjects
        if isinstance(request, float) and len(cohort.subjects) < 3:
            request = 0
        split = split_subjects(cohort.subjects, test=0, validation=request)
        held_out = None
        if split.validation:
            others = WindowSource(
                cohort.select_subjects(split.validation),
                window=settings.window,
                stride=settings.stride,
            )
            held_out = EvaluationSet(others, mask_ratio=settings.test_mask_ratio)
        training = WindowSource(
            cohort.select_subjects(split.train), window=settings.window, stride=settings.stride
        )
        fit = fit_network(training, held_out, settings)
        folder, _ = fit.to_model_folder(
            Path(),
            data=describe_data(cohort),
            subjects=split.to_frame(),
            metrics=history_metrics(fit.history, fit.settings, held_out),
            region_errors=NO_REGION_ERRORS,
        )
        return self._adopt(folder, fit.network, fit.initial)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "MaskedRegionModel":
        """Read a trained model; see :func:`neuro_pe.from_pretrained`.

        Parameters
        ----------
        path : path-like
            A model folder, or a folder that holds exactly one.
        """
        folder = find_model_folder(path)
        options = asdict(folder.settings)
        model = cls(random_state=options.pop("seed"), **options)
        initial = folder.weights().get(INITIAL)
        return model._adopt(
            folder, load_network(folder), None if initial is None else initial.numpy()
        )

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.three_d_array = True
        return tags


_OPTIONS = {option.name for option in fields(FitSettings)} - {"seed"}


def from_pretrained(model_folder: str | os.PathLike[str]) -> MaskedRegionModel:
    """Load a trained model, to embed, score or fill in new subjects.

    Nothing in a model folder can run code. :meth:`MaskedRegionModel.load` does the same.

    Parameters
    ----------
    model_folder : path-like
        What ``neuro-pe train`` or :meth:`MaskedRegionModel.save` wrote, or a folder that holds
        exactly one such folder.

    Returns
    -------
    MaskedRegionModel

    Raises
    ------
    InputError
        If there is no complete model folder of this or an older version, or more than one; the
        line lists them.

    Examples
    --------
    >>> import neuro_pe as npe
    >>> model = npe.from_pretrained("results/encoding-learn_sigma-0.1_mask-0.9_seed-0")
    ... # doctest: +SKIP
    >>> model.transform(npe.load_demo()).shape  # doctest: +SKIP
    (12, 360, 128)
    """
    return MaskedRegionModel.load(model_folder)
