import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.preprocessing import StandardScaler

from neuro_pe import Cohort, InputError, RegionTimeSeries
from neuro_pe.timeseries import standardize

NAMES = [f"region_{number}" for number in range(40)]


@pytest.fixture
def make_run(rng):
    """Make a run with noise in every region, or with the values given."""

    def make(subject="01", *, values=None, names=NAMES, tr=2.0, **options):
        if values is None:
            values = rng.normal(size=(30, len(names)))
        return RegionTimeSeries(values=values, regions=names, tr=tr, subject=subject, **options)

    return make


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.zeros(40), r"expected a \(time, region\) array, found shape \(40,\)"),
        (np.zeros((2, 30, 40)), r"found shape \(2, 30, 40\)"),
        (np.zeros((0, 40)), r"found shape \(0, 40\)"),
        (np.zeros((30, 39)), "39 columns but 40 region names"),
        (np.full((30, 40), "1.0"), "expected numbers, found an array of <U3"),
        (np.zeros((30, 40), dtype=complex), "expected numbers, found an array of complex128"),
    ],
)
def test_arrays_that_are_no_series(make_run, values, message):
    with pytest.raises(InputError, match=message):
        make_run(values=values)


def test_messages_name_the_file_else_the_subject(make_run):
    with pytest.raises(InputError, match=r"^subject 07: "):
        make_run("07", values=np.zeros(3))
    with pytest.raises(InputError, match=r"^sub-07\.tsv: "):
        make_run("07", values=np.zeros(3), source="sub-07.tsv")


def test_region_names_must_not_repeat(make_run):
    with pytest.raises(InputError, match=r"region names repeat \(region_0\)"):
        make_run(names=[*NAMES[:-1], "region_0"])


@pytest.mark.parametrize("tr", [0, -2.0, np.nan, np.inf])
def test_repetition_time_must_be_positive(make_run, tr):
    with pytest.raises(InputError, match=r"repetition time .* expected a positive number"):
        make_run(tr=tr)


def test_regions_without_signal_are_named_with_the_reason(make_run, rng):
    values = 1e4 + rng.normal(size=(30, 40))
    values[:, 1] = np.nan
    values[3, 2] = np.inf
    values[:, 3] = 0
    values[:, 4] = 1e4
    assert make_run(values=values).unusable_regions() == {
        "region_1": "not finite",
        "region_2": "not finite at 1 of 30 volumes",
        "region_3": "constant",
        "region_4": "constant",
    }


def test_a_weak_signal_on_a_large_mean_is_a_signal(make_run, rng):
    values = (1e4 + rng.normal(size=(30, 40))).astype(np.float32)
    assert make_run(values=values).unusable_regions() == {}


def test_select_takes_regions_in_the_order_asked_for(make_run):
    run = make_run(session="a", run="1")
    chosen = run.select(["region_5", "region_2"])
    np.testing.assert_array_equal(chosen.values, run.values[:, [5, 2]])
    assert (chosen.regions, chosen.session, chosen.run) == (("region_5", "region_2"), "a", "1")


def test_standardize_is_scikit_learns_scaler(rng):
    values = 1e4 + rng.normal(size=(50, 7)) * np.arange(1, 8)
    expected = StandardScaler().fit_transform(values)
    assert standardize(values).dtype == np.float32
    np.testing.assert_allclose(standardize(values), expected, atol=1e-5)


def test_standardized_run_keeps_its_labels(make_run):
    run = make_run("07", source="x").standardized()
    assert (run.subject, run.source, run.tr, run.regions) == ("07", "x", 2.0, tuple(NAMES))
    np.testing.assert_allclose(run.values.std(axis=0), 1, rtol=1e-5)


def test_cohort_brings_columns_into_one_order(make_run):
    one = make_run("01")
    two = make_run("02", names=NAMES[::-1])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cohort = Cohort.from_runs([one, two])
    assert cohort.region_names == NAMES
    np.testing.assert_array_equal(cohort[1].values, two.values[:, ::-1])


def test_the_region_table_sets_the_order(make_run):
    table = pd.DataFrame({"name": NAMES[::-1], "x": range(40), "y": 0.0, "z": 0.0})
    cohort = Cohort.from_runs([make_run()], regions=table)
    assert cohort.region_names == NAMES[::-1]
    assert cohort.coordinates[:2, 0].tolist() == [0, 1]


def test_coordinates_are_none_unless_every_region_has_them(make_run):
    assert Cohort.from_runs([make_run()]).coordinates is None
    table = pd.DataFrame({"name": NAMES, "x": [np.nan, *range(39)], "y": 0.0, "z": 0.0})
    assert Cohort.from_runs([make_run()], regions=table).coordinates is None


