"""``neuro-pe train`` as it is typed: help, exit codes, one line for a mistake, what is printed."""

import io
import os
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pandas as pd
import pytest

from neuro_pe import FitSettings
from neuro_pe.cli import main
from neuro_pe.cli._options import subjects_request
from neuro_pe.settings import option_name

SCRIPT = Path(sys.executable).parent / "neuro-pe"
NAME = "encoding-learn_sigma-0.1_mask-0.5_seed-"
HEAVY = ("torch", "nilearn", "nibabel", "pandas", "numpy", "scipy", "sklearn", "matplotlib", "bct")


@pytest.fixture
def call(capsys):
    """Run a command in this process; return exit code, stdout and stderr."""

    def run(*arguments):
        with pytest.raises(SystemExit) as left:
            main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return left.value.code, captured.out, captured.err

    return run


@pytest.fixture
def train(call, small_derivative, small_options, tmp_path):
    """Train on the small derivative folder, with more options."""

    def run(*more):
        places = ["--bids-dir", small_derivative, "--output-dir", tmp_path / "out"]
        return call("train", *places, *small_options, *more)

    return run


class TestSuccess:
    def test_models_and_table(self, train, tmp_path):
        code, out, err = train("--seeds", 2)
        assert code == 0
        assert "Traceback" not in err
        assert sorted(path.name for path in (tmp_path / "out").iterdir() if path.is_dir()) == [
            f"{NAME}0",
            f"{NAME}1",
        ]
        assert out.startswith("6 subjects, 6 runs, 20 regions (no atlas known)\n")
        for predictor in ("model", "zero", "visible_mean", "gaussian", "space_time_gaussian"):
            assert f"\n{predictor} " in out
        assert "2 seeds; hidden regions of 1 unseen subjects (50% hidden)" in out
        assert f"neuro-pe compare-networks {tmp_path / 'out'}" in out

    def test_printed_errors_are_those_of_the_table(self, train, tmp_path):
        _, out, _ = train()
        table = pd.read_csv(tmp_path / "out" / f"{NAME}0" / "metrics.tsv", sep="\t")
        test = table[table["split"] == "test"].set_index("predictor")["mse"]
        for predictor, mse in test.items():
            (line,) = [line for line in out.splitlines() if line.startswith(f"{predictor} ")]
            assert float(line.split()[1]) == pytest.approx(mse, abs=6e-5)

    def test_repeated_command_prints_the_same(self, train):
        first = train()
        assert train() == first

    def test_no_test_subjects(self, train):
        code, out, _ = train("--test-subjects", 0)
        assert code == 0
        assert "no test subjects, so no test error" in out

    def test_options_arrive(self, train, tmp_path):
        code, *_ = train(
            *("--test-subjects", "sub-02,03", "--validation-subjects", "1"),
            *("--sigma", "0.3", "--optimizer", "adamw", "--seed", "5"),
        )
        assert code == 0
        name = "encoding-learn_sigma-0.3_mask-0.5_seed-5"
        subjects = pd.read_csv(tmp_path / "out" / name / "subjects.tsv", sep="\t", dtype=str)
        assert subjects.query("split == 'test'")["subject"].tolist() == ["02", "03"]
        assert (subjects["split"] == "validation").sum() == 1

    def test_values_kept_in_a_cache_give_the_same(self, train, tmp_path):
        direct = train()
        cached = train("--cache-dir", tmp_path / "cache")  # the fit is kept: same fingerprint
        assert cached == direct
        assert list((tmp_path / "cache").iterdir())

    def test_families(self, train, tmp_path):
        code, *_ = train("--group-column", "family")
        assert code == 0
        table = pd.read_csv(tmp_path / "out" / f"{NAME}0" / "subjects.tsv", sep="\t", dtype=str)
        family = (table["subject"].astype(int) - 1) // 2
        assert (table["split"].groupby(family).nunique() == 1).all()

    def test_no_bar_when_the_output_is_no_terminal(self, train):
        _, out, err = train()
        assert "\r" not in out + err
        assert "epoch" not in err

    def test_a_bar_on_a_terminal(self, train, monkeypatch):
        terminal = io.StringIO()
        terminal.isatty = lambda: True
        monkeypatch.setattr("sys.stderr", terminal)
        assert train("--seeds", 2)[0] == 0
        shown = terminal.getvalue()
        assert "seed 0, epoch 3, validation MSE" in shown
        assert "seed 1, epoch 3, validation MSE" in shown
        assert "100%" in shown
        assert "None" not in shown


