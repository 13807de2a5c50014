"""``neuro-pe sweep`` as it is typed: lists, files of settings, progress, mistakes, interrupts."""

import io
import os
import pty
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pandas as pd
import pytest

from neuro_pe import FitSettings
from neuro_pe.cli._options import parse_values
from neuro_pe.errors import InputError
from neuro_pe.jobs import JobProgress
from neuro_pe.sweeps import fit_name, grid_settings

SCRIPT = Path(sys.executable).parent / "neuro-pe"
HEAVY = {"torch", "nilearn", "nibabel", "matplotlib", "sklearn", "distributed", "bct"}


@pytest.fixture
def arguments(small_derivative, small_options, tmp_path):
    places = ["--bids-dir", small_derivative, "--output-dir", tmp_path / "out"]
    return ["sweep", *map(str, places), *small_options, "--workers", "2"]


@pytest.fixture
def swept(call, arguments):
    return lambda *more: call(*arguments, *more)


def messages(err):
    return [line for line in err.splitlines() if not line.startswith("Warning: ")]


class TestSuccess:
    def test_lists_table_and_repetition(self, swept, tmp_path):
        lists = ["--sigma", "0.1,1", "--encoding", "learn,nope", "--seeds", "2"]
        code, out, err = swept(*lists)
        assert code == 0
        table = pd.read_csv(tmp_path / "out" / "sweep.tsv", sep="\t")
        assert list(table.columns[:3]) == ["name", "status", "error"]
        assert len(table) == 6
        assert "4 combinations are 3 settings" in out
        for words in ("learn, sigma 0.1", "nope", "space_time_gaussian", "F-test", "Lowest"):
            assert words in out
        # No bar, but a line a fit.
        start, *lines = messages(err)
        assert start == "6 fits: 0 done, 6 to do, 2 at a time."
        assert [line.split()[0] for line in lines] == [f"[{n}/6]" for n in range(1, 7)]
        assert all(line.endswith(" done") for line in lines)
        assert swept(*lists) == (0, out, "")

    def test_file_of_settings(self, swept, tmp_path):
        file = tmp_path / "settings.tsv"
        file.write_text("sigma\toptimizer\n0.1\tadamw\n0.5\tn/a\n")
        assert swept("--settings", file, "--seeds", 2)[0] == 0
        table = pd.read_csv(tmp_path / "out" / "sweep.tsv", sep="\t")
        assert list(zip(table["sigma"], table["optimizer"], table["seed"], strict=True)) == [
            (0.1, "adamw", 0),
            (0.1, "adamw", 1),
            (0.5, "muon", 0),
            (0.5, "muon", 1),
        ]

    def test_a_failed_fit(self, swept, tmp_path):
        """3d-fixed has no coordinates here; the others go on."""
        code, out, err = swept("--encoding", "3d-fixed,learn")
        assert code == 1
        table = pd.read_csv(tmp_path / "out" / "sweep.tsv", sep="\t")
        assert list(table["status"]) == ["failed", "done"]
        assert "1 of 2 fits failed; the same command tries them again." in err
        failed = [line for line in err.splitlines() if line.startswith("Failed: ")]
        assert len(failed) == 1
        assert "'3d-fixed' needs MNI coordinates" in failed[0]
        assert "learn, sigma 0.1" in out

    def test_no_fit_succeeds(self, swept):
        code, out, _ = swept("--encoding", "3d-fixed")
        assert code == 1
        assert out.startswith("No fit succeeded, so there is nothing to compare.\n\nThe table is ")

    def test_a_thousand_done_fits_load_nothing_heavy(self, arguments, tmp_path, small_options):
        output = tmp_path / "out"
        fixed = {
            name.lstrip("-").replace("-", "_"): parse_values(
                name.lstrip("-").replace("-", "_"), [value]
            )
            for name, value in zip(small_options[::2], small_options[1::2], strict=True)
        }
        sigmas = [round(0.01 * number, 2) for number in range(1, 51)]
        settings = grid_settings({**fixed, "sigma": sigmas, "seed": range(20)})
        rows = [
            {"name": fit_name(each), "status": "done", "error": "n/a", **each.__dict__}
            for each in settings
        ]
        for row in rows:
            (output / row["name"]).mkdir(parents=True)
        table = pd.DataFrame(rows).assign(validation_mse=0.5, test_mse=0.6, test_mse_zero=1.0)
        table["validation_mse"] += 0.001 * (table.index % 7)
        table.to_csv(output / "sweep.tsv", sep="\t", index=False, na_rep="n/a")
        (output / "figures").mkdir()
        (output / "figures" / "sweep_sigma.png").touch()
        code = (
            "import sys\nfrom neuro_pe.cli import main\n"
            f"try: main({[*arguments, '--sigma', ','.join(map(str, sigmas)), '--seeds', '20']!r})\n"
            "except SystemExit as left: print(left.code, *sys.modules)"
        )
        start = time.monotonic()
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert time.monotonic() - start < 20  # two seconds on a quiet machine
        assert done.stderr == ""
        last = done.stdout.splitlines()[-1].split()
        assert last[0] == "0"
        assert not HEAVY & set(last[1:])


