"""``neuro-pe impute``."""

import json

import pandas as pd
import pytest

from neuro_pe.cli import main


@pytest.fixture
def impute(train_small, small_derivative, tmp_path, capsys):
    """Run the command on a copy of the small data in which a run lacks a region."""
    (fit,) = train_small(test_subjects=["05", "06"], validation_subjects=["04"])

    def run(*arguments, hole=True):
        data = tmp_path / "data"
        for file in sorted(small_derivative.rglob("*_timeseries.tsv")):
            table = pd.read_csv(file, sep="\t")
            if hole and "sub-05" in file.name:
                table["R03"] = float("nan")
            place = data / file.relative_to(small_derivative)
            place.parent.mkdir(parents=True)
            table.to_csv(place, sep="\t", index=False, na_rep="n/a")
            place.with_suffix(".json").write_text(json.dumps({"RepetitionTime": 0.72}))
        options = ["--bids-dir", str(data), "--output-dir", str(tmp_path / "filled")]
        with pytest.raises(SystemExit) as stop:
            main(["impute", str(fit.path.parent), *options, *arguments])
        return stop.value.code, capsys.readouterr()

    return run


def test_says_what_is_filled_in_and_how_good_that_is(impute, tmp_path):
    code, printed = impute()
    assert code == 0
    first, second, third, *_, last = printed.out.splitlines()
    file = "sub-05/func/sub-05_task-rest_desc-imputed_timeseries.tsv"
    assert first.startswith(f"{file}: 1 region, mean R2 ")
    assert second == "1 of 6 runs filled in; 5 lack nothing and are not written again."
    assert third.startswith("R2: measured on complete runs of other subjects (1), whom")
    assert last == f"Table: {tmp_path}/filled/imputation.tsv"
    assert (tmp_path / "filled" / file).exists()
    assert pd.read_csv(tmp_path / "filled" / file, sep="\t").notna().all(axis=None)


def test_nothing_to_do(impute, tmp_path):
    code, printed = impute(hole=False)
    assert code == 0
    assert printed.out.splitlines()[0] == (
        "0 of 6 runs filled in; 6 lack nothing and are not written again."
    )
    assert [path.name for path in (tmp_path / "filled").rglob("*_timeseries.tsv")] == []


def test_a_mistake_is_one_line(impute, tmp_path):
    code, printed = impute("--task", "motor")
    assert code == 2
    assert len([line for line in printed.err.splitlines() if line.startswith("Error")]) == 1
    assert not (tmp_path / "filled").exists()
