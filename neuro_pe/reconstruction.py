"""Masked-region reconstruction: the task that is trained, and its errors beside the baselines'."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch

from neuro_pe.baselines import (
    RIDGES,
    GaussianImputer,
    Imputer,
    SpaceTimeGaussianImputer,
    VisibleMean,
    Zero,
)
from neuro_pe.errors import InputError
from neuro_pe.masking import grouped_masks, n_visible_regions, some_regions, uniform_masks
from neuro_pe.settings import FitSettings
from neuro_pe.transformer import MaskedRegionTransformer, take_regions
from neuro_pe.windows import WindowSource

__all__ = [
    "EvaluationSet",
    "MaskedRegionTask",
    "ModelImputer",
    "fit_baselines",
    "mask_groups",
    "mean_attention",
    "summarize_errors",
]

# Masks are drawn once, from this seed, for all models and baselines of an evaluation.
EVALUATION_SEED = 20_250_713
N_EVALUATION_MASKS = 32
WINDOWS_AT_ONCE = 64
# Above this many visible values in a window the space-time covariance no longer fits in memory.
MAX_SPACE_TIME_VALUES = 8_000
NETWORK_COLUMNS = ("yeo7", "gordon", "power")  # the first that the atlas has

NO_REGION_ERRORS = pd.DataFrame(
    {
        "region": pd.Series(dtype=str),
        "subject": pd.Series(dtype=str),
        "predictor": pd.Series(dtype=str),
        "mse": pd.Series(dtype=float),
        "r2": pd.Series(dtype=float),
        "n": pd.Series(dtype=int),
    }
)

Group = tuple[np.ndarray, np.ndarray, np.ndarray]


class EvaluationSet:
    """Fixed windows and fixed masks, so that every predictor sees the same hidden values.

    Windows adjoin from the first TR of each run. The masks are shared: window *i* takes mask
    *i* modulo their number, so each subject meets nearly all of them.

    Parameters
    ----------
    source : WindowSource
    mask_ratio : float
        Share of regions hidden.
    n_masks : int
    """

    def __init__(
        self, source: WindowSource, *, mask_ratio: float, n_masks: int = N_EVALUATION_MASKS
    ) -> None:
        self.source = source
        self.mask_ratio = mask_ratio
        self.windows = source.evaluation_windows()
        n_masks = min(n_masks, len(self.windows))
        generator = torch.Generator().manual_seed(EVALUATION_SEED)
        n_regions = source.n_regions
        self.visible, self.hidden = uniform_masks(n_masks, n_regions, mask_ratio, generator)
        self.mask_of_window = torch.arange(len(self.windows)) % n_masks

    def groups(self) -> Iterator[Group]:
        """Yield windows that share a mask: their numbers, its visible and hidden regions.

        Groups are small enough for the memory; those of one mask follow each other.
        """
        for mask in range(len(self.visible)):
            chosen = (self.mask_of_window == mask).nonzero()[:, 0]
            for part in chosen.split(WINDOWS_AT_ONCE):
                yield part.numpy(), self.visible[mask].numpy(), self.hidden[mask].numpy()

    def errors(self, predictor: Imputer) -> np.ndarray:
        """Return squared errors of a predictor.

        Parameters
        ----------
        predictor : Imputer

        Returns
        -------
        ndarray, shape (3, subject, region)
            Sum of squared errors, sum of squares of the true values, number of values; over the
            hidden values.
        """
        total = self._empty()
        for chosen, visible, hidden in self.groups():
            values = self.source.gather(self.windows[chosen]).numpy()
            predicted = predictor.predict(values, visible, hidden)
            self._add(total, chosen, hidden, values[:, hidden], predicted)
        return total

    def ridge_errors(
        self, predictor: SpaceTimeGaussianImputer, ridges: Sequence[float]
    ) -> list[float]:
        """Return the mean squared error of an imputer for each ridge."""
        totals = [self._empty() for _ in ridges]
        for chosen, visible, hidden in self.groups():
            values = self.source.gather(self.windows[chosen]).numpy()
            predictions = predictor.predict_ridges(values, visible, hidden, ridges)
            for total, predicted in zip(totals, predictions, strict=True):
                self._add(total, chosen, hidden, values[:, hidden], predicted)
        return [float(total[0].sum() / total[2].sum()) for total in totals]

    def _empty(self) -> np.ndarray:
        n_regions = self.source.n_regions
        return np.zeros((3, len(self.source.subjects), n_regions))

    def _add(
        self,
        total: np.ndarray,
        chosen: np.ndarray,
        hidden: np.ndarray,
        truth: np.ndarray,
        predicted: np.ndarray,
    ) -> None:
        subjects = self.source.subject_of_run[self.windows[chosen, 0].numpy()]
        parts = (
            ((predicted - truth) ** 2).sum(axis=2),
            (truth.astype(float) ** 2).sum(axis=2),
            np.full(truth.shape[:2], truth.shape[2]),
        )
        for slot, part in enumerate(parts):  # part: (window, hidden region)
            np.add.at(total[slot], (subjects[:, None], hidden[None, :]), part)


class ModelImputer:
    """A trained model as a predictor of hidden regions.

    Parameters
    ----------
    model : MaskedRegionTransformer
    """

    name = "model"

    def __init__(self, model: MaskedRegionTransformer) -> None:
        self.model = model

    @torch.no_grad()
    def predict(self, values: np.ndarray, visible: np.ndarray, hidden: np.ndarray) -> np.ndarray:
        """See :class:`neuro_pe.baselines.Imputer`."""
        self.model.eval()
        device = next(self.model.parameters()).device
        windows = torch.as_tensor(values, device=device)
        masks = [
            torch.as_tensor(indices, device=device).expand(len(values), -1)
            for indices in (visible, hidden)
        ]
        return self.model(windows, *masks).cpu().numpy()


@torch.no_grad()
def mean_attention(model: MaskedRegionTransformer, source: WindowSource) -> np.ndarray:
    """Return the encoder's attention with all regions visible, mean over windows.

    Parameters
    ----------
    model : MaskedRegionTransformer
    source : WindowSource

    Returns
    -------
    ndarray of float32, shape (layer, head, region, region)
        Rows attend to columns; each row sums to 1.
    """
    model.eval()
    windows = source.evaluation_windows()
    n_regions = source.n_regions
    total = torch.zeros(())
    for batch in windows.split(8):
        visible = torch.arange(n_regions).expand(len(batch), -1)
        total = total + model.attention_maps(source.gather(batch), visible).sum(dim=1)
    return (total / len(windows)).numpy()


class Batches:
    """Batches of windows (run and first TR); masks are drawn as they are asked for.

    Parameters
    ----------
    windows : sequence of Tensor, shape (batch, 2)
    draw : callable
        Number of windows to visible and hidden regions.
    """

    def __init__(
        self,
        windows: Sequence[torch.Tensor],
        draw: Callable[[int], tuple[torch.Tensor, torch.Tensor]],
    ) -> None:
        self.windows = windows
        self.draw = draw

    def __len__(self) -> int:
        return len(self.windows)

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
        for windows in self.windows:
            yield windows, *self.draw(len(windows))


class MaskedRegionTask:
    """Hide regions of training windows, reconstruct them; validate on other subjects.

    Parameters
    ----------
    training : WindowSource
    validation : EvaluationSet or None
    settings : FitSettings
    device : torch.device
    """

    def __init__(
        self,
        training: WindowSource,
        validation: EvaluationSet | None,
        settings: FitSettings,
        device: torch.device,
    ) -> None:
        self.training = training
        self.validation = validation
        self.settings = settings
        self.device = device
        self.groups = mask_groups(settings.mask_pattern, training.cohort.regions)

    def batches(self, generator: torch.Generator) -> Batches:
        """Return the windows of one epoch and their masks, batch by batch."""
        self.generator = generator
        windows = self.training.training_windows(generator)
        return Batches(windows.split(self.settings.batch_size), self.draw_masks)

    def draw_masks(self, n_windows: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Draw visible regions of each window of a batch, and hidden ones to reconstruct."""
        ratio, lowest = self.settings.mask_ratio, self.settings.mask_ratio_min
        if lowest is not None:
            ratio = lowest + (ratio - lowest) * float(torch.rand(1, generator=self.generator))
        if self.groups is not None:
            visible, hidden = grouped_masks(n_windows, self.groups, ratio, self.generator)
        else:
            n_regions = self.training.n_regions
            visible, hidden = uniform_masks(n_windows, n_regions, ratio, self.generator)
        n_targets = max(1, round(self.settings.target_ratio * self.training.n_regions))
        return visible, some_regions(hidden, n_targets, self.generator)

    def loss(self, model: MaskedRegionTransformer, batch: tuple[torch.Tensor, ...]) -> torch.Tensor:
        """Return the mean squared error on the hidden regions."""
        windows, visible, hidden = batch
        values = self.training.gather(windows).to(self.device)
        visible, hidden = visible.to(self.device), hidden.to(self.device)
        predicted = model(values, visible, hidden)
        # Squares are summed in float32 whatever the products' format.
        return (predicted.float() - take_regions(values, hidden)).square().mean()

    def validate(self, model: MaskedRegionTransformer) -> float | None:
        """Return the mean squared error on hidden regions of validation subjects."""
        if self.validation is None:
            return None
        total = self.validation.errors(ModelImputer(model))
        return float(total[0].sum() / total[2].sum())


