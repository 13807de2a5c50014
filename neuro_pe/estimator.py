"""The scikit-learn face: fit, transform, score, save, load."""

import os
import shutil
from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_is_fitted

from neuro_pe.errors import InputError
from neuro_pe.fitting import (
    INITIAL,
    describe_data,
    fit_network,
    history_metrics,
    load_network,
)
from neuro_pe.model_folder import ModelFolder, partial_path, read_model_folder, write_model_folder
from neuro_pe.reconstruction import NO_REGION_ERRORS, EvaluationSet, ModelImputer
from neuro_pe.settings import FitSettings
from neuro_pe.timeseries import Cohort, RegionTimeSeries
from neuro_pe.transformer import MaskedRegionTransformer
from neuro_pe.windows import WindowSource, long_enough, split_subjects

__all__ = ["MaskedRegionModel"]

_DEFAULT = FitSettings()


class MaskedRegionModel(TransformerMixin, BaseEstimator):
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
        Passes through the training runs at most; None makes about 1,500 steps.
    patience : int
        Stop after this many epochs without a better validation error.
    optimizer : {"muon", "adamw"}
        Of the blocks' weight matrices; all else is trained by AdamW.
    lr, muon_lr, weight_decay : float
        Peak learning rates of AdamW and Muon; weight decay of the blocks' matrices.
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
        muon_lr: float = _DEFAULT.muon_lr,
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
        self.muon_lr = muon_lr
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
        cohort = long_enough(_as_cohort(X), window=settings.window)
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

    def transform(self, X: Any) -> np.ndarray:
        """Embed the regions of subjects: encoder output with all regions visible.

        Parameters
        ----------
        X : as for :meth:`fit`

        Returns
        -------
        ndarray of float32, shape (subject, region, width)
            Mean over the windows of a subject.
        """
        source = self._source(X)
        windows = source.evaluation_windows()
        n_regions = len(self.regions_)
        total = np.zeros((len(source.subjects), n_regions, self.network_.embed.out_features))
        for batch in windows.split(64):
            visible = torch.arange(n_regions).expand(len(batch), -1)
            with torch.no_grad():
                tokens = self.network_.encode(source.gather(batch), visible).numpy()
            np.add.at(total, source.subject_of_run[batch[:, 0].numpy()], tokens)
        count = np.bincount(source.subject_of_run[windows[:, 0].numpy()])
        return (total / count[:, None, None]).astype(np.float32)

    def score(self, X: Any, y: None = None) -> float:
        """Return R2 on hidden regions; higher is better, 0 is predicting each region's mean.

        Parameters
        ----------
        X : as for :meth:`fit`
            Subjects that were not trained on.
        y : None
            Ignored.
        """
        source = self._source(X)
        held_out = EvaluationSet(source, mask_ratio=self._folder.settings.test_mask_ratio)
        squared, squares, _ = held_out.errors(ModelImputer(self.network_)).sum(axis=(1, 2))
        return float(1 - squared / squares)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a model folder, as ``neuro-pe train`` does.

        Parameters
        ----------
        path : path-like
            Must not exist.
        """
        check_is_fitted(self)
        path = Path(path)
        for place in (path, partial_path(path)):
            if place.exists():
                msg = f"{place}: exists already; choose another folder."
                raise InputError(msg)
        weights = self.network_.state_dict()
        if self._initial is not None:
            weights[INITIAL] = torch.from_numpy(self._initial)
        try:
            write_model_folder(replace(self._folder, path=path), weights)
        except BaseException:
            shutil.rmtree(partial_path(path), ignore_errors=True)
            raise

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "MaskedRegionModel":
        """Read a model folder; nothing in it can run code.

        Parameters
        ----------
        path : path-like

        Raises
        ------
        InputError
            If it is not a complete model folder of this or an older version.
        """
        folder = read_model_folder(path)
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

    def _adopt(
        self, folder: ModelFolder, network: MaskedRegionTransformer, initial: np.ndarray | None
    ) -> "MaskedRegionModel":
        self._folder = folder
        self._initial = initial
        self.network_ = network
        self.regions_ = folder.regions
        self.metrics_ = folder.metrics
        self.positional_encoding_ = folder.positional_encoding
        self.positional_encoding_change_ = folder.positional_encoding_change
        self.functional_connectivity_ = folder.functional_connectivity
        self.n_features_in_ = len(folder.regions) + len(folder.dropped)
        return self

    def _source(self, X: Any) -> WindowSource:
        """Cut new runs into windows, with the regions of the model in its order."""
        check_is_fitted(self)
        cohort = _as_cohort(X)
        names = [str(name) for name in self.regions_["name"]]
        if cohort.atlas is None and _unnamed(names) and _n_columns(cohort) != self.n_features_in_:
            msg = (
                f"{cohort[0].label}: found {_n_columns(cohort)} columns; expected the "
                f"{self.n_features_in_} regions of the data that the model was fitted on."
            )
            raise InputError(msg)
        missing = [name for name in names if name not in set(cohort.region_names)]
        if missing:
            msg = (
                f"{cohort[0].label}: has no signal for {len(missing)} of the model's "
                f"{len(names)} regions (first: {missing[0]}); all are needed, by name."
            )
            raise InputError(msg)
        runs = tuple(run.select(names) for run in cohort)
        settings = self._folder.settings
        return WindowSource(
            replace(cohort, runs=runs, regions=self.regions_),
            window=settings.window,
            stride=settings.stride,
        )


def _unnamed(names: Sequence[str]) -> bool:
    """Whether names are column numbers, so that columns must be counted to be matched."""
    return all(name.isdigit() for name in names)


def _n_columns(cohort: Cohort) -> int:
    return len(cohort.region_names) + len(cohort.dropped)


_OPTIONS = {option.name for option in fields(FitSettings)} - {"seed"}


def _as_cohort(X: Any) -> Cohort:
    if isinstance(X, Cohort):
        return X
    if not isinstance(X, (list, tuple, np.ndarray)) or (isinstance(X, np.ndarray) and X.ndim != 3):
        shape = getattr(X, "shape", None)
        found = f"an array of shape {shape}" if shape is not None else type(X).__name__
        msg = (
            f"X: found {found}; expected a list of (time, region) arrays, one a subject, a "
            "(subject, time, region) array, or what load_bids returns."
        )
        raise InputError(msg)
    runs = []
    for number, values in enumerate(X):
        if isinstance(values, RegionTimeSeries):
            runs.append(values)
            continue
        array = np.asarray(values)
        names = (
            [str(name) for name in values.columns]
            if isinstance(values, pd.DataFrame)
            else [str(column) for column in range(array.shape[-1] if array.ndim else 0)]
        )
        runs.append(RegionTimeSeries(values=array, regions=tuple(names), subject=str(number)))
    return Cohort.from_runs(runs)