class TestMistakes:
    """Each is one line on stderr, exit status 2, nothing written."""

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            (["--sigmaa", "1"], "--sigmaa"),
            (["--optimizer", "sgd"], "Invalid value for '--optimizer'"),
            (["--layers", "two"], "Invalid value for '--layers'"),
            (["--heads", "2.5"], "Invalid value for '--heads'"),
            (["--sigma"], "Option '--sigma' requires an argument"),
            (["surplus"], "unexpected extra argument"),
            (["--mask-ratio", "1.5"], "--mask-ratio: found 1.5; expected a number between 0 and 1"),
            (["--muon-lr", "0"], "--muon-lr: found 0.0; expected a number over 0"),
            (["--sigma", "nan"], "--sigma: found nan"),
            (["--epochs", "0"], "--epochs: found 0; expected a whole number of 1 or more"),
            (["--heads", "3"], "--heads: found 3, which does not divide the width 16"),
            (["--encoding", "3d-fixed"], "--encoding: '3d-fixed' needs MNI coordinates"),
            (["--seeds", "0"], "--seeds: found 0; expected a whole number of 1 or more"),
            (["--window", "81"], "--window"),
            (["--test-subjects", "many"], "expected a share such as 0.2, a number"),
            (["--test-subjects", "sub-99"], "--test-subjects: no data of subject '99'"),
            (["--test-subjects", "nan"], "--test-subjects: found nan"),
            (["--test-subjects", "-1"], "--test-subjects: found -1"),
            (["--test-subjects", "6"], "none is left to train on"),
            (["--validation-subjects", "1.5"], "--validation-subjects: found 1.5"),
            (["--group-column", "site"], "--group-column: no column 'site'"),
            (["--demo"], "give either --bids-dir DIR or --demo"),
            (["--bids-dir", "/nowhere"], "/nowhere"),
            (["--task", "nback"], "nback"),
        ],
        ids=lambda value: " ".join(value) if isinstance(value, list) else "",
    )
    def test_one_line(self, train, tmp_path, options, words):
        code, _, err = train(*options)
        lines = [line for line in err.splitlines() if not line.startswith("Warning: ")]
        assert code == 2
        assert len(lines) == 1
        assert lines[0].startswith("Error: ")
        assert words in lines[0]
        assert not (tmp_path / "out").exists()

    def test_what_is_missing(self, call, tmp_path):
        code, out, err = call("train", "--demo")
        assert (code, out) == (2, "")
        assert err == "Error: Missing option '--output-dir'. See `neuro-pe train --help`.\n"
        code, out, err = call("train", "--output-dir", tmp_path / "out")
        assert (code, out) == (2, "")
        assert err == "Error: --bids-dir: give either --bids-dir DIR or --demo.\n"

    @pytest.mark.parametrize("option", ["--atlas", "--task", "--region-names"])
    def test_a_filter_of_the_demo(self, call, tmp_path, option):
        code, _, err = call("train", "--demo", "--output-dir", tmp_path / "out", option, "x")
        assert code == 2
        assert err == (
            f"Error: {option}: chooses among files of --bids-dir; leave it out of --demo.\n"
        )

    def test_unknown_command(self, call):
        code, _, err = call("trian")
        assert code == 2
        assert err == "Error: No such command 'trian'. See `neuro-pe --help`.\n"

    def test_output_folder_that_is_a_file(self, train, tmp_path):
        (tmp_path / "out").write_text("mine")
        code, _, err = train()
        assert code == 2
        assert f"--output-dir {tmp_path / 'out'}: found a file; expected a folder." in err

    def test_other_settings(self, train):
        assert train()[0] == 0
        code, _, err = train("--lr", "0.01")
        assert code == 2
        assert "holds a fit with --lr 0.002, now 0.01; choose another --output-dir" in err

    @pytest.mark.parametrize("place", ["before", "after"])
    def test_debug_shows_the_traceback(self, place, tmp_path):
        arguments = ["train", "--output-dir", str(tmp_path / "out")]
        arguments.insert(0 if place == "before" else 1, "--debug")
        with pytest.raises(ValueError, match="give either"):
            main(arguments)


