"""The best that any predictor of hidden regions could do on a simulated network."""

import numpy as np

from neuro_pe.errors import InputError
from neuro_pe.synthetic.nmar import ModularNetwork, simulate

__all__ = ["NoiseCeiling"]

STATIONARY_STEPS = 100_000
WARM_UP, SAMPLES, LEAPS = 100, 300, 8
WANTED_ACCEPTANCE = 0.8


class NoiseCeiling:
    """Predict hidden regions by their posterior mean under the equations that made the data.

    Nobody can have a lower expected squared error. The posterior of all hidden values of a window,
    given the visible ones, is sampled by Hamiltonian Monte Carlo; the first TR has the stationary
    distribution as its prior, taken as normal with the covariance of a long simulation. The mean
    of a few hundred samples is off by chance, which adds about one part in the effective number
    of samples to the posterior variance: the ceiling is shown too high by that, under 1 % (2 % with
    noise 100, where regions say hardly anything of each other).

    Parameters
    ----------
    network : ModularNetwork
    noise : float
        Standard deviation of each region's noise.
    seed : int
        Of the sampler.

    References
    ----------
    Neal (2011), "MCMC using Hamiltonian dynamics", Handbook of Markov Chain Monte Carlo.
    """

    name = "noise_ceiling"

    def __init__(self, network: ModularNetwork, *, noise: float, seed: int = 0) -> None:
        self.weights = network.weights
        self.noise = noise
        values = simulate(network, n_times=STATIONARY_STEPS, noise=noise, seed=2**31).values
        values = values.astype(np.float64)
        self.scale = values.std(axis=0)
        self.precision = np.linalg.inv(values.T @ values / len(values))
        self.rng = np.random.default_rng(seed)
        self.acceptance: list[float] = []

    def predict(self, values: np.ndarray, visible: np.ndarray, hidden: np.ndarray) -> np.ndarray:
        """Predict the hidden regions of standardized windows.

        Parameters
        ----------
        values : ndarray, shape (window, region, time)
            Only the visible regions are read.
        visible, hidden : ndarray of int
            Indices of regions, all of them together.

        Returns
        -------
        ndarray, shape (window, hidden region, time)

        Raises
        ------
        InputError
            If a region is neither visible nor hidden, or a visible value is not finite.
        """
        if sorted([*visible, *hidden]) != list(range(len(self.weights))):
            msg = f"regions: found {len(visible)} visible and {len(hidden)} hidden ones; expected "
            msg += f"each of the {len(self.weights)} once."
            raise InputError(msg)
        if not np.isfinite(values[:, visible]).all():
            msg = "values: found some that are not finite in visible regions; expected numbers."
            raise InputError(msg)
        state = np.zeros((len(values), values.shape[2], values.shape[1]))
        state[:, :, visible] = values[:, visible].transpose(0, 2, 1) * self.scale[visible]
        step = np.full(len(values), 0.25 * self.noise)
        total = np.zeros((len(values), values.shape[2], len(hidden)))
        accepted = []
        for number in range(WARM_UP + SAMPLES):
            state, rate = self._move(state, hidden, step)
            if number < WARM_UP:
                step *= np.exp((rate - WANTED_ACCEPTANCE) / (1 + number) ** 0.5)
                continue
            total += state[:, :, hidden]
            accepted.append(rate.mean())
        self.acceptance.append(float(np.mean(accepted)))
        return total.transpose(0, 2, 1) / (SAMPLES * self.scale[hidden][None, :, None])

    def _move(
        self, state: np.ndarray, hidden: np.ndarray, step: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Follow the dynamics for some leaps; return the new state and how likely it was taken."""
        push = self.rng.standard_normal((*state.shape[:2], len(hidden)))
        energy, slope = self._energy(state, hidden)
        before = energy + 0.5 * (push**2).sum(axis=(1, 2))
        # Lengths that vary keep the path from coming back to where it was.
        size = (step * self.rng.uniform(0.8, 1.2, len(step)))[:, None, None]
        proposed = state.copy()
        push = push - 0.5 * size * slope
        for leap in range(LEAPS):
            proposed[:, :, hidden] += size * push
            energy, slope = self._energy(proposed, hidden)
            push = push - (0.5 if leap == LEAPS - 1 else 1.0) * size * slope
        after = energy + 0.5 * (push**2).sum(axis=(1, 2))
        rate = np.exp(np.minimum(0.0, before - after))
        is_taken = self.rng.random(len(rate)) < rate
        return np.where(is_taken[:, None, None], proposed, state), rate

    def _energy(self, state: np.ndarray, hidden: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Negative log posterior of each window, and its slope along the hidden values.

        `state` has the shape (window, time, region), in the units of the simulation.
        """
        driven = np.tanh(state[:, :-1])
        surprise = (state[:, 1:] - driven @ self.weights.T) / self.noise**2
        pulled = state[:, 0] @ self.precision
        energy = 0.5 * (
            self.noise**2 * (surprise**2).sum(axis=(1, 2)) + (pulled * state[:, 0]).sum(axis=1)
        )
        slope = np.zeros_like(state)
        slope[:, 0] = pulled
        slope[:, 1:] += surprise
        slope[:, :-1] -= (1 - driven**2) * (surprise @ self.weights)
        return energy, slope[:, :, hidden]
