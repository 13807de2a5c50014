"""Filling in missing regions, and what is said about how good that is."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from neuro_pe import (
    InputError,
    MaskedRegionModel,
    RegionTimeSeries,
    atlases,
    impute_bids,
    load_bids,
)
from neuro_pe.baselines import RIDGES, GaussianImputer
from neuro_pe.imputation import HiddenRegions, fill_run, missing_regions, pooled_errors
from neuro_pe.model_folder import read_model_folder
from neuro_pe.reconstruction import ModelImputer
from neuro_pe.windows import WindowSource

SMALL = {"width": 16, "heads": 2, "layers": 1, "window": 10, "batch_size": 8, "device": "cpu"}
OPTIONS = {**SMALL, "mask_ratio": 0.5, "test_mask_ratio": 0.5}


@pytest.fixture(scope="module")
def cohort(make_cohort):
    return make_cohort()


@pytest.fixture(scope="module")
def model(cohort):
    """Trained on the first four of six subjects."""
    fitted = MaskedRegionModel(**OPTIONS, epochs=5, random_state=0, validation_subjects=0)
    return fitted.fit(cohort.select_subjects(["01", "02", "03", "04"]))


@pytest.fixture(scope="module")
def folder(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("fit") / "model"
    model.save(path)
    return read_model_folder(path)


@pytest.fixture
def frames(cohort):
    """The two subjects that were not trained on, in units of 5 around 100."""
    return [
        pd.DataFrame(100 + 5 * run.values, columns=run.regions)
        for run in cohort.select_subjects(["05", "06"])
    ]


class Recorder:
    """Predict the number of the window's call and keep what was asked."""

    name = "recorder"

    def __init__(self, answer=0.0):
        self.answer = answer
        self.asked = []

    def predict(self, values, visible, hidden):
        self.asked.append((values.copy(), visible.tolist(), hidden.tolist()))
        return np.full((len(values), len(hidden), values.shape[2]), self.answer)


def a_run(values, regions=None, **labels):
    regions = regions or [f"R{number:02d}" for number in range(values.shape[1])]
    return RegionTimeSeries(values=values, regions=regions, subject="x", **labels)


class TestFillRun:
    def test_windows_cover_every_tr_and_overlaps_are_averaged(self, folder, rng):
        class Counter(Recorder):
            def predict(self, values, visible, hidden):
                super().predict(values, visible, hidden)
                each = np.arange(1, len(values) + 1)[:, None, None]
                return np.broadcast_to(each, (len(values), len(hidden), values.shape[2]))

        values = rng.normal(size=(25, 20))
        values[:, 3] = np.nan
        scale = values[:, [c for c in range(20) if c != 3]]
        filled = fill_run(a_run(values), folder, Counter())
        z = (filled.run.values[:, 3] - np.median(scale.mean(axis=0))) / np.median(scale.std(axis=0))
        # Windows begin at 0, 10 and 15.
        assert np.allclose(z, [1] * 10 + [2] * 5 + [2.5] * 5 + [3] * 5)
        assert filled.n_filled == {"R03": 25}
        assert filled.borrowed_scale == ("R03",)

    def test_a_region_is_hidden_where_it_lacks_a_tr_and_only_there(self, folder, rng):
        values = rng.normal(size=(30, 20)) * 3 + 7
        whole = values.copy()
        values[12:14, 5] = np.nan
        recorder = Recorder(answer=2.0)
        filled = fill_run(a_run(values), folder, recorder)
        ((seen, visible, hidden),) = recorder.asked
        assert hidden == [5]
        assert visible == [number for number in range(20) if number != 5]
        z = (whole - whole.mean(axis=0)) / whole.std(axis=0)
        assert np.allclose(seen[0, visible], z[10:20, visible].T, atol=1e-5)
        # On its own scale, of the values that it has; those stay as they are.
        there = np.delete(values[:, 5], [12, 13])
        assert np.allclose(filled.run.values[12:14, 5], there.mean() + 2 * there.std())
        keeps = np.isfinite(values)
        assert np.array_equal(filled.run.values[keeps], values[keeps])
        assert filled.n_filled == {"R05": 2}
        assert filled.borrowed_scale == ()

    def test_a_constant_region_and_one_without_a_column_are_missing(self, folder, rng):
        values = rng.normal(size=(20, 19))
        values[:, 0] = 4.0
        run = a_run(values)  # lacks R19
        names = list(folder.regions["name"])
        assert missing_regions(run, names) == ["R00", "R19"]
        filled = fill_run(run, folder, Recorder())
        assert filled.n_filled == {"R00": 20, "R19": 20}
        assert filled.run.regions == tuple(names)

    def test_columns_that_the_model_lacks_stay(self, folder, rng):
        values = rng.normal(size=(20, 21))
        values[:, [2, 20]] = np.nan
        names = [*(f"R{number:02d}" for number in range(20)), "other"]
        order = rng.permutation(21)
        run = a_run(values[:, order], [names[number] for number in order])
        filled = fill_run(run, folder, Recorder())
        assert filled.run.regions == run.regions
        assert filled.n_filled == {"R02": 20}
        assert np.isnan(filled.run.values[:, run.regions.index("other")]).all()

    def test_what_nothing_is_visible_for_stays_missing(self, folder, rng):
        values = rng.normal(size=(30, 20))
        values[4] = np.nan
        values[25, 1] = np.nan
        # All regions lack a TR, so more than the half that was hidden in training.
        with (
            pytest.warns(UserWarning, match="20 of 21 missing values stay missing"),
            pytest.warns(UserWarning, match="100% of the regions are missing; at most 50%"),
        ):
            filled = fill_run(a_run(values), folder, Recorder())
        assert np.isnan(filled.run.values).sum() == 20
        assert filled.n_filled == {"R01": 1}

    @pytest.mark.parametrize(
        ("values", "names", "words"),
        [
            (np.ones((30, 20)), None, "none of the model's 20 regions .* matched by name"),
            (np.eye(30)[:, :20], [f"L_{n}" for n in range(20)], "its first column: L_0"),
            (np.eye(9)[:, :8], None, "9 TRs; expected at least the 10 of a window"),
        ],
    )
    def test_what_cannot_be_filled(self, folder, values, names, words):
        with pytest.raises(InputError, match=words):
            fill_run(a_run(values, names), folder, Recorder())