class TestSubjectsRequest:
    @pytest.mark.parametrize(
        ("text", "request_"),
        [
            ("0.2", 0.2),
            ("4", 4),
            ("0", 0),
            ("sub-01", ["sub-01"]),
            ("sub-01, sub-02", ["sub-01", "sub-02"]),
            ("01,02", ["01", "02"]),
        ],
    )
    def test_share_number_or_labels(self, text, request_):
        found = subjects_request(None, None, text)
        assert found == request_
        assert type(found) is type(request_)


class TestHelp:
    def test_names_every_option_of_a_fit(self, call):
        code, out, err = call("train", "--help")
        assert (code, err) == (0, "")
        for option in fields(FitSettings):
            assert option_name(option.name) in out
        assert "Examples:" in out

    def test_lists_the_commands(self, call):
        code, out, _ = call("--help")
        assert code == 0
        assert "train " in out
        assert "Examples:" in out

    def test_without_arguments(self, call):
        code, out, err = call()
        assert "Usage: neuro-pe" in out + err
        assert code in (0, 2)  # as the version of click has it

    @pytest.mark.parametrize(
        "statement",
        [
            "import neuro_pe",
            "from neuro_pe.cli import main; main(['--help'])",
            "from neuro_pe.cli import main; main(['--version'])",
            "from neuro_pe.cli import main; main(['train', '--help'])",
        ],
    )
    def test_nothing_heavy_is_imported(self, statement):
        code = f"try:\n {statement}\nexcept SystemExit: pass\nimport sys; print(*sys.modules)"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert not {*HEAVY} & {*done.stdout.splitlines()[-1].split()}


class TestInstalledCommand:
    """The console script, from another folder."""

    def test_demo(self, tmp_path):
        small = ["--epochs", "1", "--width", "16", "--heads", "2", "--layers", "1"]
        small += ["--batch-size", "64", "--test-mask-ratio", "0.98"]
        done = subprocess.run(
            [SCRIPT, "train", "--demo", "--output-dir", "out", *small],
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        warning = "Warning: only 3 training steps: hardly anything is learned; raise --epochs.\n"
        assert (done.returncode, done.stderr) == (0, warning)
        assert done.stdout.startswith("12 subjects, 12 runs, 360 regions (Glasser2016_360)\n")
        assert "neuro-pe compare-networks out" in done.stdout
        folder = tmp_path / "out" / "encoding-learn_sigma-0.1_mask-0.9_seed-0"
        regions = pd.read_csv(folder / "regions.tsv", sep="\t")
        assert len(regions) == 360
        assert set(regions["atlas"]) == {"Glasser2016_360"}

    def test_a_reader_that_stops_reading(self):
        read, write = os.pipe()
        os.close(read)
        command = [SCRIPT, "atlases", "show", "Glasser"]
        done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True)
        os.close(write)
        assert done.stderr == ""


def test_a_leading_zero_makes_a_label():
    from neuro_pe.cli._options import subjects_request

    assert subjects_request(None, None, "05") == ["05"]
    assert subjects_request(None, None, "5") == 5
    assert subjects_request(None, None, "0") == 0
    assert subjects_request(None, None, "0.2") == 0.2