class TestMistakes:
    @pytest.mark.parametrize(
        ("options", "words"),
        [
            (["--sigma", "0.1,abc"], "--sigma: found 'abc'; expected a number over 0."),
            (["--sigma", "0.1,,1"], "--sigma: found '0.1,,1', where a value is missing"),
            (["--sigma", ""], "--sigma: found '', where a value is missing"),
            (["--seed", "-1"], "--seed: found '-1'; expected a whole number from 0 to 4294967295."),
            (["--seed", "4294967296"], "expected a whole number from 0 to 4294967295."),
            (["--cache-dir", "c"], "--cache-dir c: a sweep keeps the values in OUTPUT_DIR/cache"),
            (["--dask", "nonsense"], "--dask nonsense: no address of a scheduler"),
            (["--group-column", "nocol"], "found participant_id, family."),
            (["--sigma", "nan"], "--sigma: found 'nan'"),
            (["--encoding", "learn,lern"], "--encoding: found 'lern'; expected one of learn, "),
            (["--layers", "1.5"], "--layers: found '1.5'; expected a whole number"),
            (["--mask-ratio", "0.5,2"], "--mask-ratio: found '2'; expected a number between"),
            (["--heads", "3"], "--heads: found 3, which does not divide the width 16"),
            (["--seeds", "0"], "--seeds: found 0"),
            (["--workers", "0"], "--workers: found 0"),
            (["--settings", "/nowhere.tsv"], "--settings /nowhere.tsv: No such file"),
            (["--settings", "/"], "--settings /: Is a directory; expected a tab-separated"),
            (["--dask", "tcp://x", "--dask-scheduler-file", "y"], "--dask: give either"),
            (["--dask-scheduler-file", "/nowhere.json"], "/nowhere.json: no such file"),
            (["--test-subjects", "sub-99"], "no data of subject '99'"),
            (["--bids-dir", "/nowhere"], "/nowhere"),
            (["--demo"], "give either --bids-dir DIR or --demo"),
        ],
        ids=lambda value: " ".join(value) if isinstance(value, list) else "",
    )
    def test_one_line_and_nothing_written(self, swept, tmp_path, options, words):
        code, _, err = swept(*options)
        assert code == 2
        [line] = messages(err)
        assert words in line
        assert not (tmp_path / "out").exists()

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("sgma\n1\n", "column 'sgma': no option of a fit; do you mean sigma?"),
            ("colour\n1\n", "column 'colour': no option of a fit; expected some of encoding, "),
            ("sigma,lr\n1,2\n", "expected one option a column, and tabs between columns."),
            ("mask_ratio_min\n0.4\n0.7\n", "line 3: mask_ratio_min: found 0.7; expected a share"),
            ("sigma\n1\n".encode("utf-16"), "no text in UTF-8; save it as tab-separated text"),
            ("sigma\tsigma\n1\t2\n", "column 'sigma': twice"),
            ("sigma\n-1\n", "line 2: sigma: found '-1'; expected a number over 0"),
            ("sigma\tlr\n1\n", "line 2 has 1 cells where its header has 2"),
            ("sigma\n", "no rows"),
            ("", "no rows"),
            ("width\n32\n", "column 'width': --width is given too"),
        ],
    )
    def test_file_of_settings(self, swept, tmp_path, text, words):
        (tmp_path / "settings.tsv").write_bytes(text if isinstance(text, bytes) else text.encode())
        code, _, err = swept("--settings", tmp_path / "settings.tsv")
        assert code == 2
        [line] = messages(err)
        assert words in line
        assert f"--settings {tmp_path / 'settings.tsv'}: " in line

    def test_the_data_themselves_are_no_output(self, call, make_derivative):
        bids = make_derivative()
        (bids / "dataset_description.json").write_text('{"GeneratedBy": [{"Name": "XCP-D"}]}')
        before = sorted(bids.rglob("*"))
        code, _, err = call("sweep", "--bids-dir", bids, "--output-dir", bids)
        assert code == 2
        assert "it is the data set of XCP-D" in err
        assert sorted(bids.rglob("*")) == before

    def test_values_are_checked_as_those_of_a_fit(self):
        assert parse_values("sigma", ["0.1", " 1"]) == [0.1, 1.0]
        assert parse_values("epochs", ["5"]) == [5]
        with pytest.raises(InputError, match="epochs"):
            parse_values("epochs", ["many"])