class TestImpute:
    def test_values_are_the_predictions_of_the_network(self, model, frames):
        hidden = [3, 8, 14]
        names = [f"R{number:02d}" for number in hidden]
        (filled,) = model.impute([frames[0].drop(columns=names)])
        z = ((frames[0] - frames[0].mean()) / frames[0].std(ddof=0)).to_numpy(dtype=np.float32)
        windows = z.reshape(8, 10, 20).swapaxes(1, 2).copy()
        visible = [number for number in range(20) if number not in hidden]
        predicted = ModelImputer(model.network_).predict(
            windows, np.array(visible), np.array(hidden)
        )
        seen = frames[0].drop(columns=names)
        expected = predicted.swapaxes(1, 2).reshape(80, 3)
        expected = expected * seen.std(ddof=0).median() + seen.mean().median()
        assert np.allclose(filled[names], expected, atol=1e-3)

    def test_a_good_predictor_finds_the_hidden_courses(self, folder, frames):
        covariance = folder.functional_connectivity.to_numpy()
        for frame in frames:
            run = a_run(frame.assign(R03=np.nan, R14=np.nan).to_numpy())
            filled = fill_run(run, folder, GaussianImputer.from_covariance(covariance)).run
            for column in (3, 14):
                truth = frame.to_numpy()[:, column]
                assert np.corrcoef(filled.values[:, column], truth)[0, 1] > 0.75

    def test_units_of_the_run(self, model, frames):
        holed = frames[0].assign(R03=np.nan)
        (filled,) = model.impute([holed])
        assert filled["R03"].mean() == pytest.approx(100, abs=5)
        assert 0.5 < filled["R03"].std() < 6
        pd.testing.assert_frame_equal(filled.drop(columns="R03"), holed.drop(columns="R03"))
        # Another unit of the input is that unit of the output, and nothing else.
        (other,) = model.impute([holed * 10 - 3])
        assert np.allclose(other["R03"], filled["R03"] * 10 - 3, atol=1e-2)

    def test_hidden_values_are_not_read(self, model, frames):
        changed = frames[0].copy()
        changed.iloc[10:20, 5] = np.nan
        again = changed.copy()
        (one,) = model.impute([changed])
        again.iloc[10:20, 5] = np.inf
        (two,) = model.impute([again])
        pd.testing.assert_frame_equal(one, two)

    def test_form_of_the_result(self, model, frames, cohort):
        holed = frames[0].assign(R03=np.nan)
        (frame,) = model.impute([holed])
        (lacks,) = model.impute([holed.drop(columns="R03")])
        assert list(frame.columns) == list(holed.columns)
        assert list(lacks.columns) == [*holed.columns.drop("R03"), "R03"]
        pd.testing.assert_frame_equal(lacks[frame.columns], frame)
        run = RegionTimeSeries(
            values=holed.to_numpy(), regions=tuple(holed.columns), subject="a", tr=0.72
        )
        (filled,) = model.impute([run])
        assert (filled.subject, filled.tr) == ("a", 0.72)
        assert np.array_equal(filled.values, frame.to_numpy())
        as_cohort = model.impute(replace(cohort, runs=(run,)))
        assert as_cohort.region_names == list(model.regions_["name"])
        assert model.transform(as_cohort).shape == (1, 20, 16)

    def test_arrays_need_every_column(self, cohort):
        arrays = [run.values for run in cohort]
        fitted = MaskedRegionModel(**OPTIONS, epochs=1, random_state=0).fit(arrays)
        holed = arrays[0].copy()
        holed[:, 4] = np.nan
        (filled,) = fitted.impute([holed])
        assert isinstance(filled, np.ndarray)
        assert np.array_equal(np.delete(filled, 4, axis=1), np.delete(holed, 4, axis=1))
        assert np.isfinite(filled).all()
        with pytest.raises(InputError, match="found 19 columns; expected the 20 regions"):
            fitted.impute([holed[:, :19]])

    def test_nothing_missing_changes_nothing(self, model, frames):
        (filled,) = model.impute(frames[:1])
        pd.testing.assert_frame_equal(filled, frames[0])

    def test_another_repetition_time_is_told(self, model, cohort):
        slow = replace(cohort[5], tr=2.0)
        with pytest.warns(UserWarning, match=r"2 s where the model was fitted at 0\.72 s"):
            model.impute([slow])


