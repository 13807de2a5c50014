import numpy as np
import pytest

from neuro_pe.baselines import GaussianImputer, SpaceTimeGaussianImputer, VisibleMean, Zero

VISIBLE, HIDDEN = np.array([0, 3]), np.array([1, 2, 4])


@pytest.fixture
def runs(rng):
    """Two runs of a stationary, spatially mixed AR(1) process in 5 regions."""
    mixing = rng.normal(size=(5, 5))
    made = []
    for length in (300, 200):
        series = np.zeros((length, 5))
        for time in range(1, length):
            series[time] = 0.8 * series[time - 1] + rng.normal(size=5)
        series = series @ mixing
        made.append((series - series.mean(axis=0)) / series.std(axis=0))
    return made


@pytest.fixture
def windows(rng):
    return rng.normal(size=(6, 5, 4))  # (window, region, time)


def test_zero_and_visible_mean(windows):
    assert not Zero().predict(windows, VISIBLE, HIDDEN).any()
    predicted = VisibleMean().predict(windows, VISIBLE, HIDDEN)
    expected = (windows[:, 0] + windows[:, 3]) / 2
    for column in range(3):
        np.testing.assert_allclose(predicted[:, column], expected)


def test_gaussian_is_ridge_regression_on_the_same_tr(runs, windows):
    together = np.concatenate(runs)
    imputer = GaussianImputer(ridge=0.3).fit(runs)
    # Ridge regression of hidden on visible regions, from its normal equations.
    seen, target = together[:, VISIBLE], together[:, HIDDEN]
    penalty = 0.3 * len(together) * np.eye(2)
    weights = np.linalg.solve(seen.T @ seen + penalty, seen.T @ target)
    expected = np.einsum("nvt,vh->nht", windows[:, VISIBLE], weights)
    np.testing.assert_allclose(imputer.predict(windows, VISIBLE, HIDDEN), expected, atol=1e-10)


def test_space_time_is_the_conditional_mean_of_the_lagged_covariance(runs, windows):
    imputer = SpaceTimeGaussianImputer(window=4, ridge=0.2).fit(runs)
    total = sum(len(run) for run in runs)

    def covariance(i, t, j, u):  # written out entry by entry
        lag = t - u
        if lag < 0:
            return covariance(j, u, i, t)
        return sum(run[lag:, i] @ run[: len(run) - lag, j] for run in runs) / total

    seen = [(i, t) for i in VISIBLE for t in range(4)]
    asked = [(i, t) for i in HIDDEN for t in range(4)]
    among = np.array([[covariance(*a, *b) for b in seen] for a in seen])
    across = np.array([[covariance(*a, *b) for b in seen] for a in asked])
    weights = across @ np.linalg.inv(among + 0.2 * np.eye(len(seen)))
    for window, predicted in zip(windows, imputer.predict(windows, VISIBLE, HIDDEN), strict=True):
        expected = weights @ np.array([window[i, t] for i, t in seen])
        np.testing.assert_allclose(predicted.ravel(), expected, atol=1e-9)


def test_a_window_of_one_tr_makes_both_the_same(runs, windows):
    one = windows[:, :, :1]
    same_tr = GaussianImputer(ridge=0.2).fit(runs).predict(one, VISIBLE, HIDDEN)
    space_time = SpaceTimeGaussianImputer(window=1, ridge=0.2).fit(runs)
    np.testing.assert_allclose(space_time.predict(one, VISIBLE, HIDDEN), same_tr)


def test_many_ridges_at_once_equal_one_at_a_time(runs, windows):
    imputer = SpaceTimeGaussianImputer(window=4).fit(runs)
    for ridge, predicted in zip(
        (0.1, 2.0), imputer.predict_ridges(windows, VISIBLE, HIDDEN, (0.1, 2.0)), strict=True
    ):
        imputer.ridge = ridge
        np.testing.assert_allclose(predicted, imputer.predict(windows, VISIBLE, HIDDEN))


def test_another_mask_is_factorized_anew(runs, windows):
    imputer = SpaceTimeGaussianImputer(window=4).fit(runs)
    fresh = SpaceTimeGaussianImputer(window=4).fit(runs)
    imputer.predict(windows, VISIBLE, HIDDEN)
    np.testing.assert_array_equal(
        imputer.predict(windows, HIDDEN, VISIBLE), fresh.predict(windows, HIDDEN, VISIBLE)
    )


def test_hidden_values_are_never_read(runs, windows):
    spoiled = windows.copy()
    spoiled[:, HIDDEN] = np.nan
    for imputer in (
        Zero(),
        VisibleMean(),
        GaussianImputer().fit(runs),
        SpaceTimeGaussianImputer(window=4).fit(runs),
    ):
        np.testing.assert_array_equal(
            imputer.predict(windows, VISIBLE, HIDDEN), imputer.predict(spoiled, VISIBLE, HIDDEN)
        )


def test_the_lagged_covariance_is_positive_semidefinite(runs):
    imputer = SpaceTimeGaussianImputer(window=4).fit(runs)
    everything = np.arange(5)
    eigenvalues = np.linalg.eigvalsh(imputer._block(everything, everything))
    assert eigenvalues.min() > -1e-10
