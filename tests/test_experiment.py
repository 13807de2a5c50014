"""Fits of several seeds on one split: who is in which split, what is written, what is refused."""

import json
import warnings
from dataclasses import asdict, replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from neuro_pe import Cohort, FitSettings, InputError, train_models
from neuro_pe._baseline_cache import cached_errors
from neuro_pe.building import INITIAL, relative_weight_change
from neuro_pe.comparison import compare_predictors
from neuro_pe.experiment import split_cohort
from neuro_pe.fitting import METRICS, fit_network, resolve_settings
from neuro_pe.reconstruction import fit_baselines
from neuro_pe.windows import WindowSource, long_enough

BASELINES = ["zero", "visible_mean", "gaussian", "space_time_gaussian"]


def changed(cohort, subjects, change):
    """Return the cohort with the values of some subjects changed."""
    runs = [
        replace(run, values=change(run.values)) if run.subject in subjects else run
        for run in cohort
    ]
    return replace(cohort, runs=tuple(runs))


class TestShortRuns:
    def test_a_short_subject_is_in_no_split(self, make_cohort, train_small):
        cohort = make_cohort()
        short = {split_cohort(cohort, test_subjects=1).test[0]}
        cohort = changed(cohort, short, lambda values: values[:9])
        with pytest.warns(UserWarning, match="9 TRs is shorter than a window of 10"):
            (folder,) = train_small(cohort=cohort)
        assert not short & set(folder.subjects["subject"])
        assert len(folder.subjects) == 5
        assert folder.data["n_subjects"] == 5

    def test_all_runs_too_short(self, make_cohort):
        with pytest.raises(InputError, match=r"window of 81 TRs \(the longest has 80\).*--window"):
            long_enough(make_cohort(), window=81)


@pytest.fixture(scope="module")
def folders(tmp_path_factory, make_cohort, small):
    """Two seeds, trained once."""
    output = tmp_path_factory.mktemp("written") / "out"
    return train_models(make_cohort(), output_dir=output, settings=small, n_seeds=2)