class TestErrors:
    def test_exactly_these_regions_are_hidden(self, model, cohort):
        source = WindowSource(cohort, window=10)
        held_out = HiddenRegions(source, ["R07", "R02"])
        groups = list(held_out.groups())
        assert {tuple(hidden) for _, _, hidden in groups} == {(2, 7)}
        assert sum(len(chosen) for chosen, _, _ in groups) == len(held_out.windows)
        errors = model.region_errors(cohort, hidden=["R07", "R02"])
        assert set(errors["region"]) == {"R02", "R07"}
        assert set(errors["n"]) == {80}

    @pytest.mark.parametrize("hidden", [[], ["R99"], [f"R{n:02d}" for n in range(20)]])
    def test_hidden_that_make_no_sense(self, model, cohort, hidden):
        with pytest.raises(InputError, match=r"hidden: found .*; expected names of some"):
            model.region_errors(cohort, hidden=hidden)

    def test_score_subjects_agrees_with_score(self, model, cohort):
        table = model.score_subjects(cohort)
        assert list(table.columns) == ["subject", "predictor", "mse", "r2", "n"]
        ours = table[table["predictor"] == "model"]
        assert list(ours["subject"]) == cohort.subjects
        for subject, r2 in zip(ours["subject"], ours["r2"], strict=True):
            # Other masks fall to the windows of a subject who is alone: about the same.
            alone = model.score(cohort.select_subjects([subject]))
            assert r2 == pytest.approx(alone, abs=0.08)
        whole = (
            1 - (ours["mse"] * ours["n"]).sum() / (ours["mse"] * ours["n"] / (1 - ours["r2"])).sum()
        )
        assert whole == pytest.approx(model.score(cohort), abs=1e-6)

    def test_gaussian_is_the_imputer_of_the_training_subjects(self, model, cohort):
        training = WindowSource(cohort.select_subjects(["01", "02", "03", "04"]), window=10)
        imputer = GaussianImputer().fit(training.standardized_runs())
        others = WindowSource(cohort.select_subjects(["05", "06"]), window=10)
        held_out = HiddenRegions(others, ["R00", "R11"])
        # The ridge that is best on these values.
        ridges = {ridge: held_out.ridge_errors(imputer, [ridge])[0] for ridge in RIDGES}
        imputer.ridge = min(ridges, key=ridges.get)
        assert imputer.ridge != 0.05
        total = held_out.errors(imputer).sum(axis=1)
        squared, squares, _ = total[:, [0, 11]]
        table = model.region_errors(others.cohort, hidden=["R00", "R11"])
        pooled = pooled_errors(table, "region").query("predictor == 'gaussian'")
        assert np.allclose(pooled["r2"], 1 - squared / squares, atol=1e-5)

    def test_networks_stand_beside_the_regions(self, make_cohort):
        cohort = make_cohort(n_subjects=3)
        networks = np.repeat(["A", "B", "C", "D"], 5)
        cohort = replace(cohort, regions=cohort.regions.assign(yeo7=networks, x=0.0, y=0.0, z=0.0))
        fitted = MaskedRegionModel(**OPTIONS, epochs=1, random_state=0).fit(cohort)
        table = fitted.region_errors(cohort)
        assert dict(zip(table["region"], table["yeo7"], strict=True))["R07"] == "B"
        assert "x" not in table


