import numpy as np
import pytest
import torch

from neuro_pe.errors import InputError
from neuro_pe.timeseries import Cohort, RegionTimeSeries
from neuro_pe.windows import Split, WindowSource, split_subjects

SUBJECTS = [f"{number:02d}" for number in range(1, 21)]


def make_cohort(rng, lengths):
    runs = [
        RegionTimeSeries(
            values=rng.normal(size=(length, 3)), regions=("a", "b", "c"), subject=str(number)
        )
        for number, length in enumerate(lengths)
    ]
    return Cohort.from_runs(runs)


def test_split_by_share_number_and_name():
    split = split_subjects(SUBJECTS, test=0.2, validation=3)
    assert (len(split.train), len(split.validation), len(split.test)) == (13, 3, 4)
    named = split_subjects(SUBJECTS, test=["sub-17", "18"], validation=2)
    assert named.test == ("17", "18")
    assert not set(named.validation) & {"17", "18"}
    assert sorted(split.train + split.validation + split.test) == SUBJECTS


def test_split_depends_on_its_seed_only():
    split = split_subjects(SUBJECTS, test=4, validation=2)
    assert split == split_subjects(SUBJECTS, test=4, validation=2)
    assert split.test == split_subjects(SUBJECTS[::-1], test=4, validation=2).test
    assert split != split_subjects(SUBJECTS, test=4, validation=2, seed=1)


def test_groups_stay_together():
    families = [f"family-{number // 2}" for number in range(20)]
    split = split_subjects(SUBJECTS, test=4, validation=2, groups=families)
    for part in (split.train, split.validation, split.test):
        names = [families[SUBJECTS.index(subject)] for subject in part]
        assert all(names.count(name) == 2 for name in names)
    with pytest.raises(InputError, match=r"family-0.*test"):
        split_subjects(SUBJECTS, test=["01"], validation=0, groups=families)


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"test": ["99"], "validation": 0}, "--test-subjects: no data of subject '99'"),
        ({"test": 20, "validation": 0}, "none is left to train on"),
        ({"test": 1.5, "validation": 0}, "--test-subjects: found 1.5"),
        ({"test": ["01"], "validation": ["01"]}, "subject 01 is in two splits"),
    ],
)
def test_an_impossible_split_is_refused(request_, message):
    with pytest.raises(InputError, match=message):
        split_subjects(SUBJECTS, **request_)


def test_a_subject_in_two_splits_is_an_error():
    with pytest.raises(InputError, match="subject b is in two splits"):
        Split(train=("a", "b"), test=("b",))


def test_windows_are_cut_from_standardized_runs(rng):
    source = WindowSource(make_cohort(rng, [25, 40]), window=10)
    windows = source.evaluation_windows()
    assert windows.tolist() == [[0, 0], [0, 10], [1, 0], [1, 10], [1, 20], [1, 30]]
    values = source.gather(windows)  # (window, region, time)
    assert values.shape == (6, 3, 10)
    run = source.cohort[1].values
    expected = (run - run.mean(axis=0)) / run.std(axis=0)
    np.testing.assert_allclose(values[4], expected[20:30].T, rtol=1e-5, atol=1e-6)


def test_a_stride_below_the_window_makes_windows_overlap(rng):
    source = WindowSource(make_cohort(rng, [25]), window=10, stride=4)
    assert source.evaluation_windows()[:, 1].tolist() == [0, 4, 8, 12]
    first = {
        min(source.training_windows(torch.Generator().manual_seed(seed))[:, 1].tolist())
        for seed in range(40)
    }
    assert first == {0, 1, 2, 3}


def test_training_windows_start_anywhere_and_never_overlap(rng):
    source = WindowSource(make_cohort(rng, [25, 47]), window=10)
    generator = torch.Generator().manual_seed(0)
    offsets = set()
    for _ in range(60):
        windows = source.training_windows(generator)
        for run, length in enumerate([25, 47]):
            starts = sorted(start for number, start in windows.tolist() if number == run)
            assert starts[-1] + 10 <= length
            assert all(np.diff(starts) == 10)
            offsets.add((run, starts[0]))
    # Every first TR is met: up to the spare TRs of the short run, below a window in the long one.
    assert offsets == {(0, k) for k in range(10)} | {(1, k) for k in range(10)}


def test_a_run_shorter_than_the_window_is_left_out(rng):
    cohort = make_cohort(rng, [9, 40])
    with pytest.warns(UserWarning, match="subject 0: left out, 9 TRs"):
        source = WindowSource(cohort, window=10)
    assert source.subjects == ["1"]
    with pytest.raises(InputError, match=r"window of 50 TRs \(the longest has 40\)"):
        WindowSource(cohort, window=50)
