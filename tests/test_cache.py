"""The cache gives what the files give, and nothing else: stale or damaged, it is made anew."""

import json
import os
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from neuro_pe import load_bids
from neuro_pe.errors import InputError
from neuro_pe.timeseries import Cohort, RegionTimeSeries


@pytest.fixture
def folder(make_derivative):
    return make_derivative()


def load(folder, cache, **options):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        cohort = load_bids(folder, cache_dir=cache, **options)
    return cohort, [str(warning.message) for warning in caught]


def assert_same(first: Cohort, second: Cohort):
    assert first.fingerprint() == second.fingerprint()
    assert first.atlas == second.atlas
    pd.testing.assert_frame_equal(first.regions, second.regions)
    pd.testing.assert_frame_equal(first.dropped, second.dropped)
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one.values, other.values)
        for name in ("regions", "subject", "session", "task", "run", "tr", "source"):
            assert getattr(one, name) == getattr(other, name)


def test_the_cache_gives_what_the_files_give(folder, tmp_path, monkeypatch):
    plain = load(folder, None)[0]
    assert_same(plain, load(folder, tmp_path / "cache")[0])
    # The second time no series is read.
    monkeypatch.setattr("neuro_pe.bids.read_series", None)
    again, _ = load(folder, tmp_path / "cache")
    assert_same(plain, again)
    base = again[0].values
    while isinstance(base, np.ndarray):
        base = base.base
    assert type(base).__name__ == "mmap"
    assert not again[0].values.flags.writeable


def test_a_changed_source_is_read_anew(folder, tmp_path):
    load(folder, tmp_path / "cache")
    path = next(folder.rglob("*sub-02*.tsv"))
    table = pd.read_csv(path, sep="\t")
    (table + 1).to_csv(path, sep="\t", index=False)
    cohort, messages = load(folder, tmp_path / "cache")
    assert any("its source has changed; the cache is made anew" in text for text in messages)
    assert_same(cohort, load(folder, None)[0])
    assert not load(folder, tmp_path / "cache")[1]


def test_a_sidecar_and_a_new_subject_are_sources_too(folder, make_derivative, tmp_path):
    load(folder, tmp_path / "cache")
    sidecar = next(folder.rglob("*sub-01*.json"))
    for path in folder.rglob("*.json"):
        path.write_text(json.dumps({"RepetitionTime": 2.5}))
        os.utime(path, ns=(1, sidecar.stat().st_mtime_ns + 1))
    assert load(folder, tmp_path / "cache")[0].tr == 2.5
    make_derivative(("04",), tr=2.5)
    assert load(folder, tmp_path / "cache")[0].subjects == ["01", "02", "03", "04"]
    assert len(list((tmp_path / "cache").glob("*.float32"))) == 1


@pytest.mark.parametrize("damage", ["value", "short", "gone", "index", "labels"])
def test_a_damaged_cache_is_made_anew(folder, tmp_path, damage):
    cache = tmp_path / "cache"
    load(folder, cache)
    (values,), (index,) = cache.glob("*.float32"), cache.glob("*.json")
    content = bytearray(values.read_bytes())
    if damage == "value":
        content[100] ^= 1
        values.write_bytes(content)
    elif damage == "short":
        values.write_bytes(content[:-8])
    elif damage == "gone":
        values.unlink()
    elif damage == "index":
        index.write_text(index.read_text()[:-40])
    else:
        swapped = index.read_text().replace('"L_V1"', '"?"').replace('"R_V1"', '"L_V1"')
        index.write_text(swapped.replace('"?"', '"R_V1"'))
    cohort, messages = load(folder, cache)
    assert sum("it is damaged; the cache is made anew" in text for text in messages) == 1
    assert_same(cohort, load(folder, None)[0])
    assert not load(folder, cache)[1]


@pytest.mark.parametrize("place", ["file", "file/below"])
def test_a_place_that_is_no_folder(folder, tmp_path, place):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=f"--cache-dir {tmp_path / place}: .*; expected a folder"):
        load(folder, tmp_path / place)


def test_other_questions_have_other_caches(folder, tmp_path):
    whole, _ = load(folder, tmp_path)
    part, _ = load(folder, tmp_path, subjects=["01", "03"])
    assert part.subjects == ["01", "03"]
    assert load(folder, tmp_path)[0].subjects == whole.subjects


def test_what_was_left_out_is_said_each_time(make_derivative, write_series, glasser, tmp_path, rng):
    folder = make_derivative()
    path = next(folder.rglob("*sub-02*.tsv"))
    table = pd.read_csv(path, sep="\t")
    table[table.columns[3]] = 7.0
    table.to_csv(path, sep="\t", index=False)
    plain, expected = load(folder, None)
    assert len(plain.dropped) == 1
    for _ in range(2):
        cohort, messages = load(folder, tmp_path / "cache")
        assert messages == expected
        assert_same(plain, cohort)


def test_nothing_is_left_when_the_source_cannot_be_used(folder, tmp_path):
    next(folder.rglob("*sub-03*.tsv")).write_text("L_V1\tR_V1\n1\tx\n")
    with pytest.raises(InputError):
        load(folder, tmp_path / "cache")
    assert not list((tmp_path / "cache").iterdir())


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_of_a_mapped_cohort_is_let_go(tmp_path):
    """Reading all values of a mapped file leaves none of it resident."""
    path = tmp_path / "values"
    np.random.default_rng(0).normal(size=(4_000_000,)).astype(np.float32).tofile(path)
    values = np.memmap(path, dtype=np.float32, mode="r", shape=(40_000, 100))
    run = RegionTimeSeries(
        values=values, regions=tuple(str(number) for number in range(100)), subject="1"
    )

    def resident():
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("RssFile"))

    run.release()
    before = resident()
    total = run.values.sum()
    assert resident() - before > 10
    run.release()
    assert resident() - before < 2
    assert run.values.sum() == total
