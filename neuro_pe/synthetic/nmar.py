"""A network with modules and nonlinear dynamics, whose truth is known.

``x(t + 1) = W tanh(x(t)) + noise``: a nonlinear multivariate autoregressive process. Each region
has noise of its own; W couples regions, more of them within a module than between modules.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pandas as pd

from neuro_pe.errors import InputError
from neuro_pe.synthetic._checks import check_noise, check_number, check_whole
from neuro_pe.timeseries import Cohort, RegionTimeSeries

__all__ = [
    "BURN_IN",
    "MOST_SUBJECTS",
    "MOST_TIMES",
    "ModularNetwork",
    "make_network",
    "simulate",
    "simulate_cohort",
]

BURN_IN = 200  # steps that are thrown away; at a spectral radius of 0.9 a start fades in 50
MOST_REGIONS, MOST_TIMES, MOST_SUBJECTS = 5_000, 10_000_000, 10_000
WEIGHT_SD = 0.2  # of the weights, whose mean is 1 before they are scaled


@dataclass(frozen=True, kw_only=True, eq=False)
class ModularNetwork:
    """Who drives whom, and which module each region is of.

    Parameters
    ----------
    weights : ndarray, shape (region, region)
        Row *i*, column *j*: how much region *j* drives region *i*. No region drives itself.
    modules : Series of str, region name -> module
        Named ``module``; what :func:`neuro_pe.compare_networks` takes as a partition.
    """

    weights: np.ndarray
    modules: pd.Series

    @property
    def spectral_radius(self) -> float:
        """Largest absolute eigenvalue of the weights; under 1 a start fades away."""
        return float(np.abs(np.linalg.eigvals(self.weights)).max())


def make_network(
    *,
    n_regions: int = 40,
    n_modules: int = 4,
    within: float = 0.3,
    between: float = 0.015,
    spectral_radius: float = 0.9,
    seed: int = 0,
) -> ModularNetwork:
    """Draw a directed network with modules of equal size.

    Parameters
    ----------
    n_regions, n_modules : int
    within, between : float
        Share of the pairs of regions of one module, and of two modules, that are connected.
        Weights are normal, mean 1 and SD 0.2, then scaled together.
    spectral_radius : float
        Of the weights, under 1.
    seed : int

    Raises
    ------
    InputError
        If an option is out of range, or the network has no cycle, so that it cannot be scaled.

    Examples
    --------
    >>> from neuro_pe.synthetic import make_network
    >>> network = make_network(n_regions=8, n_modules=2, within=0.9, seed=1)
    >>> network.weights.shape, round(network.spectral_radius, 6)
    ((8, 8), 0.9)
    >>> network.modules.to_dict()["region_5"]
    'module_2'
    """
    check_whole("n_regions", n_regions, 4, MOST_REGIONS)
    check_whole("n_modules", n_modules, 2, n_regions // 2)
    check_whole("seed", seed, 0)
    if n_regions % n_modules:
        msg = f"n_modules: found {n_modules}; expected a divisor of the {n_regions} regions."
        raise InputError(msg)
    for name, value in (("within", within), ("between", between)):
        check_number(name, value, lambda share: 0 <= share <= 1, "a share from 0 to 1")
    inside = "a number between 0 and 1"
    check_number("spectral_radius", spectral_radius, lambda radius: 0 < radius < 1, inside)
    rng = np.random.default_rng([seed, 0])
    labels = np.repeat(np.arange(n_modules), n_regions // n_modules)
    share = np.where(labels[:, None] == labels, within, between)
    weights = rng.normal(1.0, WEIGHT_SD, share.shape) * (rng.random(share.shape) < share)
    np.fill_diagonal(weights, 0.0)
    radius = np.abs(np.linalg.eigvals(weights)).max()
    if radius < 1e-6:
        msg = (
            f"within: at {within}, and {between} between modules, the network of seed {seed} has "
            "no cycle and its activity dies out; connect more regions."
        )
        raise InputError(msg)
    digits = len(str(n_regions))
    names = [f"region_{number:0{digits}d}" for number in range(1, n_regions + 1)]
    return ModularNetwork(
        weights=weights * (spectral_radius / radius),
        modules=pd.Series(
            [f"module_{label + 1}" for label in labels],
            index=pd.Index(names, name="name"),
            name="module",
        ),
    )


def simulate(
    network: ModularNetwork,
    *,
    n_times: int = 2000,
    noise: float = 1.0,
    seed: int = 0,
    subject: str = "01",
) -> RegionTimeSeries:
    """Simulate one run, after a burn-in.

    Parameters
    ----------
    network : ModularNetwork
    n_times : int
        Steps.
    noise : float
        Standard deviation of each region's own noise. Large noise saturates the coupling.
    seed : int
    subject : str
        Label of the run.

    Returns
    -------
    RegionTimeSeries
        Values of shape (time, region), in units of the noise of a region with `noise` 1.

    Raises
    ------
    InputError
        If an option is out of range.

    Examples
    --------
    >>> from neuro_pe.synthetic import make_network, simulate
    >>> simulate(make_network(), n_times=500).values.shape
    (500, 40)
    """
    check_whole("n_times", n_times, 1, MOST_TIMES)
    check_whole("seed", seed, 0)
    check_noise(noise)
    rng = np.random.default_rng([seed, 1])
    values = noise * rng.standard_normal((BURN_IN + n_times, len(network.weights)))
    for before, now in pairwise(values):
        now += network.weights @ np.tanh(before)
    return RegionTimeSeries(
        values=values[BURN_IN:].astype(np.float32),
        regions=tuple(network.modules.index),
        subject=subject,
        source=f"nmar simulation, subject {subject}",
    )


def simulate_cohort(
    network: ModularNetwork,
    *,
    n_subjects: int = 10,
    n_times: int = 2000,
    noise: float = 1.0,
    seed: int = 0,
) -> Cohort:
    """Simulate a run of several subjects, who share the network and have noise of their own.

    Parameters
    ----------
    network : ModularNetwork
    n_subjects : int
    n_times, noise, seed
        See :func:`simulate`.

    Returns
    -------
    Cohort
        What :func:`neuro_pe.train_models` and :class:`neuro_pe.MaskedRegionModel` take.

    Raises
    ------
    InputError
        If an option is out of range.

    Examples
    --------
    >>> from neuro_pe.synthetic import make_network, simulate_cohort
    >>> simulate_cohort(make_network(), n_subjects=3, n_times=100)
    Cohort(3 subjects, 3 runs, 40 regions, atlas=None, tr=None)
    """
    check_whole("n_subjects", n_subjects, 1, MOST_SUBJECTS)
    check_whole("seed", seed, 0)
    runs = [
        simulate(
            network,
            n_times=n_times,
            noise=noise,
            seed=seed * 1_000_003 + number,
            subject=f"{number + 1:0{max(2, len(str(n_subjects)))}d}",
        )
        for number in range(n_subjects)
    ]
    return Cohort.from_runs(runs)
