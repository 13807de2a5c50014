"""Tables and JSON are complete under their name, or not there."""

import errno
import json
import os
import stat

import numpy as np
import pandas as pd
import pytest

from neuro_pe.derivatives import (
    atomic_path,
    read_table,
    write_dataset_description,
    write_json,
    write_table,
)


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    file = tmp_path / "a.tsv"
    file.write_text("old")
    with pytest.raises(UnicodeEncodeError), atomic_path(file) as temporary:
        temporary.write_text("half" * 10_000 + "\udc80", encoding="utf-8")
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


def test_the_file_appears_at_once(tmp_path):
    file = tmp_path / "a.tsv"
    with atomic_path(file) as temporary:
        temporary.write_text("new")
        assert not file.exists()
        assert temporary.suffix == ".tsv"
    assert file.read_text() == "new"


def test_files_get_the_permissions_of_the_umask(tmp_path):
    before = os.umask(0o027)
    try:
        write_json({}, tmp_path / "a.json")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a.json").stat().st_mode) == 0o640


def test_an_error_without_a_file_name_gets_one(tmp_path):
    with pytest.raises(OSError, match="full") as caught, atomic_path(tmp_path / "a.tsv"):
        raise OSError(errno.ENOSPC, "full")
    assert caught.value.filename == str(tmp_path / "a.tsv")


def test_missing_folder(tmp_path):
    with pytest.raises(FileNotFoundError):
        write_json({}, tmp_path / "nowhere" / "a.json")


def test_labels_that_look_like_something_else_come_back(tmp_path):
    labels = ["01", "1", "NA", "None", "nan", "n/a", "null", "TRUE", " a b ", 'q"uote', "a\tb", "é"]
    table = pd.DataFrame({"name": labels, "value": np.arange(12) / 7})
    write_table(table, tmp_path / "t.tsv")
    back = read_table(tmp_path / "t.tsv")
    assert back["name"].tolist() == labels
    assert np.allclose(back["value"], table["value"], rtol=1e-6)


@pytest.mark.parametrize("column", ["name", "subject", "region", "source"])
def test_every_label_column_is_text(tmp_path, column):
    write_table(pd.DataFrame({column: ["001", "002"]}), tmp_path / "t.tsv")
    assert read_table(tmp_path / "t.tsv")[column].tolist() == ["001", "002"]


def test_missing_numbers_are_written_as_n_a(tmp_path):
    table = pd.DataFrame({"epoch": pd.array([1, None], dtype="Int64"), "mse": [0.5, np.nan]})
    write_table(table, tmp_path / "t.tsv")
    assert (tmp_path / "t.tsv").read_text() == "epoch\tmse\n1\t0.5\nn/a\tn/a\n"
    assert read_table(tmp_path / "t.tsv")["mse"].isna().tolist() == [False, True]


def test_an_index_comes_back_as_text(tmp_path):
    table = pd.DataFrame({"a": [1.0, 2.0]}, index=pd.Index(["01", "NA"], name="region"))
    write_table(table, tmp_path / "t.tsv", index=True)
    back = read_table(tmp_path / "t.tsv", index="region")
    assert back.index.tolist() == ["01", "NA"]
    assert back["a"].tolist() == [1.0, 2.0]


def test_dataset_description_is_that_of_a_derivative(tmp_path):
    write_dataset_description(tmp_path, name="Models", sources=["/data/xcp_d"])
    content = json.loads((tmp_path / "dataset_description.json").read_text())
    assert set(content) == {
        "Name",
        "BIDSVersion",
        "DatasetType",
        "GeneratedBy",
        "SourceDatasets",
    }
    assert content["DatasetType"] == "derivative"
    assert content["GeneratedBy"][0]["Version"]


def test_sources_of_earlier_fits_stay(tmp_path):
    for source in ("/data/a", "/data/b", "/data/a"):
        write_dataset_description(tmp_path, name="Models", sources=[source])
    content = json.loads((tmp_path / "dataset_description.json").read_text())
    assert content["SourceDatasets"] == [{"URL": "/data/a"}, {"URL": "/data/b"}]