class TestWhatIsWritten:
    def test_one_folder_a_seed_in_a_derivative(self, folders):
        output = folders[0].path.parent
        assert sorted(path.name for path in output.iterdir()) == [
            "dataset_description.json",
            "encoding-learn_sigma-0.1_mask-0.5_seed-0",
            "encoding-learn_sigma-0.1_mask-0.5_seed-1",
        ]
        description = json.loads((output / "dataset_description.json").read_text())
        assert description["DatasetType"] == "derivative"
        assert description["GeneratedBy"][0]["Name"] == "neuro_pe"
        assert description["SourceDatasets"] == [{"URL": "arrays in memory"}]
        assert sorted(path.name for path in folders[0].path.iterdir()) == [
            "functional_connectivity.tsv",
            "metrics.tsv",
            "model.safetensors",
            "positional_encoding.tsv",
            "positional_encoding_change.tsv",
            "region_errors.tsv",
            "regions.tsv",
            "settings.json",
            "subjects.tsv",
        ]

    def test_settings_hold_every_option_as_resolved(self, folders):
        content = json.loads((folders[1].path / "settings.json").read_text())
        assert set(content["settings"]) == set(asdict(FitSettings()))
        assert content["settings"]["seed"] == 1
        assert content["settings"]["device"] in ("cpu", "cuda")
        assert content["data"]["tr"] == 0.72
        assert content["data"]["n_subjects"] == 6

    def test_epochs_and_device_are_resolved(self, make_cohort, small):
        settings = replace(small, epochs=None, window=20)
        resolved = resolve_settings(settings, WindowSource(make_cohort(), window=20))
        # 6 subjects x 4 windows in batches of 8: 3 steps an epoch.
        assert resolved.epochs == 833
        assert resolved.device != "auto"

    def test_metrics_have_every_predictor_on_the_same_values(self, folders):
        table = pd.read_csv(folders[0].path / "metrics.tsv", sep="\t", na_values="n/a")
        assert list(table.columns) == METRICS
        test = table[table["split"] == "test"]
        assert sorted(test["predictor"]) == sorted(["model", *BASELINES])
        # One test subject, 8 windows of 10 TRs, 10 of 20 regions hidden.
        assert set(test["n"]) == {8 * 10 * 10}
        assert test["mse"].notna().all()
        validation = table[table["split"] == "validation"]
        assert set(validation["predictor"]) == {"model", *BASELINES}
        assert validation["n"].nunique() == 1
        # The same squares of the true values stand below every R2.
        squares = test["mse"] / (1 - test["r2"])
        assert np.allclose(squares, squares.iloc[0], rtol=1e-5)
        history = table[(table["predictor"] == "model") & (table["split"] != "test")]
        assert sorted(history["epoch"]) == [1, 1, 2, 2, 3, 3]
        best = validation[validation["predictor"] == "model"].set_index("epoch")["mse"].idxmin()
        assert test.set_index("predictor").loc["model", "epoch"] == best

    def test_region_errors_agree_with_metrics(self, folders):
        errors = folders[0].region_errors
        assert set(errors.columns) == {"region", "subject", "predictor", "mse", "r2", "n"}
        assert set(errors["region"]) == set(folders[0].regions["name"])
        weighted = errors.assign(squared=errors["mse"] * errors["n"])
        sums = weighted.groupby("predictor")[["squared", "n"]].sum()
        test = folders[0].metrics.query("split == 'test'").set_index("predictor")
        assert np.allclose(sums["squared"] / sums["n"], test.loc[sums.index, "mse"], rtol=1e-5)
        assert (sums["n"] == test.loc[sums.index, "n"]).all()

    def test_seeds_differ_in_the_model_alone(self, folders):
        first, second = (folder.metrics.query("split == 'test'") for folder in folders)
        first, second = (each.set_index("predictor")["mse"] for each in (first, second))
        assert first["model"] != second["model"]
        assert (first[BASELINES] == second[BASELINES]).all()
        assert folders[0].subjects.equals(folders[1].subjects)
        assert not np.allclose(folders[0].positional_encoding, folders[1].positional_encoding)

    def test_encoding_is_its_start_plus_its_change(self, folders):
        folder = folders[0]
        initial = folder.weights()[INITIAL].numpy()
        assert abs(initial.std() - 0.1) < 0.02
        change = folder.positional_encoding - initial
        assert np.allclose(change, folder.positional_encoding_change, atol=1e-6)
        assert np.abs(folder.positional_encoding_change.to_numpy()).max() > 1e-3

    def test_weights_moved_by_what_the_table_says(self, folders):
        table = relative_weight_change(folders[0]).set_index("part")["change"]
        assert list(table.index) == ["hidden_token", "embed", "encodings", *table.index[3:]]
        initial = folders[0].weights()[INITIAL].numpy()
        moved = np.linalg.norm(folders[0].positional_encoding_change) / np.linalg.norm(initial)
        assert table["encodings"] == pytest.approx(moved, rel=1e-4)
        assert (table > 0).all()

    def test_connectivity_is_of_the_training_subjects(self, folders, make_cohort):
        training = folders[0].subjects.query("split == 'train'")["subject"]
        runs = [run.values for run in make_cohort() if run.subject in set(training)]
        expected = np.mean([np.corrcoef(values, rowvar=False) for values in runs], axis=0)
        assert np.allclose(folders[0].functional_connectivity, expected, atol=1e-6)


def test_the_same_seed_gives_the_same_numbers(train_small, tmp_path):
    first, second = (train_small(output_dir=tmp_path / name)[0] for name in ("a", "b"))
    timeless = [folder.metrics.drop(columns="seconds") for folder in (first, second)]
    pd.testing.assert_frame_equal(*timeless)
    pd.testing.assert_frame_equal(first.positional_encoding, second.positional_encoding)