def mask_groups(pattern: str, regions: pd.DataFrame) -> torch.Tensor | None:
    """Return the group of each region that a mask pattern hides together.

    Parameters
    ----------
    pattern : {"uniform", "network", "hemisphere"}
    regions : DataFrame
        The regions in order, with the columns of their atlas.

    Returns
    -------
    Tensor of int64, shape (region,), or None
        None for "uniform". Regions of no network are a group.

    Raises
    ------
    InputError
        If the atlas is unknown, so that regions have no networks or hemispheres.
    """
    if pattern == "uniform":
        return None
    wanted = NETWORK_COLUMNS if pattern == "network" else ("hemisphere",)
    column = next((name for name in wanted if name in regions), None)
    if column is None:
        msg = (
            f"mask_pattern: {pattern!r} needs the {' or '.join(wanted)} of every region, which "
            "these data lack; give their --atlas, or choose 'uniform'."
        )
        raise InputError(msg)
    return torch.as_tensor(pd.factorize(regions[column].fillna("none"))[0], dtype=torch.int64)


@dataclass(frozen=True, kw_only=True)
class Baselines:
    """Baselines fitted on training subjects, with the ridges that validation subjects chose.

    Parameters
    ----------
    imputers : list of Imputer
    left_out : str or None
        Why the space-time imputer is missing.
    """

    imputers: list[Imputer]
    left_out: str | None = None


