"""The scikit-learn face, on lists of runs."""

import copy
import inspect
import io
from dataclasses import fields, replace

import joblib
import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import parametrize_with_checks

from neuro_pe import (
    Cohort,
    FitSettings,
    InputError,
    MaskedRegionModel,
    RegionTimeSeries,
    train_models,
)
from neuro_pe.reconstruction import EvaluationSet, ModelImputer
from neuro_pe.windows import WindowSource

SMALL = {
    "width": 16,
    "heads": 2,
    "layers": 1,
    "window": 10,
    "batch_size": 8,
    "epochs": 2,
    "mask_ratio": 0.5,
    "test_mask_ratio": 0.5,
    "device": "cpu",
}

# scikit-learn's checks hand over one 2-D array of (sample, feature). A sample of ours is a subject
# with a (time, region) array, and a 2-D array is refused, so the checks that fit one cannot pass.
# Each is listed with the test below that asks the same of a list of runs.
NOT_APPLICABLE = {
    name: f"fits one 2-D array; see {test}"
    for name, test in {
        "check_complex_data": "TestInputs.test_what_is_no_list_of_runs",
        "check_dict_unchanged": "TestFitting.test_returns_itself_and_changes_no_input",
        "check_dont_overwrite_parameters": "TestFitting.test_returns_itself_and_changes_no_input",
        "check_dtype_object": "TestInputs.test_what_is_no_list_of_runs",
        "check_estimator_sparse_array": "TestInputs.test_what_is_no_list_of_runs",
        "check_estimator_sparse_matrix": "TestInputs.test_what_is_no_list_of_runs",
        "check_estimator_sparse_tag": "TestInputs.test_what_is_no_list_of_runs",
        "check_estimators_dtypes": "TestInputs.test_number_formats_and_memory_orders",
        "check_estimators_empty_data_messages": "TestInputs.test_what_is_no_list_of_runs",
        "check_estimators_fit_returns_self": "TestFitting.test_returns_itself_and_changes_no_input",
        "check_estimators_nan_inf": "TestInputs.test_a_region_without_signal_is_dropped",
        "check_estimators_overwrite_params": "TestFitting.test_returns_itself_and_changes_no_input",
        "check_estimators_pickle": "TestInsideScikitLearn.test_copies_score_the_same",
        "check_f_contiguous_array_estimator": "TestInputs.test_number_formats_and_memory_orders",
        "check_fit2d_1feature": "TestInputs.test_one_region",
        "check_fit2d_1sample": "TestFitting.test_few_subjects_hold_nobody_out",
        "check_fit2d_predict1d": "TestInputs.test_what_is_no_list_of_runs",
        "check_fit_check_is_fitted": "TestTransform.test_not_fitted",
        "check_fit_idempotent": "TestFitting.test_twice_is_the_same",
        "check_fit_score_takes_y": "TestFitting.test_y_is_ignored",
        "check_methods_sample_order_invariance": "TestTransform.test_order_of_subjects",
        "check_methods_subset_invariance": "TestTransform.test_one_embedding_a_subject_and_region",
        "check_n_features_in": "TestFitting.test_learned_attributes",
        "check_n_features_in_after_fitting": "TestInputs.test_another_number_of_unnamed_columns",
        "check_pipeline_consistency": "TestInsideScikitLearn.test_pipeline",
        "check_positive_only_tag_during_fit": "TestFitting (all of its data have both signs)",
        "check_readonly_memmap_input": "TestInputs.test_number_formats_and_memory_orders",
        "check_transformer_data_not_an_array": "TestInputs.test_all_forms_of_the_same_data",
        "check_transformer_general": "TestTransform.test_fit_transform",
        "check_transformer_preserve_dtypes": "TestTransform (embeddings are always float32)",
    }.items()
}


class AsIfTwoDimensional(MaskedRegionModel):
    """The model without its tag that X is not 2-D, for which scikit-learn skips the checks."""

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = True
        return tags


