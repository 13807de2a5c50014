import numpy as np
import pytest
import torch

from neuro_pe.baselines import GaussianImputer, SpaceTimeGaussianImputer, VisibleMean, Zero
from neuro_pe.encodings import make_encoding
from neuro_pe.reconstruction import (
    EvaluationSet,
    MaskedRegionTask,
    ModelImputer,
    fit_baselines,
    summarize_errors,
)
from neuro_pe.settings import FitSettings
from neuro_pe.timeseries import Cohort, RegionTimeSeries
from neuro_pe.transformer import MaskedRegionTransformer
from neuro_pe.windows import WindowSource

N_REGIONS = 15


@pytest.fixture
def cohort(rng):
    """Four subjects whose regions share 3 slow components; subject 3 has two runs."""
    mixing = rng.normal(size=(3, N_REGIONS))
    runs = []
    for subject in ("1", "2", "3", "3"):
        parts = np.cumsum(rng.normal(size=(120, 3)), axis=0)
        parts = (parts - parts.mean(axis=0)) / parts.std(axis=0)
        values = parts @ mixing + 0.5 * rng.normal(size=(120, N_REGIONS))
        names = tuple(f"r{number}" for number in range(N_REGIONS))
        runs.append(RegionTimeSeries(values=values, regions=names, subject=subject))
    return Cohort.from_runs(runs)


@pytest.fixture
def source(cohort):
    return WindowSource(cohort, window=8)


def test_errors_are_sums_over_hidden_values(source):
    held_out = EvaluationSet(source, mask_ratio=0.6, n_masks=4)
    total = held_out.errors(VisibleMean())
    # The same, one window after the other.
    expected = np.zeros((3, 3, N_REGIONS))
    runs = list(source.standardized_runs())
    for number, (run, start) in enumerate(held_out.windows.tolist()):
        values = runs[run][start : start + 8]
        mask = number % 4
        seen, hidden = held_out.visible[mask].numpy(), held_out.hidden[mask].numpy()
        for region in hidden:
            error = values[:, seen].mean(axis=1) - values[:, region]
            subject = min(run, 2)  # runs 2 and 3 are of one subject
            expected[:, subject, region] += (
                (error**2).sum(),
                (values[:, region] ** 2).sum(),
                8,
            )
    np.testing.assert_allclose(total, expected, rtol=1e-5)


def test_every_predictor_meets_the_same_hidden_values(source):
    held_out = EvaluationSet(source, mask_ratio=0.6)
    runs = list(source.standardized_runs())
    totals = [
        held_out.errors(imputer) for imputer in (Zero(), VisibleMean(), GaussianImputer().fit(runs))
    ]
    for total in totals[1:]:
        np.testing.assert_array_equal(total[1:], totals[0][1:])
    # Predict-zero has an R2 of exactly 0.
    np.testing.assert_allclose(totals[0][0], totals[0][1])
    again = EvaluationSet(source, mask_ratio=0.6)
    assert torch.equal(again.hidden, held_out.hidden)


def test_groups_cut_smaller_change_no_error(source, monkeypatch):
    held_out = EvaluationSet(source, mask_ratio=0.6, n_masks=2)
    imputer = SpaceTimeGaussianImputer(window=8).fit(source.standardized_runs())
    whole = held_out.errors(imputer)
    monkeypatch.setattr("neuro_pe.reconstruction.WINDOWS_AT_ONCE", 7)
    np.testing.assert_allclose(held_out.errors(imputer), whole)


def test_validation_chooses_the_ridge(source, cohort):
    training = WindowSource(cohort.select_subjects(["1", "2"]), window=8)
    held_out = EvaluationSet(WindowSource(cohort.select_subjects(["3"]), window=8), mask_ratio=0.6)
    chosen = fit_baselines(training, held_out, mask_ratio=0.6).imputers
    assert [imputer.name for imputer in chosen] == [
        "zero",
        "visible_mean",
        "gaussian",
        "space_time_gaussian",
    ]
    for imputer in chosen[2:]:
        best = held_out.errors(imputer)[0].sum()
        for ridge in (0.01, 0.1, 0.4, 1.6):
            other = SpaceTimeGaussianImputer(window=imputer.window, ridge=ridge)
            other.fit(list(training.standardized_runs()))
            assert best <= held_out.errors(other)[0].sum() * (1 + 1e-9)


def test_a_space_time_covariance_too_large_is_left_out_with_a_line(source, monkeypatch):
    monkeypatch.setattr("neuro_pe.reconstruction.MAX_SPACE_TIME_VALUES", 47)
    baselines = fit_baselines(source, None, mask_ratio=0.6)
    assert [imputer.name for imputer in baselines.imputers][-1] == "gaussian"
    assert "6 visible regions x 8 TRs" in baselines.left_out


def test_the_task_and_the_evaluation_measure_the_same_error(source):
    network = MaskedRegionTransformer(
        window=8,
        width=8,
        layers=1,
        heads=2,
        encodings=[make_encoding("learn", n_regions=N_REGIONS, width=8)],
        generator=torch.Generator().manual_seed(0),
    )
    held_out = EvaluationSet(source, mask_ratio=0.6, n_masks=4)
    task = MaskedRegionTask(source, held_out, FitSettings(), torch.device("cpu"))
    mask = held_out.mask_of_window
    batch = (held_out.windows, held_out.visible[mask], held_out.hidden[mask])
    assert task.validate(network) == pytest.approx(task.loss(network, batch).item(), rel=1e-5)
    predicted = ModelImputer(network).predict(
        source.gather(held_out.windows[:1]).numpy(),
        held_out.visible[0].numpy(),
        held_out.hidden[0].numpy(),
    )
    assert predicted.shape == (1, 9, 8)


def test_batches_take_every_window_once(source):
    task = MaskedRegionTask(source, None, FitSettings(batch_size=7), torch.device("cpu"))
    batches = list(task.batches(torch.Generator().manual_seed(0)))
    windows = torch.cat([batch[0] for batch in batches])
    assert len(windows) == len(windows.unique(dim=0))
    assert {len(batch[0]) for batch in batches[:-1]} == {7}
    assert task.validate(None) is None


def test_summary_table_has_a_row_a_region_and_subject(source):
    total = np.zeros((3, 2, 3))
    total[0] = [[1, 2, 3], [4, 5, 6]]
    total[1] = 8
    total[2] = [[2, 2, 0], [2, 2, 2]]
    table = summarize_errors(
        total, subjects=["a", "b"], regions=["x", "y", "z"], predictor="zero"
    ).set_index(["subject", "region"])
    assert table.loc[("b", "x"), "mse"] == 2
    assert table.loc[("b", "x"), "r2"] == 0.5
    assert table.loc[("a", "z"), "n"] == 0
    assert not np.isfinite(table.loc[("a", "z"), "mse"])
