"""Predictors of hidden regions that use no network: the numbers a model has to beat.

All work on standardized windows, and on groups of windows that share one mask, so that a
covariance is factorized once a mask.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import numpy as np
from scipy.linalg import cho_factor, cho_solve

__all__ = ["GaussianImputer", "Imputer", "SpaceTimeGaussianImputer", "VisibleMean", "Zero"]

RIDGES = (0.01, 0.03, 0.1, 0.2, 0.4, 0.8, 1.6)


class Imputer(Protocol):
    """What every predictor of hidden regions can do."""

    name: str

    def predict(self, values: np.ndarray, visible: np.ndarray, hidden: np.ndarray) -> np.ndarray:
        """Predict the hidden regions.

        Parameters
        ----------
        values : ndarray, shape (window, region, time)
            Only the visible regions are read.
        visible, hidden : ndarray of int
            Indices of regions.

        Returns
        -------
        ndarray, shape (window, hidden region, time)
        """
        ...


class Zero:
    """Predict zero, the mean of every standardized region."""

    name = "zero"

    def predict(self, values: np.ndarray, visible: np.ndarray, hidden: np.ndarray) -> np.ndarray:
        """See :class:`Imputer`."""
        return np.zeros((len(values), len(hidden), values.shape[2]))


class VisibleMean:
    """Predict the mean of the visible regions at the same TR."""

    name = "visible_mean"

    def predict(self, values: np.ndarray, visible: np.ndarray, hidden: np.ndarray) -> np.ndarray:
        """See :class:`Imputer`."""
        mean = values[:, visible].mean(axis=1, keepdims=True)
        return np.repeat(mean, len(hidden), axis=1)


class SpaceTimeGaussianImputer:
    """Conditional mean of hidden regions given all visible TRs of the window.

    The best linear predictor under stationary lagged covariances: the covariance of region *i*
    at *t* and region *j* at *u* depends on *t - u* only and is estimated from the training runs
    (sums over each run divided by its length, which keeps the block-Toeplitz matrix positive
    semi-definite). A ridge on the diagonal regularizes it.

    Parameters
    ----------
    window : int
        Length of a window, in TRs.
    ridge : float
        Added to the diagonal (the variance of a region is 1).

    Notes
    -----
    With one visible vector *v* and hidden vector *h* the prediction is
    ``C_hv (C_vv + ridge I)^-1 v``.
    """

    name = "space_time_gaussian"

    def __init__(self, *, window: int, ridge: float = 0.4) -> None:
        self.window = window
        self.ridge = ridge

    def fit(self, runs: Iterable[np.ndarray]) -> "SpaceTimeGaussianImputer":
        """Estimate the lagged covariances.

        Parameters
        ----------
        runs : iterable of ndarray, shape (time, region)
            Standardized training runs; a run counts by its length.
        """
        total: Any = 0.0
        n_times = 0
        for run in runs:
            values = np.asarray(run, dtype=float)
            lagged = [values[lag:].T @ values[: len(run) - lag] for lag in range(self.window)]
            total = total + np.stack(lagged)  # (lag, region at t + lag, region at t)
            n_times += len(run)
        lags = total / n_times
        # Lag -k is the transpose of lag k; index `window - 1 + lag`.
        self.covariances_ = np.concatenate([lags[:0:-1].swapaxes(1, 2), lags])
        self._factors: dict[str, Any] = {}
        return self

    def predict(self, values: np.ndarray, visible: np.ndarray, hidden: np.ndarray) -> np.ndarray:
        """See :class:`Imputer`."""
        return self.predict_ridges(values, visible, hidden, [self.ridge])[0]

    def predict_ridges(
        self,
        values: np.ndarray,
        visible: np.ndarray,
        hidden: np.ndarray,
        ridges: Sequence[float],
    ) -> list[np.ndarray]:
        """Predict the hidden regions once for each ridge.

        Parameters
        ----------
        values, visible, hidden
            See :class:`Imputer`.
        ridges : sequence of float

        Returns
        -------
        list of ndarray, shape (window, hidden region, time)
        """
        n_windows, _, n_times = values.shape
        # A same-TR imputer is the case of windows one TR long.
        steps = self.window
        pieces = values[:, visible].reshape(n_windows, len(visible), n_times // steps, steps)
        seen = pieces.transpose(3, 1, 0, 2).reshape(steps * len(visible), -1).astype(float)
        predictions = []
        for ridge in ridges:
            factor, hidden_block = self._factor(visible, hidden, ridge)
            filled = hidden_block @ cho_solve(factor, seen)
            filled = filled.reshape(steps, len(hidden), n_windows, n_times // steps)
            predictions.append(
                filled.transpose(2, 1, 3, 0).reshape(n_windows, len(hidden), n_times)
            )
        return predictions

    def _factor(
        self, visible: np.ndarray, hidden: np.ndarray, ridge: float
    ) -> tuple[tuple[np.ndarray, bool], np.ndarray]:
        """Factorize the visible block; kept for the next windows with the same mask."""
        mask = visible.tobytes() + b"|" + hidden.tobytes()
        if self._factors.get("mask") != mask:
            self._factors = {
                "mask": mask,
                "visible": self._block(visible, visible),
                "hidden": self._block(hidden, visible),
                "by_ridge": {},
            }
        by_ridge = self._factors["by_ridge"]
        if ridge not in by_ridge:
            block = self._factors["visible"]
            by_ridge[ridge] = cho_factor(block + ridge * np.eye(len(block)))
        return by_ridge[ridge], self._factors["hidden"]

    def _block(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Covariance of (time, region) with (time, region), time slowest."""
        among = self.covariances_[:, rows[:, None], columns]  # (lag, row, column)
        times = np.arange(self.window)
        lag = self.window - 1 + times[:, None] - times  # (time, time)
        block = among[lag].transpose(0, 2, 1, 3)  # (time, row, time, column)
        return block.reshape(self.window * len(rows), self.window * len(columns))


class GaussianImputer(SpaceTimeGaussianImputer):
    """Conditional mean of hidden regions given the visible ones at the same TR.

    Parameters
    ----------
    ridge : float
        Added to the diagonal of the training covariance.
    """

    name = "gaussian"

    def __init__(self, *, ridge: float = 0.05) -> None:
        super().__init__(window=1, ridge=ridge)

    @classmethod
    def from_covariance(cls, covariance: np.ndarray, *, ridge: float = 0.05) -> "GaussianImputer":
        """Build the imputer of a covariance that is known.

        Parameters
        ----------
        covariance : ndarray, shape (region, region)
            Of standardized regions, such as the mean functional connectivity of a fit.
        ridge : float
            Added to its diagonal.
        """
        imputer = cls(ridge=ridge)
        imputer.covariances_ = np.asarray(covariance, dtype=float)[None]
        imputer._factors = {}
        return imputer