@parametrize_with_checks(
    [AsIfTwoDimensional(**SMALL)], expected_failed_checks=lambda _: NOT_APPLICABLE
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def test_what_takes_the_place_of_a_check_is_there():
    for reason in NOT_APPLICABLE.values():
        place = reason.partition("see ")[2].partition(" ")[0]
        owner, _, test = place.partition(".")
        assert not test or hasattr(globals()[owner], test), place


def test_tags_say_what_x_is():
    tags = get_tags(MaskedRegionModel()).input_tags
    assert tags.three_d_array
    assert not tags.two_d_array


@pytest.fixture(scope="module")
def arrays(make_cohort):
    return [run.values for run in make_cohort()]


@pytest.fixture(scope="module")
def fitted(arrays):
    return MaskedRegionModel(**SMALL, random_state=0).fit(arrays)


class TestParameters:
    def test_defaults_are_those_of_the_settings(self):
        parameters = MaskedRegionModel().get_params()
        settings = {option.name: option.default for option in fields(FitSettings)}
        settings.pop("seed")
        assert {"random_state", "validation_subjects"} == set(parameters) - set(settings)
        assert settings == {name: parameters[name] for name in settings}

    def test_every_parameter_is_described(self):
        for name in MaskedRegionModel().get_params():
            assert name in MaskedRegionModel.__doc__

    def test_init_stores_the_parameters_and_nothing_else(self):
        model = MaskedRegionModel()
        assert set(vars(model)) == set(model.get_params())
        assert all(
            parameter.kind is inspect.Parameter.KEYWORD_ONLY
            for parameter in inspect.signature(MaskedRegionModel).parameters.values()
        )

    def test_init_checks_nothing_and_fit_names_the_parameter(self, arrays):
        model = MaskedRegionModel(sigma=-1)
        with pytest.raises(InputError, match=r"sigma: found -1\.?0?; expected a number over 0"):
            model.fit(arrays)

    def test_set_params_and_clone(self, fitted):
        model = clone(fitted).set_params(sigma=0.7, validation_subjects=["1"])
        assert not hasattr(model, "network_")
        assert model.get_params() == {
            **fitted.get_params(),
            "sigma": 0.7,
            "validation_subjects": ["1"],
        }
        with pytest.raises(ValueError, match="rotation"):
            model.set_params(rotation=1)

    def test_numbers_of_numpy(self, arrays):
        model = MaskedRegionModel(**{**SMALL, "window": np.int64(10), "sigma": np.float32(0.1)})
        model.set_params(random_state=np.int64(3), epochs=np.int32(1))
        assert model.fit(arrays).score(arrays) < 1


class TestFitting:
    def test_returns_itself_and_changes_no_input(self, arrays):
        model = MaskedRegionModel(**SMALL, random_state=0)
        before, parameters = copy.deepcopy(arrays), model.get_params()
        state = torch.random.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
        assert model.fit(arrays) is model
        model.transform(arrays)
        model.score(arrays)
        assert model.get_params() == parameters
        for one, other in zip(arrays, before, strict=True):
            assert np.array_equal(one, other)
        assert torch.equal(torch.random.get_rng_state(), state[0])
        assert np.array_equal(np.random.get_state()[1], state[1])  # noqa: NPY002

    def test_twice_is_the_same(self, fitted, arrays):
        other = MaskedRegionModel(**SMALL, random_state=0).fit(arrays[:3]).fit(arrays)
        assert np.array_equal(other.positional_encoding_, fitted.positional_encoding_)
        assert other.score(arrays) == fitted.score(arrays)

    def test_y_is_ignored(self, fitted, arrays):
        y = np.arange(len(arrays))
        other = MaskedRegionModel(**SMALL, random_state=0).fit(arrays, y)
        assert other.score(arrays, y) == fitted.score(arrays)

    def test_random_state(self, fitted, arrays):
        def encoding(seed):
            model = MaskedRegionModel(**{**SMALL, "epochs": 1}, random_state=seed)
            return model.fit(arrays[:3]).positional_encoding_.to_numpy()

        assert np.array_equal(encoding(1), encoding(1))
        assert not np.array_equal(encoding(1), encoding(2))
        assert not np.array_equal(encoding(None), encoding(None))
        states = [np.random.RandomState(5) for _ in range(2)]
        first, second = encoding(states[0]), encoding(states[1])
        assert np.array_equal(first, second)
        assert not np.array_equal(encoding(states[0]), first)

    def test_learned_attributes(self, fitted, arrays):
        assert fitted.n_features_in_ == 20
        assert fitted.positional_encoding_.shape == (20, 16)
        assert fitted.positional_encoding_change_.shape == (20, 16)
        assert fitted.functional_connectivity_.shape == (20, 20)
        assert fitted.regions_["name"].tolist() == [str(number) for number in range(20)]
        assert set(fitted.metrics_["split"]) == {"train", "validation"}

    def test_nope_has_no_encoding(self, arrays):
        model = MaskedRegionModel(**SMALL, encoding="nope", random_state=0).fit(arrays[:3])
        assert model.positional_encoding_ is None
        assert model.positional_encoding_change_ is None
        assert model.transform(arrays[:3]).shape == (3, 20, 16)

    def test_random_encoding_is_never_learned(self, arrays):
        model = MaskedRegionModel(**SMALL, encoding="random", random_state=0).fit(arrays[:3])
        assert (model.positional_encoding_change_ == 0).all(axis=None)

    def test_validation_subjects_by_label(self, arrays):
        model = MaskedRegionModel(**SMALL, random_state=0, validation_subjects=["4", "5"])
        model.fit(arrays)
        error = model.metrics_.query("split == 'validation'")["n"]
        assert set(error) == {2 * 8 * 10 * 10}

    @pytest.mark.parametrize("n_subjects", [1, 2])
    def test_few_subjects_hold_nobody_out(self, arrays, n_subjects):
        model = MaskedRegionModel(**SMALL, random_state=0).fit(arrays[:n_subjects])
        assert set(model.metrics_["split"]) == {"train"}

    def test_a_short_subject_is_left_out_with_a_warning(self, arrays):
        model = MaskedRegionModel(**SMALL, random_state=0, validation_subjects=1)
        with pytest.warns(UserWarning, match="subject 2: left out, 9 TRs is shorter"):
            model.fit([*arrays[:2], arrays[2][:9], *arrays[3:]])

    def test_beats_the_mean_on_unseen_subjects(self, arrays):
        options = {**SMALL, "epochs": 80, "lr": 3e-3, "target_ratio": 1.0}
        model = MaskedRegionModel(**options, random_state=0, validation_subjects=0)
        assert model.fit(arrays[:4]).score(arrays[4:]) > 0.05

    def test_score_is_r2_on_hidden_regions(self, fitted, arrays):
        cohort = Cohort.from_runs(
            [
                RegionTimeSeries(values=values, regions=list(map(str, range(20))), subject=str(k))
                for k, values in enumerate(arrays)
            ]
        )
        held_out = EvaluationSet(WindowSource(cohort, window=10), mask_ratio=0.5)
        truth, predicted = [], []
        for chosen, visible, hidden in held_out.groups():
            values = held_out.source.gather(held_out.windows[chosen]).numpy()
            truth.append(values[:, hidden].ravel())
            predicted.append(ModelImputer(fitted.network_).predict(values, visible, hidden).ravel())
        truth, predicted = np.concatenate(truth), np.concatenate(predicted)
        expected = 1 - ((truth - predicted) ** 2).sum() / (truth**2).sum()
        assert fitted.score(arrays) == pytest.approx(expected, rel=1e-5)


class TestTransform:
    def test_one_embedding_a_subject_and_region(self, fitted, arrays):
        embedded = fitted.transform(arrays)
        assert embedded.shape == (6, 20, 16)
        assert embedded.dtype == np.float32
        assert np.allclose(fitted.transform(arrays[3:4])[0], embedded[3], atol=1e-5)

    def test_fit_transform(self, fitted, arrays):
        model = MaskedRegionModel(**SMALL, random_state=0)
        assert np.allclose(model.fit_transform(arrays), fitted.transform(arrays), atol=1e-6)

    def test_order_of_subjects(self, fitted, arrays):
        turned = fitted.transform(arrays[::-1])
        assert np.allclose(turned[::-1], fitted.transform(arrays), atol=1e-5)

    def test_subjects_of_unequal_length(self, fitted, arrays):
        cut = [values[: 80 - 10 * number] for number, values in enumerate(arrays)]
        assert np.allclose(fitted.transform(cut)[0], fitted.transform(arrays)[0], atol=1e-5)

    @pytest.mark.parametrize("method", ["transform", "score", "save"])
    def test_not_fitted(self, arrays, tmp_path, method):
        argument = tmp_path / "model" if method == "save" else arrays
        with pytest.raises(NotFittedError):
            getattr(MaskedRegionModel(), method)(argument)


class TestInputs:
    def test_all_forms_of_the_same_data(self, fitted, arrays):
        names = [str(number) for number in range(20)]
        frames = [pd.DataFrame(values) for values in arrays]
        runs = [
            RegionTimeSeries(values=values, regions=names, subject=str(number))
            for number, values in enumerate(arrays)
        ]
        score = fitted.score(arrays)
        for form in (tuple(arrays), np.stack(arrays), frames, runs, Cohort.from_runs(runs)):
            assert fitted.score(form) == score
        assert fitted.score([values.tolist() for values in arrays]) == score

    def test_number_formats_and_memory_orders(self, fitted, arrays):
        whole = [np.round(values * 1000).astype(np.int32) for values in arrays]
        score = fitted.score(whole)
        assert fitted.score([values.astype(np.float32) for values in whole]) == score
        assert fitted.score([np.asfortranarray(values) for values in whole]) == score
        for values in whole:
            values.flags.writeable = False
        assert fitted.score(whole) == score

    def test_names_of_a_data_frame(self, arrays):
        names = [f"L_{number}" for number in range(20)]
        frames = [pd.DataFrame(values, columns=names) for values in arrays]
        model = MaskedRegionModel(**SMALL, random_state=0).fit(frames)
        assert model.positional_encoding_.index.tolist() == names
        # Columns are found by name, not by place.
        assert model.score([frame[names[::-1]] for frame in frames]) == model.score(frames)
        with pytest.raises(InputError, match="20 of the model's 20 regions"):
            model.score(arrays)
        with pytest.raises(InputError, match=r"1 of the model's 20 regions \(first: L_7"):
            model.score([frame.drop(columns="L_7") for frame in frames])

    def test_more_columns_by_name_are_no_harm(self, arrays):
        names = [f"L_{number}" for number in range(20)]
        frames = [pd.DataFrame(values, columns=names) for values in arrays]
        model = MaskedRegionModel(**SMALL, random_state=0).fit(frames)
        wider = [frame.assign(extra=frame["L_3"] ** 2)[["extra", *names]] for frame in frames]
        assert model.score(wider) == model.score(frames)

    @pytest.mark.parametrize("n_regions", [19, 21])
    def test_another_number_of_unnamed_columns(self, fitted, arrays, n_regions):
        other = [np.hstack([values, values])[:, :n_regions] for values in arrays]
        with pytest.raises(InputError, match=f"found {n_regions} columns; expected the 20 regions"):
            fitted.transform(other)

    @pytest.mark.parametrize(
        ("X", "words"),
        [
            (np.zeros((80, 20)), r"X: found an array of shape \(80, 20\); expected a list"),
            (np.zeros(80), r"X: found an array of shape \(80,\)"),
            (pd.DataFrame(np.zeros((80, 20))), r"X: found an array of shape \(80, 20\)"),
            (None, "X: found NoneType; expected a list"),
            (3, "X: found int"),
            ("data", "X: found str"),
            ({"a": np.zeros((80, 20))}, "X: found dict"),
            ([], "no runs were given"),
            (np.zeros((0, 80, 20)), "no runs were given"),
            ([np.zeros(80)], r"subject 0: expected a \(time, region\) array, found shape \(80,\)"),
            ([np.zeros((80, 0))], r"subject 0: .*found shape \(80, 0\)"),
            ([np.array([["a", "b"]] * 80)], "subject 0: expected numbers"),
            ([np.zeros((80, 2), dtype=complex)], "subject 0: expected numbers"),
            ([np.full((80, 2), None)], "subject 0: expected numbers"),
            ([sparse.random_array((80, 20), density=0.5)], r"subject 0: .*found shape \(\)"),
            (sparse.random_array((80, 20), density=0.5), r"X: found an array of shape"),
        ],
    )
    @pytest.mark.parametrize("method", ["fit", "transform", "score"])
    def test_what_is_no_list_of_runs(self, fitted, X, words, method):
        with pytest.raises(InputError, match=words):
            getattr(clone(fitted) if method == "fit" else fitted, method)(X)

    def test_ragged_regions(self, arrays):
        with pytest.raises(InputError, match="subject 1: 19 regions where subject 0 has 20"):
            MaskedRegionModel(**SMALL).fit([arrays[0], arrays[1][:, :19]])

    def test_one_region(self, arrays):
        with pytest.raises(InputError, match="found 1 region; expected at least 2"):
            MaskedRegionModel(**SMALL).fit([values[:, :1] for values in arrays])

    def test_a_region_without_signal_is_dropped(self, arrays):
        holed = [values.copy() for values in arrays]
        holed[2][:, 5] = np.nan
        holed[4][:, 9] = 3.0
        model = MaskedRegionModel(**SMALL, random_state=0)
        with pytest.warns(UserWarning, match="2 of 20 regions left out for everybody"):
            model.fit(holed)
        assert len(model.regions_) == 18
        assert model.n_features_in_ == 20
        # Data with all regions are fine, and the right ones are taken.
        kept = [name for name in range(20) if name not in (5, 9)]
        reference = MaskedRegionModel(**SMALL, random_state=0)
        reference.fit([values[:, kept] for values in holed])
        assert model.score(arrays) == reference.score([values[:, kept] for values in arrays])

    def test_new_data_that_lack_a_region(self, fitted, arrays):
        holed = [values.copy() for values in arrays]
        holed[0][:, 5] = np.nan
        with (
            pytest.warns(UserWarning, match="1 of 20 regions left out"),
            pytest.raises(
                InputError, match=r"no signal for 1 of the model's 20 regions \(first: 5"
            ),
        ):
            fitted.score(holed)

    def test_new_data_shorter_than_a_window(self, fitted):
        with pytest.raises(InputError, match="no run is as long as a window of 10 TRs"):
            fitted.score([np.random.default_rng(0).normal(size=(9, 20))])


class TestInsideScikitLearn:
    @pytest.mark.parametrize("form", [list, np.stack])
    def test_cross_validation_over_subjects(self, arrays, form):
        model = MaskedRegionModel(**SMALL, random_state=0)
        scores = cross_val_score(model, form(arrays), cv=KFold(3))
        expected = MaskedRegionModel(**SMALL, random_state=0).fit(arrays[2:]).score(arrays[:2])
        assert scores[0] == expected
        assert np.isfinite(scores).all()

    def test_pipeline(self, fitted, arrays):
        halve = FunctionTransformer(lambda runs: [run / 2 + 7 for run in runs])
        pipeline = make_pipeline(halve, MaskedRegionModel(**SMALL, random_state=0))
        # A run is standardized, so its unit and its mean do not matter.
        assert pipeline.fit(arrays).score(arrays) == pytest.approx(fitted.score(arrays), abs=1e-4)
        assert pipeline.transform(arrays).shape == (6, 20, 16)

    def test_grid_search(self, arrays):
        search = GridSearchCV(
            MaskedRegionModel(**{**SMALL, "epochs": 1}, random_state=0),
            {"sigma": np.logspace(-1, 0, 2), "window": np.array([10, 20])},
            cv=2,
            error_score="raise",
        )
        assert search.fit(arrays).best_params_["sigma"] in (0.1, 1.0)

    def test_copies_score_the_same(self, fitted, arrays):
        buffer = io.BytesIO()
        joblib.dump(fitted, buffer)
        buffer.seek(0)
        for other in (copy.deepcopy(fitted), joblib.load(buffer)):
            assert other.score(arrays) == fitted.score(arrays)


class TestSaving:
    def test_loaded_model_is_the_same(self, fitted, arrays, tmp_path):
        fitted.save(tmp_path / "model")
        other = MaskedRegionModel.load(tmp_path / "model")
        assert other.score(arrays) == fitted.score(arrays)
        assert np.array_equal(other.transform(arrays), fitted.transform(arrays))
        assert other.n_features_in_ == 20
        assert other.random_state == 0
        for name in ("positional_encoding_", "positional_encoding_change_", "regions_"):
            pd.testing.assert_frame_equal(
                getattr(other, name), getattr(fitted, name), check_dtype=False, rtol=1e-5
            )
        assert other.fit(arrays[:2]).score(arrays) != fitted.score(arrays)

    @pytest.mark.parametrize("encoding", ["nope", "random", "1d-fixed", "3d-fixed"])
    def test_every_encoding(self, make_cohort, tmp_path, encoding):
        cohort = make_cohort(n_subjects=3)
        places = np.random.default_rng(1).uniform(-60, 60, size=(20, 3))
        cohort = replace(
            cohort, regions=cohort.regions.assign(x=places[:, 0], y=places[:, 1], z=places[:, 2])
        )
        model = MaskedRegionModel(**SMALL, encoding=encoding, random_state=0).fit(cohort)
        model.save(tmp_path / "model")
        assert MaskedRegionModel.load(tmp_path / "model").score(cohort) == model.score(cohort)

    def test_saved_twice_the_same(self, fitted, tmp_path):
        fitted.save(tmp_path / "a")
        MaskedRegionModel.load(tmp_path / "a").save(tmp_path / "b")
        for file in (tmp_path / "a").iterdir():
            assert (tmp_path / "b" / file.name).read_bytes() == file.read_bytes(), file.name

    @pytest.mark.parametrize("name", ["model", "model.partial"])
    def test_what_stands_there_is_not_touched(self, fitted, tmp_path, name):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mine.txt").write_text("mine")
        with pytest.raises(InputError, match=f"{name}: exists already; choose another folder"):
            fitted.save(tmp_path / "model")
        assert [path.name for path in tmp_path.rglob("*")] == [name, "mine.txt"]

    def test_a_failed_save_leaves_nothing(self, fitted, tmp_path, monkeypatch):
        def full(*_, **__):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("neuro_pe.model_folder.write_settings", full)
        with pytest.raises(OSError, match="No space"):
            fitted.save(tmp_path / "model")
        assert not list(tmp_path.iterdir())

    def test_a_model_of_the_command_is_loaded_too(self, make_cohort, small, tmp_path):
        (folder,) = train_models(make_cohort(), output_dir=tmp_path, settings=small)
        test = folder.subjects.query("split == 'test'")["subject"]
        model = MaskedRegionModel.load(folder.path)
        expected = folder.metrics.query("split == 'test' and predictor == 'model'")["r2"].item()
        assert model.score(make_cohort().select_subjects(list(test))) == pytest.approx(
            expected, abs=1e-6
        )
