"""What stands in the output folder already is kept, gone on from or refused, never touched."""

from dataclasses import replace

import pandas as pd
import pytest

from neuro_pe import InputError


def contents(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


class TestRepeated:
    def test_a_finished_fit_is_kept(self, train_small, tmp_path):
        train_small()
        before = contents(tmp_path)
        stamps = {path: path.stat().st_mtime_ns for path in before if path.parent.name != "out"}
        train_small(n_seeds=1)
        assert contents(tmp_path) == before
        assert {path: path.stat().st_mtime_ns for path in stamps} == stamps

    def test_a_seed_is_added(self, train_small):
        first = train_small()[0]
        both = train_small(n_seeds=2)
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
    def test_other_settings_are_refused(self, train_small, tmp_path, small, other, words):
        train_small()
        before = contents(tmp_path)
        with pytest.raises(InputError, match=words + r"; choose another --output-dir"):
            train_small(settings=replace(small, **other), resume=True)
        assert contents(tmp_path) == before

    def test_other_data_are_refused(self, train_small, make_cohort, tmp_path):
        train_small()
        before = contents(tmp_path)
        cohort = make_cohort()
        turned = replace(cohort[2], values=cohort[2].values[::-1])
        other = replace(cohort, runs=(*cohort[:2], turned, *cohort[3:]))
        with pytest.raises(InputError, match="seed-0: holds a fit with other data"):
            train_small(cohort=other)
        assert contents(tmp_path) == before

    def test_another_split_is_refused(self, train_small, tmp_path):
        train_small()
        before = contents(tmp_path)
        with pytest.raises(InputError, match="with other subjects in its splits"):
            train_small(test_subjects=2)
        assert contents(tmp_path) == before

    def test_nothing_is_trained_when_a_later_seed_differs(self, train_small, tmp_path, small):
        train_small(settings=replace(small, seed=1, lr=0.01))
        before = contents(tmp_path)
        with pytest.raises(InputError, match="seed-1: holds a fit with --lr"):
            train_small(n_seeds=2)
        assert contents(tmp_path) == before

    def test_an_interrupted_fit_needs_resume(self, train_small, tmp_path):
        def stop(settings, row):
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            train_small(progress=stop)
        before = contents(tmp_path)
        with pytest.raises(InputError, match=r"seed-0\.partial: an interrupted fit; add --resume"):
            train_small()
        assert contents(tmp_path) == before
        assert train_small(resume=True)[0].path.is_dir()


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
    def test_a_data_set_of_others_is_left_alone(self, train_small, tmp_path, description, owner):
        output = tmp_path / "out"
        output.mkdir()
        (output / "dataset_description.json").write_text(description)
        with pytest.raises(InputError, match=f"--output-dir .*{owner}"):
            train_small()
        assert [path.name for path in output.iterdir()] == ["dataset_description.json"]
        assert (output / "dataset_description.json").read_text() == description

    def test_a_file(self, train_small, tmp_path):
        (tmp_path / "out").write_text("mine")
        with pytest.raises(InputError, match=r"--output-dir .*found a file; expected a folder"):
            train_small()
        assert (tmp_path / "out").read_text() == "mine"

    @pytest.mark.parametrize("name", ["", ".partial"])
    def test_a_file_in_the_place_of_the_model_folder(self, train_small, tmp_path, small, name):
        output = tmp_path / "out"
        output.mkdir()
        place = output / (small.name + name)
        place.write_text("mine")
        with pytest.raises(InputError, match="seed-0"):
            train_small()
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
    def test_settings(self, train_small, tmp_path, small, settings, words):
        with pytest.raises(InputError, match=words):
            train_small(settings=replace(small, **settings))
        assert not list(tmp_path.iterdir())

    def test_one_region(self, train_small, make_cohort, tmp_path):
        with pytest.raises(InputError, match="found 1 region; expected at least 2"):
            train_small(cohort=make_cohort(n_regions=1))
        assert not list(tmp_path.iterdir())

    def test_no_seeds(self, train_small, tmp_path):
        with pytest.raises(InputError, match="--seeds: found 0"):
            train_small(n_seeds=0)
        assert not list(tmp_path.iterdir())

    def test_unknown_test_subject(self, train_small, tmp_path):
        with pytest.raises(InputError, match="no data of subject '99'"):
            train_small(test_subjects=["99"])
        assert not list(tmp_path.iterdir())