def test_regions_that_one_run_lacks_go_for_everybody(make_run, rng):
    values = rng.normal(size=(30, 40))
    values[:, 3] = np.nan
    values[:, 7] = 1
    earlier = pd.DataFrame({"name": ["GlobSig"], "reason": ["no region"]})
    runs = [make_run("01"), make_run("02", values=values, source="two")]
    with pytest.warns(UserWarning, match=r"2 of 40 regions left out.*region_3, not finite in two"):
        cohort = Cohort.from_runs(runs, dropped=earlier)
    kept = [name for name in NAMES if name not in ("region_3", "region_7")]
    assert cohort.region_names == kept
    assert cohort.regions["name"].tolist() == kept
    assert all(run.n_regions == 38 for run in cohort)
    np.testing.assert_array_equal(cohort[0].values[:, 3], runs[0].values[:, 4])
    assert cohort.dropped.to_numpy().tolist() == [
        ["GlobSig", "no region"],
        ["region_3", "not finite in two"],
        ["region_7", "constant in two"],
    ]


def test_a_run_that_lacks_many_regions_is_left_out(make_run, rng):
    values = rng.normal(size=(30, 40))
    values[5] = np.nan
    runs = [make_run("01"), make_run("02", values=values), make_run("03")]
    with pytest.warns(UserWarning, match=r"subject 02: left out, 40 of 40.*at 1 of 30 volumes"):
        cohort = Cohort.from_runs(runs)
    assert cohort.subjects == ["01", "03"]
    assert cohort.region_names == NAMES


def test_regions_that_every_run_lacks_count_against_none(make_run, rng):
    runs = []
    for subject in ("01", "02"):
        values = rng.normal(size=(30, 40))
        values[:, :10] = np.nan
        runs.append(make_run(subject, values=values))
    with pytest.warns(UserWarning, match="10 of 40 regions left out for everybody"):
        cohort = Cohort.from_runs(runs)
    assert cohort.subjects == ["01", "02"]
    assert cohort.region_names == NAMES[10:]


def test_nothing_left_is_an_error(make_run, rng):
    with pytest.raises(InputError, match="no runs were given"):
        Cohort.from_runs([])
    empty = np.full((30, 40), np.nan)
    with (
        pytest.warns(UserWarning, match="40 of 40"),
        pytest.raises(InputError, match="no region has a signal in every run"),
    ):
        Cohort.from_runs([make_run(values=empty)])
    first, second = rng.normal(size=(2, 30, 40))
    first[:, :20] = second[:, 20:] = np.nan
    with (
        pytest.warns(UserWarning, match="left out, 20 of 40"),
        pytest.raises(InputError, match="no run has a signal in at least 95%"),
    ):
        Cohort.from_runs([make_run("01", values=first), make_run("02", values=second)])


def test_runs_with_other_regions_are_refused(make_run):
    with pytest.raises(InputError, match=r"39 regions where subject 01 has 40 .*lacks 'region_39'"):
        Cohort.from_runs([make_run("01"), make_run("02", names=NAMES[:-1])])
    with pytest.raises(InputError, match="has 'other' in addition"):
        Cohort.from_runs([make_run("01"), make_run("02", names=[*NAMES, "other"])])


def test_repetition_times_must_agree(make_run):
    unknown = make_run("00", tr=None)
    assert Cohort.from_runs([unknown, make_run("01", tr=2.0), make_run("02", tr=2.001)]).tr == 2.0
    assert Cohort.from_runs([unknown]).tr is None
    with pytest.raises(InputError, match=r"repetition time 0\.8 s where subject 01 has 2 s"):
        Cohort.from_runs([unknown, make_run("01", tr=2.0), make_run("02", tr=0.8)])


def test_cohort_is_a_sequence_of_runs_by_subject(make_run):
    runs = [make_run("b", run="1"), make_run("a"), make_run("b", run="2")]
    cohort = Cohort.from_runs(runs)
    assert [run.subject for run in cohort] == ["b", "a", "b"]
    assert cohort.subjects == ["b", "a"]
    assert len(cohort.select_subjects(["b"])) == 2
    assert cohort.select_subjects(["b"]).subjects == ["b"]


def test_functional_connectivity_weighs_subjects_equally(make_run):
    runs = [make_run("a", names=NAMES[:3]) for _ in range(3)] + [make_run("b", names=NAMES[:3])]
    table = Cohort.from_runs(runs).functional_connectivity()
    of_a = np.mean([pd.DataFrame(run.values).corr().to_numpy() for run in runs[:3]], axis=0)
    expected = (of_a + pd.DataFrame(runs[3].values).corr().to_numpy()) / 2
    np.testing.assert_allclose(table.to_numpy(), expected)
    assert table.index.tolist() == table.columns.tolist() == NAMES[:3]
