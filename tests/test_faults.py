"""Interrupted, killed, out of disk: nothing half-written, and --resume ends at the same numbers."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import pandas as pd
import pytest
import torch

from neuro_pe import InputError, load_bids, train_models
from neuro_pe.cli import main
from neuro_pe.model_folder import find_model_folders, read_model_folder

resource = pytest.importorskip("resource", reason="POSIX limits and signals")

NAME = "encoding-learn_sigma-0.1_mask-0.5_seed-0"
CHECKPOINT = Path("checkpoint") / "state.safetensors"


@pytest.fixture(scope="module")
def cohort(small_derivative):
    with pytest.warns(UserWarning, match="atlas"):
        return load_bids(small_derivative)


@pytest.fixture
def every_epoch(monkeypatch):
    """Write a checkpoint after every epoch."""
    monkeypatch.setattr("neuro_pe.training.SECONDS_BETWEEN_CHECKPOINTS", 0.0)


def stop_at(*epochs):
    """Return a progress callback that interrupts once at each of these epochs."""
    left = list(epochs)

    def progress(settings, row):
        if left and row["epoch"] == left[0]:
            left.pop(0)
            raise KeyboardInterrupt

    return progress


def without_warnings(stderr):
    """Drop the note that the regions are of no known atlas."""
    return [line for line in stderr.splitlines() if not line.startswith("Warning: ")]


def assert_same_fit(folder, expected):
    pd.testing.assert_frame_equal(
        folder.metrics.drop(columns="seconds"), expected.metrics.drop(columns="seconds")
    )
    pd.testing.assert_frame_equal(folder.region_errors, expected.region_errors)
    weights, others = folder.weights(), expected.weights()
    assert set(weights) == set(others)
    for name, tensor in weights.items():
        assert torch.equal(tensor, others[name]), name
    pd.testing.assert_frame_equal(folder.positional_encoding, expected.positional_encoding)
    pd.testing.assert_frame_equal(
        folder.positional_encoding_change, expected.positional_encoding_change
    )


class TestResume:
    def fit(self, cohort, output, settings, epochs):
        """Interrupt at each of these epochs, and go on."""
        progress = stop_at(*epochs)
        for _ in epochs:
            with pytest.raises(KeyboardInterrupt):
                train_models(
                    cohort, output_dir=output, settings=settings, resume=True, progress=progress
                )
            assert not (output / settings.name).exists()
        return train_models(
            cohort, output_dir=output, settings=settings, resume=True, progress=progress
        )[0]

    @pytest.mark.parametrize("optimizer", ["muon", "adamw"])
    @pytest.mark.parametrize("epochs", [(1,), (4,), (2, 5), (6,), (3, 3)])
    def test_same_numbers(
        self, cohort, small, tmp_path, every_epoch, optimizer, epochs, undisturbed
    ):
        settings = replace(small, epochs=6, optimizer=optimizer)
        folder = self.fit(cohort, tmp_path / "out", settings, epochs)
        assert_same_fit(folder, undisturbed(settings))

    @pytest.mark.parametrize("epochs", [(2,), (3, 4), "last"])
    def test_same_numbers_with_early_stopping(
        self, cohort, small, tmp_path, every_epoch, epochs, undisturbed
    ):
        # So high a rate that the validation error soon rises.
        settings = replace(small, epochs=60, patience=2, lr=0.05, muon_lr=0.05)
        expected = undisturbed(settings)
        last = int(expected.metrics["epoch"].max())
        assert 6 <= last < 60
        # At the last epoch the best weights stand in the checkpoint alone.
        epochs = (last,) if epochs == "last" else epochs
        folder = self.fit(cohort, tmp_path / "out", settings, epochs)
        assert_same_fit(folder, expected)

    def test_stopped_after_training_before_the_folder_was_named(
        self, cohort, small, tmp_path, every_epoch, undisturbed, monkeypatch
    ):
        settings = replace(small, epochs=6)
        with monkeypatch.context() as patch:
            patch.setattr("neuro_pe.experiment.write_model_folder", interrupt)
            with pytest.raises(KeyboardInterrupt):
                train_models(cohort, output_dir=tmp_path / "out", settings=settings)
        folder = self.fit(cohort, tmp_path / "out", settings, ())
        assert_same_fit(folder, undisturbed(settings))

    def test_one_of_several_seeds(self, cohort, small, tmp_path, every_epoch, undisturbed):
        output = tmp_path / "out"
        options = {"output_dir": output, "settings": small, "n_seeds": 2, "resume": True}

        def stop_the_second(settings, row):
            if settings.seed == 1 and row["epoch"] == 2:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            train_models(cohort, progress=stop_the_second, **options)
        assert sorted(path.name for path in output.iterdir() if path.is_dir()) == [
            small.name,
            replace(small, seed=1).name + ".partial",
        ]
        folders = train_models(cohort, **options)
        for number, folder in enumerate(folders):
            assert_same_fit(folder, undisturbed(replace(small, seed=number)))

    def test_seconds_add_up(self, cohort, small, tmp_path, every_epoch):
        folder = self.fit(cohort, tmp_path / "out", replace(small, epochs=6), (4,))
        seconds = folder.metrics.query("split == 'train'")["seconds"]
        assert seconds.is_monotonic_increasing

    def test_resume_of_other_data_is_refused(self, cohort, small, tmp_path, every_epoch):
        with pytest.raises(KeyboardInterrupt):
            train_models(cohort, output_dir=tmp_path, settings=small, progress=stop_at(2))
        fewer = replace(cohort, runs=cohort.runs[:-1])
        with pytest.raises(InputError, match=r"partial: holds a fit with other data"):
            train_models(fewer, output_dir=tmp_path, settings=small, resume=True)


def interrupt(*_, **__):
    raise KeyboardInterrupt


@pytest.fixture(scope="module")
def undisturbed(cohort, tmp_path_factory):
    """Fit the small cohort in one go; each setting once."""
    output = tmp_path_factory.mktemp("undisturbed")
    done = {}

    def fit(settings):
        if settings not in done:
            place = output / str(len(done))
            done[settings] = train_models(cohort, output_dir=place, settings=settings)[0]
        return done[settings]

    return fit


class TestDamagedCheckpoint:
    @pytest.mark.parametrize("damage", ["empty", "short", "garbage", "another", "no names"])
    def test_one_clear_line(self, cohort, small, tmp_path, every_epoch, damage):
        with pytest.raises(KeyboardInterrupt):
            train_models(cohort, output_dir=tmp_path, settings=small, progress=stop_at(3))
        partial = tmp_path / f"{small.name}.partial"
        file = partial / CHECKPOINT
        content = {
            "empty": b"",
            "short": file.read_bytes()[:-10],
            "garbage": b"\x00garbage" * 100,
            "another": foreign_checkpoint({"model.weight": torch.ones(1)}),
            "no names": foreign_checkpoint({"weight": torch.ones(1)}),
        }[damage]
        file.write_bytes(content)
        with pytest.raises(InputError) as caught:
            train_models(cohort, output_dir=tmp_path, settings=small, resume=True)
        text = str(caught.value)
        assert str(partial) in text
        assert "elete" in text
        assert "\n" not in text


def foreign_checkpoint(tensors):
    from safetensors.torch import save

    return save(tensors, metadata={"state": '{"rows": [], "best_epoch": 0}'})


# The command with a checkpoint after every epoch.
COMMAND = (
    "import neuro_pe.training as training; training.SECONDS_BETWEEN_CHECKPOINTS = 0.0\n"
    "from neuro_pe.cli import main; main()"
)
# The same, which kills itself halfway through a write of a file.
SUICIDE = """
import os, signal
from pathlib import Path
whole, left = Path.write_bytes, [{number}]
def half(path, content):
    if {name!r} in path.name:
        left[0] -= 1
        if not left[0]:
            whole(path, content[: len(content) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
    return whole(path, content)
Path.write_bytes = half
"""


class TestCommand:
    """The command itself, in a process of its own."""

    @pytest.fixture
    def arguments(self, small_derivative, small_options, tmp_path):
        folders = ["--bids-dir", str(small_derivative), "--output-dir", str(tmp_path / "out")]
        return ["train", *folders, *small_options, "--epochs", "20", "--patience", "20"]

    @pytest.fixture
    def finish(self, arguments, small, tmp_path, capsys, undisturbed):
        """Go on with --resume, and compare with a fit that nobody disturbed."""

        def compare():
            with pytest.raises(SystemExit) as left:
                main([*arguments, "--resume"])
            assert left.value.code == 0
            assert not without_warnings(capsys.readouterr().err)
            expected = undisturbed(replace(small, epochs=20, patience=20))
            assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
                "dataset_description.json",
                NAME,
            ]
            assert sorted(path.name for path in expected.path.iterdir()) == sorted(
                path.name for path in (tmp_path / "out" / NAME).iterdir()
            )
            assert_same_fit(read_model_folder(tmp_path / "out" / NAME), expected)

        return compare

    def start(self, arguments, code=COMMAND):
        return subprocess.Popen(
            [sys.executable, "-c", code, *arguments],
            stderr=subprocess.PIPE,
            text=True,
            # A shell lets its background jobs, such as these tests, ignore it.
            preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
        )

    def wait_for(self, path, process):
        while not path.exists():
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.005)

    def test_kill_at_random_moments(self, arguments, finish, tmp_path, rng):
        partial = tmp_path / "out" / f"{NAME}.partial"
        for number in range(2):
            process = self.start([*arguments, "--resume"] if number else arguments)
            self.wait_for(partial / CHECKPOINT if number else partial, process)
            time.sleep(rng.uniform(0, 0.3))
            process.kill()
            process.communicate()
            assert process.returncode == -signal.SIGKILL
            assert not (tmp_path / "out" / NAME).exists()
        finish()

    @pytest.mark.parametrize(("name", "number"), [("state", 7), ("model", 1)])
    def test_kill_in_the_middle_of_a_write(self, arguments, finish, tmp_path, name, number):
        process = self.start(arguments, SUICIDE.format(name=name, number=number) + COMMAND)
        process.communicate()
        assert process.returncode == -signal.SIGKILL
        assert not (tmp_path / "out" / NAME).exists()
        with pytest.raises(InputError, match="only unfinished fits"):
            find_model_folders([tmp_path / "out"])
        finish()

    def test_ctrl_c(self, arguments, finish, tmp_path):
        process = self.start(arguments)
        self.wait_for(tmp_path / "out" / f"{NAME}.partial" / CHECKPOINT, process)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate()
        assert process.returncode == 130
        message = "Interrupted; the same command with --resume goes on."
        assert without_warnings(stderr) == ["", message]
        finish()


@contextlib.contextmanager
def file_size_limit(n_bytes):
    """Let no file grow over a size, as a quota does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture
def disk(tmp_path):
    """A file system of its own, to be made small or large."""
    place = tmp_path / "disk"
    place.mkdir()

    def resize(size, *, first=False):
        option = f"{'' if first else 'remount,'}size={size}"
        return subprocess.run(
            ["mount", "-t", "tmpfs", "-o", option, "tmpfs", str(place)], capture_output=True
        ).returncode

    if not hasattr(os, "geteuid") or os.geteuid() or resize("1m", first=True):
        pytest.skip("cannot mount a file system here")
    yield place, resize
    subprocess.run(["umount", str(place)], check=True)


class TestFullDisk:
    def train(self, derivative, options, output, *more):
        arguments = ["--bids-dir", str(derivative), "--output-dir", str(output), *options, *more]
        with pytest.raises(SystemExit) as left:
            main(["train", *arguments])
        return left.value.code

    def check_refusal(self, code, stderr, output, words):
        assert code == 2
        assert len(without_warnings(stderr)) == 1
        assert str(output / f"{NAME}.partial") in stderr
        assert words in stderr
        assert not (output / NAME).exists()
        leftovers = [path for path in output.rglob(".*") if path.is_file()]
        assert not leftovers

    def check_resumed(self, derivative, options, output, undisturbed, small):
        assert self.train(derivative, options, output, "--resume") == 0
        assert_same_fit(read_model_folder(output / NAME), undisturbed(small))
        assert [path.name for path in output.iterdir() if path.is_dir()] == [NAME]

    def test_in_a_checkpoint(
        self, disk, small_derivative, small_options, small, undisturbed, every_epoch, capsys
    ):
        place, resize = disk
        output = place / "out"
        resize("48k")
        code = self.train(small_derivative, small_options, output)
        stderr = capsys.readouterr().err
        self.check_refusal(code, stderr, output, "state.safetensors: No space left on device")
        resize("4m")
        self.check_resumed(small_derivative, small_options, output, undisturbed, small)

    @pytest.mark.parametrize("size", ["16k", "20k", "24k", "32k", "40k"])
    def test_in_the_final_write(
        self, disk, small_derivative, small_options, small, undisturbed, capsys, size
    ):
        place, resize = disk
        output = place / "out"
        resize(size)
        code = self.train(small_derivative, small_options, output)
        self.check_refusal(code, capsys.readouterr().err, output, "No space left on device")
        resize("4m")
        self.check_resumed(small_derivative, small_options, output, undisturbed, small)

    def test_file_limit_in_a_checkpoint(
        self, tmp_path, small_derivative, small_options, small, undisturbed, every_epoch, capsys
    ):
        with file_size_limit(16_000):
            code = self.train(small_derivative, small_options, tmp_path / "out")
        stderr = capsys.readouterr().err
        self.check_refusal(code, stderr, tmp_path / "out", "state.safetensors: File too large")
        self.check_resumed(small_derivative, small_options, tmp_path / "out", undisturbed, small)

    def test_file_limit_in_the_final_write(
        self, tmp_path, small_derivative, small_options, small, undisturbed, capsys
    ):
        with file_size_limit(16_000):
            code = self.train(small_derivative, small_options, tmp_path / "out")
        stderr = capsys.readouterr().err
        self.check_refusal(code, stderr, tmp_path / "out", "model.safetensors: File too large")
        self.check_resumed(small_derivative, small_options, tmp_path / "out", undisturbed, small)
