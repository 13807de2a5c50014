import io

import pandas as pd
import pytest

from neuro_pe import atlases
from neuro_pe.cli import main


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as done:
        main(["atlases", *arguments])
    captured = capsys.readouterr()
    return done.value.code, captured.out, captured.err


def read_table(text):
    return pd.read_csv(io.StringIO(text), sep="\t", keep_default_na=False, na_values=["n/a"])


def test_list(capsys):
    code, out, _ = run(capsys, "list")
    assert code == 0
    assert len(out.splitlines()) == 1 + len(atlases.available())
    assert "Schaefer2018_1000" in out
    assert "MIT (CBIG)" in out


def test_show_prints_the_region_table(capsys):
    code, out, _ = run(capsys, "show", "4S156Parcels")
    assert code == 0
    pd.testing.assert_frame_equal(read_table(out), atlases.load("4S156Parcels").regions)


def test_show_partition_prints_a_partition_file(capsys, tmp_path):
    code, out, _ = run(capsys, "show", "Glasser", "--partition", "yeo7")
    assert code == 0
    assert out.splitlines()[:2] == ["name\tnetwork", "L_V1\tVis"]
    path = tmp_path / "yeo7.tsv"
    path.write_text(out)
    expected = atlases.load("Glasser").partition("yeo7")
    pd.testing.assert_series_equal(atlases.read_partition(path), expected, check_dtype=False)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["show", "Atlantis"], "'Atlantis' is not known"),
        (["show", "Gordon", "--partition", "yeo7"], "Gordon2014_333 has gordon"),
    ],
)
def test_mistake_is_one_line(capsys, arguments, message):
    code, out, err = run(capsys, *arguments)
    assert code == 2
    assert out == ""
    assert len(err.splitlines()) == 1
    assert message in err


@pytest.mark.parametrize("arguments", [["list"], ["show"]])
def test_help_has_an_example(capsys, arguments):
    code, out, _ = run(capsys, *arguments, "--help")
    assert code == 0
    assert f"neuro-pe atlases {arguments[0]}" in out