def test_test_subjects_choose_nothing(make_cohort, train_small, tmp_path, rng):
    cohort = make_cohort()
    test = split_cohort(cohort).test
    noisy = changed(cohort, test, lambda values: rng.normal(size=values.shape))
    first = train_small(cohort=cohort, output_dir=tmp_path / "a")[0]
    second = train_small(cohort=noisy, output_dir=tmp_path / "b")[0]
    timeless = [
        each.metrics.query("split != 'test'").drop(columns="seconds") for each in (first, second)
    ]
    pd.testing.assert_frame_equal(*timeless)
    pd.testing.assert_frame_equal(first.positional_encoding, second.positional_encoding)
    at_test = [each.metrics.query("split == 'test' and r2 != 0")["mse"] for each in (first, second)]
    assert not np.isclose(*at_test).any()


def test_baselines_are_fitted_on_training_subjects_only(make_cohort, small, rng):
    training = WindowSource(make_cohort().select_subjects(["01", "02"]), window=10)
    own = np.concatenate(list(training.standardized_runs()))
    gaussian = fit_baselines(training, None, mask_ratio=0.5).imputers[2]
    values = rng.normal(size=(1, 20, 10)).astype(np.float32)
    visible, hidden = np.arange(10), np.arange(10, 20)
    covariance = own.T @ own / len(own)
    ridge = covariance[:10, :10] + gaussian.ridge * np.eye(10)
    expected = covariance[10:, :10] @ np.linalg.solve(ridge, values[0, :10])
    assert np.allclose(gaussian.predict(values, visible, hidden)[0], expected, atol=1e-5)


def test_without_test_or_validation_subjects(train_small, tmp_path):
    (folder,) = train_small(test_subjects=0, validation_subjects=0)
    assert set(folder.subjects["split"]) == {"train"}
    assert set(folder.metrics["split"]) == {"train"}
    assert folder.region_errors.empty
    assert (folder.metrics["epoch"] == [1, 2, 3]).all()


def test_one_subject_alone_can_be_trained_on(make_cohort, train_small, tmp_path):
    with pytest.raises(InputError, match=r"found 1 subject;.*\(0 is allowed\)"):
        train_small(cohort=make_cohort(n_subjects=1))
    assert not (tmp_path / "out").exists()
    (folder,) = train_small(
        cohort=make_cohort(n_subjects=1), test_subjects=0, validation_subjects=0
    )
    assert folder.subjects["subject"].tolist() == ["01"]


class TestOddCohorts:
    def test_two_regions(self, train_small, make_cohort):
        (folder,) = train_small(cohort=make_cohort(n_regions=2))
        assert folder.region_errors["mse"].notna().any()

    def test_regions_without_signal_are_listed(self, train_small, make_cohort):
        runs = [run for run in changed(make_cohort(), ["02"], np.copy)]
        runs[1].values[:, 4] = np.nan
        with pytest.warns(UserWarning, match="1 of 20 regions left out"):
            cohort = Cohort.from_runs(runs)
        (folder,) = train_small(cohort=cohort)
        assert folder.dropped["name"].tolist() == ["R04"]
        assert "not finite" in folder.dropped["reason"][0]
        assert folder.regions["name"].tolist() == [run for run in runs[0].regions if run != "R04"]

    def test_runs_of_unequal_length_and_several_a_subject(self, train_small, make_cohort):
        runs = [
            replace(run, values=run.values[: 40 + 7 * number], run=str(part))
            for number, run in enumerate(make_cohort())
            for part in range(2)
        ]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            (folder,) = train_small(cohort=Cohort.from_runs(runs))
        assert folder.data["n_runs"] == 12
        assert folder.data["n_subjects"] == 6

    def test_sources_that_are_no_paths(self, train_small, make_cohort, tmp_path):
        sources = ["simulated", str(tmp_path / "a.tsv"), "simulated"]
        runs = [
            replace(run, source=source)
            for run, source in zip(make_cohort(n_subjects=3), sources, strict=True)
        ]
        (folder,) = train_small(cohort=Cohort.from_runs(runs))
        assert folder.data["sources"]