class TestProgress:
    def test_a_bar_on_a_terminal(self, monkeypatch):
        from neuro_pe.cli._output import SweepProgress

        terminal = io.StringIO()
        terminal.isatty = lambda: True
        monkeypatch.setattr("sys.stderr", terminal)
        with SweepProgress() as progress:
            progress.update(JobProgress(total=4, done=0, failed=0, running=2))
            progress.update(
                JobProgress(total=4, done=1, failed=1, running=2, newest="b", error="bad")
            )
        shown = terminal.getvalue()
        assert "2 of 4 fits, 2 running, 1 failed" in shown

    def test_an_interrupt_says_how_many_are_done(self):
        from neuro_pe.cli._output import SweepProgress

        progress = SweepProgress()
        progress.update(JobProgress(total=4, done=1, failed=0, running=2))
        with pytest.raises(KeyboardInterrupt, match="1 of 4 fits are done; the same"), progress:
            raise KeyboardInterrupt


class TestInterrupt:
    def test_ctrl_c_in_a_terminal(self, arguments, tmp_path):
        """Every process of the terminal gets the signal, as from the keyboard."""
        command = [str(SCRIPT), *arguments, "--epochs", "200", "--patience", "200", "--seeds", "8"]
        ours, theirs = pty.openpty()
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=theirs,
            start_new_session=True,
            text=True,
            # A shell lets its background jobs, such as these tests, ignore it.
            preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
        )
        os.close(theirs)
        table = tmp_path / "out" / "sweep.tsv"
        until = time.monotonic() + 120
        while not table.exists() and time.monotonic() < until:
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGINT)
        process.communicate(timeout=60)
        shown = b""
        try:
            while piece := os.read(ours, 65536):
                shown += piece
        except OSError:  # the terminal is closed
            pass
        os.close(ours)
        assert process.returncode == 130
        last = shown.decode().strip().splitlines()[-1]
        assert "of 8 fits are done; the same command goes on." in last
        assert "Traceback" not in shown.decode()
        with pytest.raises(ProcessLookupError):  # nothing is left of the group
            os.killpg(process.pid, 0)


def test_help_loads_nothing_heavy():
    code = (
        "from neuro_pe.cli import main\ntry: main(['sweep', '--help'])\n"
        "except SystemExit: pass\nimport sys; print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert not {*HEAVY, "numpy", "pandas"} & {*done.stdout.splitlines()[-1].split()}
    for name in FitSettings.__dataclass_fields__:
        assert "--" + name.replace("_", "-") in done.stdout
