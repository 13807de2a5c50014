"""Who trains, validates and tests: by share, number, name and group."""

from dataclasses import replace

import numpy as np
import pytest

from neuro_pe import InputError
from neuro_pe.experiment import split_cohort
from neuro_pe.windows import Split, split_subjects


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
        with pytest.raises(InputError, match=rf"found {len(labels)} subjects?; none is left"):
            split_subjects(labels, test=0.2, validation=0.15)

    def test_group_column_is_read_from_participants(self, make_cohort):
        cohort = make_cohort(family=["a", "a", "b", "b", "c", "c"])
        split = split_cohort(cohort, group_column="family", test_subjects=1, validation_subjects=1)
        assert {len(split.train), len(split.validation), len(split.test)} == {2}

    def test_group_column_that_is_missing(self, make_cohort):
        with pytest.raises(InputError, match=r"--group-column: no column 'site'.*found no table"):
            split_cohort(make_cohort(), group_column="site")
        with pytest.raises(InputError, match=r"no column 'site'.*found participant_id, family"):
            split_cohort(make_cohort(family=list("aabbcc")), group_column="site")
        bare = replace(make_cohort(), participants=make_cohort(x=range(6)).participants[[]])
        with pytest.raises(InputError, match=r"no column 'site'.*found participant_id\."):
            split_cohort(bare, group_column="site")

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
