"""A trained model on the data of others: loading it, which regions of theirs are its own."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import neuro_pe as npe
from neuro_pe import InputError, MaskedRegionModel, RegionTimeSeries
from neuro_pe.settings import ENCODINGS
from neuro_pe.timeseries import Cohort

OPTIONS = {
    "width": 16,
    "heads": 2,
    "layers": 1,
    "window": 10,
    "batch_size": 8,
    "epochs": 1,
    "mask_ratio": 0.5,
    "test_mask_ratio": 0.5,
    "device": "cpu",
    "random_state": 0,
}


@pytest.fixture(scope="module")
def placed(make_cohort):
    """The small cohort, each region with a place in the brain."""
    cohort = make_cohort(n_subjects=3)
    places = np.random.default_rng(1).uniform(-60, 60, size=(20, 3))
    axes = dict(zip("xyz", places.T, strict=True))
    return replace(cohort, regions=cohort.regions.assign(**axes))


@pytest.fixture(scope="module")
def model(placed):
    return MaskedRegionModel(**OPTIONS).fit(placed)


class TestFromPretrained:
    def test_is_load(self, model, placed, tmp_path):
        model.save(tmp_path / "models" / "one")
        for path in ("models/one", "models"):
            for load in (npe.from_pretrained, MaskedRegionModel.load):
                loaded = load(tmp_path / path)
                assert isinstance(loaded, MaskedRegionModel)
                assert loaded.score(placed) == model.score(placed)

    def test_several_are_listed(self, model, tmp_path):
        model.save(tmp_path / "one")
        model.save(tmp_path / "two")
        with pytest.raises(InputError, match=r"holds 2 models \(one, two\); give the folder"):
            npe.from_pretrained(tmp_path)

    def test_none(self, tmp_path):
        with pytest.raises(InputError, match="no model folder in it"):
            npe.from_pretrained(tmp_path)


class TestOtherData:
    @pytest.mark.parametrize("encoding", [name for name in ENCODINGS if "2d" not in name])
    def test_embeddings_follow_the_names_with_every_encoding(self, placed, tmp_path, encoding):
        MaskedRegionModel(**OPTIONS, encoding=encoding).fit(placed).save(tmp_path / "model")
        model = npe.from_pretrained(tmp_path / "model")
        order = np.random.default_rng(0).permutation(20)
        names = [placed.region_names[number] for number in order]
        turned = replace(
            placed,
            runs=tuple(run.select(names) for run in placed),
            regions=placed.regions.iloc[order].reset_index(drop=True),
        )
        embedded = model.transform(placed)
        assert embedded.shape == (3, 20, 16)
        assert np.isfinite(embedded).all()
        assert np.array_equal(model.transform(turned), embedded)

    def test_another_folder_of_the_same_atlas(self, make_derivative, glasser, tmp_path, rng):
        data = npe.load_bids(make_derivative())
        model = MaskedRegionModel(**OPTIONS).fit(data)
        # Columns in another order, with one more, under another spelling.
        names = [f"{name}_ROI" for name in glasser]
        values = {run.subject: run.values for run in data}
        order = rng.permutation(len(names))
        other = tmp_path / "other"
        for subject, table in values.items():
            file = other / f"sub-{subject}/func/sub-{subject}_atlas-Glasser_timeseries.tsv"
            file.parent.mkdir(parents=True)
            frame = pd.DataFrame(table, columns=names).iloc[:, order]
            frame.insert(0, "GlobSig", 1.0)
            frame.to_csv(file, sep="\t", index=False)
        with pytest.warns(UserWarning, match="GlobSig|repetition time"):
            theirs = npe.load_bids(other)
        assert np.allclose(model.transform(theirs), model.transform(data), atol=1e-4)

    def test_same_names_elsewhere_are_refused(self, model, placed):
        moved = placed.regions.copy()
        moved.loc[4, "x"] += 30
        with pytest.raises(InputError, match=r"region R04 .* is 30 mm from the model's"):
            model.transform(replace(placed, regions=moved))
        with pytest.raises(InputError, match="R04"):
            model.impute(replace(placed, regions=moved))
        near = placed.regions.assign(x=placed.regions["x"] + 3)
        assert model.transform(replace(placed, regions=near)).shape == (3, 20, 16)

    def test_schaefer_100_is_not_schaefer_200(self, rng):
        def cohort(atlas):
            regions = npe.atlases.load(atlas).regions
            run = RegionTimeSeries(
                values=rng.normal(size=(40, len(regions))),
                regions=list(regions["name"]),
                subject="1",
            )
            return Cohort.from_runs([run], regions=regions, atlas=atlas)

        hundred, two_hundred = cohort("Schaefer2018_100"), cohort("Schaefer2018_200")
        with_names = set(hundred.region_names) & set(two_hundred.region_names)
        assert len(with_names) > 90  # names alone would not tell
        small = hundred.regions["name"].isin(with_names)
        names = list(hundred.regions["name"][small])
        fitted = MaskedRegionModel(**OPTIONS).fit(
            replace(hundred, runs=(hundred[0].select(names),), regions=hundred.regions[small])
        )
        with pytest.raises(InputError, match=r"mm from the model's.*atlas that the model was"):
            fitted.transform(two_hundred)

    def test_another_repetition_time_is_told(self, model, placed):
        slow = replace(placed, runs=tuple(replace(run, tr=2.0) for run in placed))
        with pytest.warns(UserWarning, match=r"2 s where the model was fitted at 0\.72 s"):
            model.score(slow)


class TestRunsAsTheyAre:
    """``load_bids(keep_missing=True)``."""

    @pytest.fixture
    def holed(self, make_derivative, write_series, glasser, rng):
        folder = make_derivative(("01", "02"))
        values = rng.normal(size=(30, 360)).astype(np.float32)
        values[:, :40] = np.nan
        name = "sub-03/func/sub-03_task-rest_run-1_space-fsLR_atlas-Glasser_stat-mean"
        write_series(
            folder / f"{name}_timeseries.tsv", values=values[:, :350], names=glasser[:350], tr=0.72
        )
        return folder

    def test_nothing_is_left_out(self, holed, load_quietly, glasser):
        cohort = load_quietly(holed, keep_missing=True)
        assert cohort.subjects == ["01", "02", "03"]
        assert cohort.region_names == glasser
        assert cohort.regions["name"].tolist() == glasser
        assert np.isnan(cohort[2].values).all(axis=0).sum() == 50
        assert np.isfinite(cohort[0].values).all()
        assert len(cohort.dropped) == 0

    def test_by_default_all_is_as_ever(self, holed):
        with pytest.raises(InputError, match="350 columns where"):
            npe.load_bids(holed)

    def test_fitting_refuses_gaps(self, holed, load_quietly):
        cohort = load_quietly(holed, keep_missing=True)
        with pytest.raises(InputError, match=r"sub-03.*region L_V1 lacks values or is constant"):
            MaskedRegionModel(**OPTIONS).fit(cohort)

    def test_through_the_cache(self, holed, tmp_path):
        cohorts = [
            npe.load_bids(holed, keep_missing=True, cache_dir=tmp_path / "cache") for _ in range(2)
        ]
        fresh = npe.load_bids(holed, keep_missing=True)
        for cohort in cohorts:
            for one, other in zip(cohort, fresh, strict=True):
                assert np.array_equal(one.values, other.values, equal_nan=True)

    def test_without_an_atlas(self, small_derivative, tmp_path):
        table = pd.DataFrame(np.eye(12), columns=[f"R{number:02d}" for number in range(8, 20)])
        for subject, part in (("1", table), ("2", table.drop(columns="R10"))):
            file = tmp_path / f"sub-{subject}/sub-{subject}_timeseries.tsv"
            file.parent.mkdir()
            part.to_csv(file, sep="\t", index=False)
        with pytest.warns(UserWarning, match="no known atlas|no repetition time"):
            cohort = npe.load_bids(tmp_path, keep_missing=True)
        assert cohort.region_names == list(table.columns)
        assert np.isnan(cohort[1].values[:, 2]).all()
        assert np.array_equal(cohort[1].values[:, 3], table["R11"])