@pytest.fixture
def holed_derivative(tmp_path, cohort):
    """Six subjects: 05 lacks two regions and a column, 01 a few TRs; 06 is complete."""
    folder = tmp_path / "data"
    for run in cohort:
        table = pd.DataFrame(run.values, columns=list(run.regions))
        if run.subject == "05":
            table = table.assign(R03=np.nan, R08=0.0).drop(columns="R19")
        if run.subject == "01":
            table.loc[3:5, "R07"] = np.nan
        stem = folder / f"sub-{run.subject}/func/sub-{run.subject}_task-rest_desc-clean_timeseries"
        stem.parent.mkdir(parents=True)
        table.to_csv(stem.with_suffix(".tsv"), sep="\t", index=False, na_rep="n/a")
        stem.with_suffix(".json").write_text(json.dumps({"RepetitionTime": run.tr}))
    return folder


@pytest.mark.filterwarnings("ignore:.*no known atlas has these names")
class TestImputeBids:
    def test_what_is_written(self, folder, holed_derivative, tmp_path):
        done = impute_bids(folder.path, holed_derivative, output_dir=tmp_path / "out")
        assert (done.n_runs, done.n_filled, done.n_left_out) == (6, 2, 0)
        names = sorted(path.name for path in (tmp_path / "out").rglob("*_timeseries.tsv"))
        assert names == [
            "sub-01_task-rest_desc-imputed_timeseries.tsv",
            "sub-05_task-rest_desc-imputed_timeseries.tsv",
        ]
        table = pd.read_csv(tmp_path / "out/imputation.tsv", sep="\t", dtype={"subject": str})
        rows = table.set_index(["subject", "region"])
        assert rows["n_filled_trs"].to_dict() == {
            ("01", "R07"): 3, ("05", "R03"): 80, ("05", "R08"): 80, ("05", "R19"): 80,
        }  # fmt: skip
        # Only subject 06 is complete and was not trained on.
        assert set(table["estimate"]) == {"complete_runs"}
        assert set(table["n_subjects"]) == {1}
        assert rows.loc["05", "mask_ratio"].unique() == [0.15]
        sidecar = json.loads(
            (tmp_path / "out/sub-05/func/sub-05_task-rest_desc-imputed_timeseries.json").read_text()
        )
        assert sidecar["RepetitionTime"] == 0.72
        assert sidecar["ImputedRegions"]["R03"]["FilledVolumes"] == 80
        assert sidecar["ImputedRegions"]["R03"]["R2"] == round(rows.at[("05", "R03"), "r2"], 4)
        assert sidecar["R2Source"].startswith("Complete runs of 1 subject that")

    def test_values_are_those_of_impute_and_are_read_back(
        self, folder, model, holed_derivative, tmp_path
    ):
        impute_bids(folder.path, holed_derivative, output_dir=tmp_path / "out")
        expected = model.impute(load_bids(holed_derivative, keep_missing=True))
        read = {run.subject: run for run in load_bids(tmp_path / "out")}
        for run in expected:
            if run.subject in read:
                other = read[run.subject].select(run.regions)
                assert np.allclose(other.values, run.values, rtol=1e-5, atol=1e-6)
        assert set(read) == {"01", "05"}

    def test_r2_is_that_of_the_same_regions_hidden_in_others(
        self, folder, model, cohort, holed_derivative, tmp_path
    ):
        done = impute_bids(folder.path, holed_derivative, output_dir=tmp_path / "out")
        errors = model.region_errors(
            cohort.select_subjects(["06"]), hidden=["R03", "R08", "R19"]
        ).set_index(["predictor", "region"])["r2"]
        rows = done.table[done.table["subject"] == "05"].set_index("region")
        assert np.allclose(rows["r2"], errors["model"][rows.index], atol=1e-4)
        assert np.allclose(rows["r2_gaussian"], errors["gaussian"][rows.index], atol=1e-4)

    def test_without_complete_runs_the_test_subjects_speak(
        self, train_small, holed_derivative, tmp_path
    ):
        subjects = {"test_subjects": ["05"], "validation_subjects": ["06"]}
        (fit,) = train_small(**subjects)
        done = impute_bids(fit.path, holed_derivative, output_dir=tmp_path / "filled")
        assert set(done.table["estimate"]) == {"test_subjects"}
        assert set(done.table["mask_ratio"]) == {0.5}
        errors = fit.region_errors.set_index(["predictor", "region"])["r2"]
        rows = done.table.set_index("region")
        assert np.allclose(rows["r2"], errors["model"][rows.index])
        assert np.allclose(rows["r2_gaussian"], errors["gaussian"][rows.index])

    def test_nothing_is_claimed_that_was_not_measured(self, model, holed_derivative, tmp_path):
        model.save(tmp_path / "model")
        for file in (holed_derivative / "sub-06/func").iterdir():
            file.unlink()
        done = impute_bids(tmp_path / "model", holed_derivative, output_dir=tmp_path / "out")
        assert set(done.table["estimate"]) == {"none"}
        assert done.table[["r2", "r2_gaussian", "mask_ratio"]].isna().all(axis=None)
        text = (tmp_path / "out/imputation.tsv").read_text()
        assert "\tnone\tn/a\tn/a\tn/a\t0\t0\n" in text

    def test_a_run_that_cannot_be_filled_is_left_out(self, folder, holed_derivative, tmp_path):
        file = holed_derivative / "sub-02/func/sub-02_task-rest_desc-clean_timeseries.tsv"
        table = pd.read_csv(file, sep="\t")
        (table * np.nan).to_csv(file, sep="\t", index=False, na_rep="n/a")
        with pytest.warns(UserWarning, match="sub-02.*none of the model's 20 regions.*left out"):
            done = impute_bids(folder.path, holed_derivative, output_dir=tmp_path / "out")
        assert (done.n_filled, done.n_left_out) == (2, 1)

    def test_nothing_missing(self, folder, small_derivative, tmp_path):
        done = impute_bids(folder.path, small_derivative, output_dir=tmp_path / "out")
        assert (done.n_filled, len(done.table)) == (0, 0)
        text = (tmp_path / "out/imputation.tsv").read_text()
        assert text.startswith("subject\tfile\tregion\t")

    def test_places_that_are_refused(self, folder, small_derivative, tmp_path):
        with pytest.raises(InputError, match="is the --bids-dir"):
            impute_bids(folder.path, small_derivative, output_dir=small_derivative)
        (tmp_path / "imputation.tsv").write_text("")
        with pytest.raises(InputError, match="holds an earlier imputation"):
            impute_bids(folder.path, small_derivative, output_dir=tmp_path)

    def test_of_several_atlases_that_of_the_model_is_taken(
        self, make_derivative, write_series, tmp_path
    ):
        data = make_derivative(("01", "02"))
        MaskedRegionModel(**OPTIONS, epochs=1).fit(load_bids(data)).save(tmp_path / "model")
        gordon = atlases.load("Gordon").regions["name"]
        for file in sorted(data.rglob("*_timeseries.tsv")):
            write_series(Path(str(file).replace("Glasser", "Gordon")), names=gordon)
        with pytest.raises(InputError, match="found 2 atlases"):
            load_bids(data)
        done = impute_bids(tmp_path / "model", data, output_dir=tmp_path / "out")
        assert (done.n_runs, done.n_filled) == (2, 0)
        with pytest.raises(InputError, match="no region time series of atlas 'Power'"):
            impute_bids(
                tmp_path / "model", data, output_dir=tmp_path / "b", filters={"atlas": "Power"}
            )