class TestComparePredictors:
    def test_differences_are_paired_by_subject(self):
        table = pd.DataFrame(
            {
                "region": ["a", "b"] * 6,
                "subject": np.tile(np.repeat(["1", "2", "3"], 2), 2),
                "predictor": np.repeat(["model", "zero"], 6),
                "mse": [0.4, 0.6, 0.5, 0.7, 0.6, 1.0, 1.0, 1.0, 1.0, 1.2, 1.3, 1.3],
                "r2": 0.0,
                "n": 10,
            }
        )
        result = compare_predictors(table).set_index("predictor")
        assert result.loc["model", "mse"] == pytest.approx((0.5 + 0.6 + 0.8) / 3)
        # Differences -0.5, -0.5, -0.5: no spread, an interval of no width.
        assert result.loc["zero", ["difference", "low", "high"]].tolist() == pytest.approx(
            [-0.5] * 3
        )
        assert pd.isna(result.loc["model", "difference"])
        assert result.loc["zero", "n_subjects"] == 3

    def test_interval_is_that_of_a_paired_t_test(self, rng):
        errors = rng.uniform(0.5, 1, size=(2, 8))
        table = pd.DataFrame(
            {
                "region": "a",
                "subject": np.tile([f"{number:02d}" for number in range(8)], 2),
                "predictor": np.repeat(["model", "zero"], 8),
                "mse": errors.ravel(),
                "n": 5,
            }
        )
        result = compare_predictors(table).set_index("predictor").loc["zero"]
        interval = stats.ttest_rel(errors[0], errors[1]).confidence_interval(0.95)
        assert (result["low"], result["high"]) == pytest.approx((interval.low, interval.high))

    def test_one_subject_has_no_interval(self, train_small, make_cohort):
        result = compare_predictors(train_small()[0].region_errors)
        assert result[["low", "high"]].isna().all(axis=None)
        assert result["mse"].is_monotonic_increasing

    def test_seeds_are_averaged_before_subjects_are_compared(self):
        seeds = [
            pd.DataFrame(
                {
                    "region": "a",
                    "subject": ["1", "2"] * 2,
                    "predictor": ["model"] * 2 + ["zero"] * 2,
                    "mse": [model, model, 1.0, 1.0],
                    "n": 10,
                }
            )
            for model in (0.4, 0.8)
        ]
        result = compare_predictors(pd.concat(seeds)).set_index("predictor")
        assert result.loc["model", "mse"] == pytest.approx(0.6)
        assert result.loc["zero", "n_subjects"] == 2


def test_a_diverged_training_says_what_to_lower(make_cohort, small):
    source = WindowSource(make_cohort(), window=10)
    with pytest.raises(InputError, match=r"training diverged in epoch \d; lower --lr"):
        fit_network(source, None, replace(small, lr=1e30, muon_lr=1e30))


def test_attention_is_left_on_request(train_small, small):
    (model,) = train_small(save_attention=True)
    with np.load(model.path / "attention.npz", allow_pickle=False) as file:
        attention, regions = file["attention"], file["regions"]
    assert list(regions) == list(model.regions["name"])
    assert attention.shape == (small.layers, small.heads, len(regions), len(regions))
    np.testing.assert_allclose(attention.sum(axis=-1), 1, rtol=1e-4)


def test_errors_of_baselines_are_kept_by_what_they_depend_on(tmp_path):
    errors = {("test", "zero"): (np.ones((3, 2, 4)), 1.5)}
    other = {("test", "zero"): (np.zeros((3, 2, 4)), 2.5)}
    for key, each in (("one", errors), ("two", other)):
        cached_errors(tmp_path, key, lambda each=each: each)
    read = cached_errors(tmp_path, "one", dict)
    assert read["test", "zero"][1] == 1.5
    assert (read["test", "zero"][0] == 1).all()
    # A file under another name, or damaged, is computed anew.
    (tmp_path / "two.npz").replace(tmp_path / "one.npz")
    assert cached_errors(tmp_path, "one", lambda: errors) is errors
    content = bytearray((tmp_path / "one.npz").read_bytes())
    for place in range(0, len(content), 40):
        damaged = content.copy()
        damaged[place : place + 20] = bytes(20)
        (tmp_path / "one.npz").write_bytes(damaged)
        read = cached_errors(tmp_path, "one", lambda: errors)
        assert (read["test", "zero"][0] == 1).all()