def fit_baselines(
    training: WindowSource, validation: EvaluationSet | None, *, mask_ratio: float
) -> Baselines:
    """Fit the predictors that a model is judged beside.

    Parameters
    ----------
    training : WindowSource
    validation : EvaluationSet or None
        Chooses the ridges; without it they keep their defaults.
    mask_ratio : float
        Share of regions that will be hidden.
    """
    gaussians: list[SpaceTimeGaussianImputer] = [
        GaussianImputer().fit(training.standardized_runs())
    ]
    n_visible = n_visible_regions(training.n_regions, mask_ratio)
    left_out = None
    if n_visible * training.window <= MAX_SPACE_TIME_VALUES:
        imputer = SpaceTimeGaussianImputer(window=training.window)
        gaussians.append(imputer.fit(training.standardized_runs()))
    else:
        left_out = (
            f"space_time_gaussian left out: {n_visible} visible regions x {training.window} TRs "
            f"is over {MAX_SPACE_TIME_VALUES} values a window."
        )
    if validation is not None:
        for imputer in gaussians:
            errors = validation.ridge_errors(imputer, RIDGES)
            imputer.ridge = RIDGES[int(np.argmin(errors))]
    return Baselines(imputers=[Zero(), VisibleMean(), *gaussians], left_out=left_out)


def summarize_errors(
    total: np.ndarray, *, subjects: Sequence[str], regions: Sequence[str], predictor: str
) -> pd.DataFrame:
    """Turn sums of squared errors into a long table.

    Parameters
    ----------
    total : ndarray, shape (3, subject, region)
        From :meth:`EvaluationSet.errors`.
    subjects, regions : sequence of str
    predictor : str

    Returns
    -------
    DataFrame
        ``region, subject, predictor, mse, r2, n``. The mean of a standardized region is zero, so
        R2 is 1 minus the squared error over the squares of the true values. A region that no
        mask hid is missing.
    """
    squared, squares, count = (part.ravel() for part in total)
    with np.errstate(invalid="ignore", divide="ignore"):
        table = pd.DataFrame(
            {
                "region": np.tile(list(regions), len(subjects)),
                "subject": np.repeat(list(subjects), len(regions)),
                "predictor": predictor,
                "mse": squared / count,
                "r2": 1 - squared / squares,
                "n": count.astype(int),
            }
        )
    return table
