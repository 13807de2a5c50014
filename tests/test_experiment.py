"""Fits of several seeds on one split: who is in which split, what is written, what is refused."""

import json
import warnings
from dataclasses import asdict, replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from neuro_pe import Cohort, FitSettings, InputError, train_models
from neuro_pe.comparison import compare_predictors
from neuro_pe.experiment import split_cohort
from neuro_pe.fitting import INITIAL, METRICS, fit_network, resolve_settings
from neuro_pe.reconstruction import fit_baselines
from neuro_pe.windows import Split, WindowSource, long_enough, split_subjects

BASELINES = ["zero", "visible_mean", "gaussian", "space_time_gaussian"]


def changed(cohort, subjects, change):
    """Return the cohort with the values of some subjects changed."""
    runs = [
        replace(run, values=change(run.values)) if run.subject in subjects else run
        for run in cohort
    ]
    return replace(cohort, runs=tuple(runs))


def contents(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture
def train(make_cohort, small, tmp_path):
    """Train on the small cohort with other options than the fixtures'."""

    def run(*, cohort=None, output_dir=tmp_path / "out", settings=small, **options):
        cohort = make_cohort() if cohort is None else cohort
        return train_models(cohort, output_dir=output_dir, settings=settings, **options)

    return run


class TestSplit:
    def test_shares_and_numbers_of_subjects(self):
        labels = [f"{number:02d}" for number in range(20)]
        split = split_subjects(labels, test=0.2, validation=3)
        assert [len(part) for part in (split.train, split.validation, split.test)] == [13, 3, 4]
        assert sorted([*split.train, *split.validation, *split.test]) == labels
        assert split == split_subjects(labels, test=0.2, validation=3)
        assert split != split_subjects(labels, test=0.2, validation=3, seed=1)

    def test_labels_by_name_are_kept_from_a_draw(self):
        labels = [f"{number:02d}" for number in range(6)]
        for seed in range(20):
            split = split_subjects(labels, test=["sub-03", "05"], validation=2, seed=seed)
            assert split.test == ("03", "05")
            assert not {"03", "05"} & {*split.validation, *split.train}

    def test_families_stay_together(self):
        labels = [f"{number:02d}" for number in range(12)]
        groups = [f"family-{number // 3}" for number in range(12)]
        family = dict(zip(labels, groups, strict=True))
        for seed in range(10):
            split = split_subjects(labels, test=0.2, validation=2, groups=groups, seed=seed)
            parts = [
                {family[label] for label in part}
                for part in (split.train, split.validation, split.test)
            ]
            assert sum(map(len, parts)) == 4
            assert all(parts)

    def test_a_family_named_in_half_is_refused(self):
        with pytest.raises(InputError, match="group 'a' is in the train and the test split"):
            split_subjects(["1", "2", "3"], test=["2"], validation=0, groups=["a", "a", "b"])

    def test_a_subject_in_two_splits_is_refused(self):
        with pytest.raises(InputError, match="subject 02 is in two splits"):
            split_subjects(["01", "02", "03"], test=["02"], validation=["02"])
        with pytest.raises(InputError, match="subject 1 is in two splits"):
            Split(train=("1", "2"), test=("1",))

    @pytest.mark.parametrize(
        ("request_", "words"),
        [
            (["09"], "no data of subject '09'; found 01, 02"),
            (1.5, "found 1.5; expected a share below 1"),
            (-1, "found -1"),
            (float("nan"), "found nan"),
            (float("inf"), "found inf"),
        ],
    )
    def test_impossible_requests_name_the_option(self, request_, words):
        with pytest.raises(InputError, match="--test-subjects: .*" + words):
            split_subjects(["01", "02", "03"], test=request_, validation=0)

    @pytest.mark.parametrize("labels", [["01"], ["01", "02"]])
    def test_too_few_subjects_to_train_on(self, labels):
        with pytest.raises(InputError, match=f"found {len(labels)} subjects.*none is left"):
            split_subjects(labels, test=0.2, validation=0.15)

    def test_group_column_is_read_from_participants(self, make_cohort):
        cohort = make_cohort(family=["a", "a", "b", "b", "c", "c"])
        split = split_cohort(cohort, group_column="family", test_subjects=1, validation_subjects=1)
        assert {len(split.train), len(split.validation), len(split.test)} == {2}

    def test_group_column_that_is_missing(self, make_cohort):
        with pytest.raises(InputError, match=r"--group-column: no column 'site'.*found no table"):
            split_cohort(make_cohort(), group_column="site")
        with pytest.raises(InputError, match=r"no column 'site'.*found family"):
            split_cohort(make_cohort(family=list("aabbcc")), group_column="site")

    @pytest.mark.parametrize("gap", [None, np.nan, " "])
    def test_group_of_a_subject_that_is_missing(self, make_cohort, gap):
        cohort = make_cohort(family=["a", "a", gap, "b", "c", "c"])
        with pytest.raises(InputError, match="no 'family' of subject 03"):
            split_cohort(cohort, group_column="family")

    def test_subject_without_a_row_in_participants(self, make_cohort):
        cohort = make_cohort(family=list("aabbcc"))
        cohort = replace(cohort, participants=cohort.participants.drop(index="05"))
        with pytest.raises(InputError, match="no 'family' of subject 05"):
            split_cohort(cohort, group_column="family")


class TestShortRuns:
    def test_a_short_subject_is_in_no_split(self, make_cohort, train):
        cohort = make_cohort()
        short = {split_cohort(cohort, test_subjects=1).test[0]}
        cohort = changed(cohort, short, lambda values: values[:9])
        with pytest.warns(UserWarning, match="9 TRs is shorter than a window of 10"):
            (folder,) = train(cohort=cohort)
        assert not short & set(folder.subjects["subject"])
        assert len(folder.subjects) == 5
        assert folder.data["n_subjects"] == 5

    def test_all_runs_too_short(self, make_cohort, small):
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
        assert resolved.epochs == 500
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

    def test_connectivity_is_of_the_training_subjects(self, folders, make_cohort):
        training = folders[0].subjects.query("split == 'train'")["subject"]
        runs = [run.values for run in make_cohort() if run.subject in set(training)]
        expected = np.mean([np.corrcoef(values, rowvar=False) for values in runs], axis=0)
        assert np.allclose(folders[0].functional_connectivity, expected, atol=1e-6)


def test_the_same_seed_gives_the_same_numbers(train, tmp_path):
    first, second = (train(output_dir=tmp_path / name)[0] for name in ("a", "b"))
    timeless = [folder.metrics.drop(columns="seconds") for folder in (first, second)]
    pd.testing.assert_frame_equal(*timeless)
    pd.testing.assert_frame_equal(first.positional_encoding, second.positional_encoding)


def test_test_subjects_choose_nothing(make_cohort, train, tmp_path, rng):
    cohort = make_cohort()
    test = split_cohort(cohort).test
    noisy = changed(cohort, test, lambda values: rng.normal(size=values.shape))
    first = train(cohort=cohort, output_dir=tmp_path / "a")[0]
    second = train(cohort=noisy, output_dir=tmp_path / "b")[0]
    timeless = [
        each.metrics.query("split != 'test'").drop(columns="seconds") for each in (first, second)
    ]
    pd.testing.assert_frame_equal(*timeless)
    pd.testing.assert_frame_equal(first.positional_encoding, second.positional_encoding)
    at_test = [each.metrics.query("split == 'test' and r2 != 0")["mse"] for each in (first, second)]
    assert not np.isclose(*at_test).any()


def test_baselines_are_fitted_on_training_subjects_only(make_cohort, small, rng):
    training = WindowSource(make_cohort().select_subjects(["01", "02"]), window=10)
    own = np.concatenate([values.numpy() for values in training.values])
    gaussian = fit_baselines(training, None, mask_ratio=0.5).imputers[2]
    values = rng.normal(size=(1, 20, 10)).astype(np.float32)
    visible, hidden = np.arange(10), np.arange(10, 20)
    covariance = own.T @ own / len(own)
    ridge = covariance[:10, :10] + gaussian.ridge * np.eye(10)
    expected = covariance[10:, :10] @ np.linalg.solve(ridge, values[0, :10])
    assert np.allclose(gaussian.predict(values, visible, hidden)[0], expected, atol=1e-5)


def test_without_test_or_validation_subjects(train, tmp_path):
    (folder,) = train(test_subjects=0, validation_subjects=0)
    assert set(folder.subjects["split"]) == {"train"}
    assert set(folder.metrics["split"]) == {"train"}
    assert folder.region_errors.empty
    assert (folder.metrics["epoch"] == [1, 2, 3]).all()


def test_one_subject_alone_can_be_trained_on(make_cohort, train, tmp_path):
    with pytest.raises(InputError, match=r"found 1 subjects.*\(0 is allowed\)"):
        train(cohort=make_cohort(n_subjects=1))
    assert not (tmp_path / "out").exists()
    (folder,) = train(cohort=make_cohort(n_subjects=1), test_subjects=0, validation_subjects=0)
    assert folder.subjects["subject"].tolist() == ["01"]


class TestRepeated:
    def test_a_finished_fit_is_kept(self, train, tmp_path):
        train()
        before = contents(tmp_path)
        stamps = {path: path.stat().st_mtime_ns for path in before if path.parent.name != "out"}
        train(n_seeds=1)
        assert contents(tmp_path) == before
        assert {path: path.stat().st_mtime_ns for path in stamps} == stamps

    def test_a_seed_is_added(self, train):
        first = train()[0]
        both = train(n_seeds=2)
        assert both[0].path == first.path
        pd.testing.assert_frame_equal(both[0].metrics, first.metrics)
        assert both[1].settings.seed == 1

    @pytest.mark.parametrize(
        ("other", "words"),
        [
            ({"lr": 0.01}, "--lr 0.002, now 0.01"),
            ({"layers": 2}, "--layers 1, now 2"),
            ({"test_mask_ratio": 0.6}, "--test-mask-ratio 0.5, now 0.6"),
            ({"epochs": 4}, "--epochs 3, now 4"),
        ],
    )
    def test_other_settings_are_refused(self, train, tmp_path, small, other, words):
        train()
        before = contents(tmp_path)
        with pytest.raises(InputError, match=words + r"; choose another --output-dir"):
            train(settings=replace(small, **other), resume=True)
        assert contents(tmp_path) == before

    def test_other_data_are_refused(self, train, make_cohort, tmp_path):
        train()
        before = contents(tmp_path)
        with pytest.raises(InputError, match="seed-0: holds a fit with other data"):
            train(cohort=changed(make_cohort(), ["03"], lambda values: values + values[::-1]))
        assert contents(tmp_path) == before

    def test_another_split_is_refused(self, train, tmp_path):
        train()
        before = contents(tmp_path)
        with pytest.raises(InputError, match="with other subjects in its splits"):
            train(test_subjects=2)
        assert contents(tmp_path) == before

    def test_nothing_is_trained_when_a_later_seed_differs(self, train, tmp_path, small):
        train(settings=replace(small, seed=1, lr=0.01))
        before = contents(tmp_path)
        with pytest.raises(InputError, match="seed-1: holds a fit with --lr"):
            train(n_seeds=2)
        assert contents(tmp_path) == before

    def test_an_interrupted_fit_needs_resume(self, train, tmp_path):
        def stop(settings, row):
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            train(progress=stop)
        before = contents(tmp_path)
        with pytest.raises(InputError, match=r"seed-0\.partial: an interrupted fit; add --resume"):
            train()
        assert contents(tmp_path) == before
        assert train(resume=True)[0].path.is_dir()


class TestForeignOutput:
    @pytest.mark.parametrize(
        ("description", "owner"),
        [
            ('{"Name": "x", "GeneratedBy": [{"Name": "fMRIPrep"}]}', "data set of fMRIPrep"),
            ('{"Name": "a raw data set", "BIDSVersion": "1.8.0"}', "data set of someone else"),
            ('{"GeneratedBy": null}', "someone else"),
            ('["GeneratedBy"]', "someone else"),
            ("not JSON", "someone else"),
            ("", "someone else"),
        ],
    )
    def test_a_data_set_of_others_is_left_alone(self, train, tmp_path, description, owner):
        output = tmp_path / "out"
        output.mkdir()
        (output / "dataset_description.json").write_text(description)
        with pytest.raises(InputError, match=f"--output-dir .*{owner}"):
            train()
        assert [path.name for path in output.iterdir()] == ["dataset_description.json"]
        assert (output / "dataset_description.json").read_text() == description

    def test_a_file(self, train, tmp_path):
        (tmp_path / "out").write_text("mine")
        with pytest.raises(InputError, match=r"--output-dir .*found a file; expected a folder"):
            train()
        assert (tmp_path / "out").read_text() == "mine"

    @pytest.mark.parametrize("name", ["", ".partial"])
    def test_a_file_in_the_place_of_the_model_folder(self, train, tmp_path, small, name):
        output = tmp_path / "out"
        output.mkdir()
        place = output / (small.name + name)
        place.write_text("mine")
        with pytest.raises(InputError, match="seed-0"):
            train()
        assert [path.name for path in output.iterdir()] == [place.name]


class TestNothingIsWrittenForBadInput:
    @pytest.mark.parametrize(
        ("settings", "words"),
        [
            ({"encoding": "3d-fixed"}, "needs MNI coordinates"),
            ({"window": 81}, "--window"),
            ({"device": "mps"}, "--device: found 'mps'"),
        ],
    )
    def test_settings(self, train, tmp_path, small, settings, words):
        with pytest.raises(InputError, match=words):
            train(settings=replace(small, **settings))
        assert not list(tmp_path.iterdir())

    def test_one_region(self, train, make_cohort, tmp_path):
        with pytest.raises(InputError, match="found 1 region; expected at least 2"):
            train(cohort=make_cohort(n_regions=1))
        assert not list(tmp_path.iterdir())

    def test_no_seeds(self, train, tmp_path):
        with pytest.raises(InputError, match="--seeds: found 0"):
            train(n_seeds=0)
        assert not list(tmp_path.iterdir())

    def test_unknown_test_subject(self, train, tmp_path):
        with pytest.raises(InputError, match="no data of subject '99'"):
            train(test_subjects=["99"])
        assert not list(tmp_path.iterdir())


class TestOddCohorts:
    def test_two_regions(self, train, make_cohort):
        (folder,) = train(cohort=make_cohort(n_regions=2))
        assert folder.region_errors["mse"].notna().any()

    def test_regions_without_signal_are_listed(self, train, make_cohort):
        runs = [run for run in changed(make_cohort(), ["02"], np.copy)]
        runs[1].values[:, 4] = np.nan
        with pytest.warns(UserWarning, match="1 of 20 regions left out"):
            cohort = Cohort.from_runs(runs)
        (folder,) = train(cohort=cohort)
        assert folder.dropped["name"].tolist() == ["R04"]
        assert "not finite" in folder.dropped["reason"][0]
        assert folder.regions["name"].tolist() == [run for run in runs[0].regions if run != "R04"]

    def test_runs_of_unequal_length_and_several_a_subject(self, train, make_cohort):
        runs = [
            replace(run, values=run.values[: 40 + 7 * number], run=str(part))
            for number, run in enumerate(make_cohort())
            for part in range(2)
        ]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            (folder,) = train(cohort=Cohort.from_runs(runs))
        assert folder.data["n_runs"] == 12
        assert folder.data["n_subjects"] == 6

    def test_sources_that_are_no_paths(self, train, make_cohort, tmp_path):
        sources = ["simulated", str(tmp_path / "a.tsv"), "simulated"]
        runs = [
            replace(run, source=source)
            for run, source in zip(make_cohort(n_subjects=3), sources, strict=True)
        ]
        (folder,) = train(cohort=Cohort.from_runs(runs))
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

    def test_one_subject_has_no_interval(self, train, make_cohort):
        result = compare_predictors(train()[0].region_errors)
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


def test_attention_is_left_on_request(train, small):
    (model,) = train(save_attention=True)
    with np.load(model.path / "attention.npz", allow_pickle=False) as file:
        attention, regions = file["attention"], file["regions"]
    assert list(regions) == list(model.regions["name"])
    assert attention.shape == (small.layers, small.heads, len(regions), len(regions))
    np.testing.assert_allclose(attention.sum(axis=-1), 1, rtol=1e-4)
