"""Sweeps: the engine under errors, kills and interrupts; settings, names and summaries of fits."""

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from job_functions import add_up, calls, numbers, warn, work
from scipy import stats

from neuro_pe import FitSettings, InputError
from neuro_pe._sweep_summary import summarize_sweep, sweep_text
from neuro_pe.jobs import DaskCluster, Job, read_jobs, run_jobs
from neuro_pe.model_folder import find_model_folders
from neuro_pe.sweeps import fit_name, grid_settings, sweep

# A coordinator of its own, to be killed: jobs of half a second on two workers.
COORDINATOR = """
import sys
from job_functions import numbers, work
from neuro_pe.jobs import run_jobs
run_jobs(numbers(6, seconds=0.5), work, output_dir=sys.argv[1], n_workers=2)
"""


def is_alive(pid):
    """Whether a process runs; one that ended but was not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.fixture
def trace(tmp_path):
    (tmp_path / "trace").mkdir()
    return tmp_path / "trace"


@pytest.fixture
def run(tmp_path, trace):
    def run(jobs, *, work=work, **more):
        more = {"n_workers": 2, "prepare": lambda: str(trace), **more}
        return run_jobs(jobs, work, output_dir=tmp_path / "out", **more)

    return run


class TestEngine:
    def test_table_in_the_order_asked(self, run, tmp_path):
        jobs = numbers(5)[::-1]
        table = run(jobs)
        assert list(table.columns) == ["name", "status", "error", "x", "square", "third"]
        assert list(table["name"]) == [job.name for job in jobs]
        assert list(table["square"]) == [16, 9, 4, 1, 0]
        assert set(table["status"]) == {"done"}
        pd.testing.assert_frame_equal(read_jobs(tmp_path / "out"), table)

    def test_few_processes_do_many_jobs_with_one_thread(self, run, trace):
        run(numbers(8))
        lines = [line for job in numbers(8) for line in calls(trace, job)]
        assert len(lines) == 8
        assert len(set(lines)) <= 2
        assert {line.split()[1] for line in lines} == {"1"}
        assert str(os.getpid()) not in {line.split()[0] for line in lines}

    def test_nothing_missing_starts_nothing(self, run, trace, tmp_path):
        first = run(numbers(3))
        before = (tmp_path / "out" / "sweep.tsv").stat().st_mtime_ns
        again = run(numbers(3), prepare=lambda: pytest.fail("nothing is missing"))
        pd.testing.assert_frame_equal(first, again)
        assert (tmp_path / "out" / "sweep.tsv").stat().st_mtime_ns == before

    def test_only_what_is_missing_is_done(self, run, trace):
        run(numbers(2))
        table = run(numbers(4))
        assert [len(calls(trace, job)) for job in numbers(4)] == [1, 1, 1, 1]
        assert list(table["square"]) == [0, 1, 4, 9]

    def test_rows_that_are_not_asked_for_are_kept(self, run, tmp_path):
        run(numbers(4))
        assert list(run(numbers(5)[3:])["name"]) == ["x-3", "x-4"]
        assert set(read_jobs(tmp_path / "out")["name"]) == {f"x-{x}" for x in range(5)}

    def test_what_is_gone_is_done_again(self, run, trace):
        run(numbers(2))
        run(numbers(2), is_there=lambda job: job.name != "x-1")
        assert [len(calls(trace, job)) for job in numbers(2)] == [1, 2]

    def test_an_error_is_recorded_and_tried_again(self, run, trace):
        jobs = numbers(4, fault="raise")
        table = run(jobs).set_index("name")
        assert table.loc["x-2", "status"] == "failed"
        assert table.loc["x-2", "error"] == "ValueError: two is bad"
        assert pd.isna(table.loc["x-2", "square"])
        assert list(table["status"]).count("done") == 3
        run(jobs)
        assert [len(calls(trace, job)) for job in jobs] == [1, 1, 2, 1]

    def test_a_killed_worker_costs_nothing(self, run, trace):
        jobs = numbers(4, fault="kill once")
        assert set(run(jobs)["status"]) == {"done"}
        assert [len(calls(trace, job)) for job in jobs] == [1, 1, 2, 1]

    def test_a_job_that_kills_its_worker_is_given_up(self, run, trace):
        jobs = numbers(4, fault="kill")
        table = run(jobs).set_index("name")
        assert len(calls(trace, jobs[2])) == 3
        assert "died 3 times, at last by SIGKILL" in table.loc["x-2", "error"]
        assert list(table["status"]).count("done") == 3

    def test_full_disk_stops_at_once_and_keeps_rows(self, run, tmp_path):
        with pytest.raises(OSError, match=r"/full/file: No space left on device\. Make room"):
            run(numbers(20, fault="disk", seconds=0.1))
        table = read_jobs(tmp_path / "out")
        assert 0 < len(table) < 6
        assert set(table["status"]) == {"done"}

    def test_table_that_cannot_be_written(self, run, tmp_path, monkeypatch):
        run(numbers(2))
        before = (tmp_path / "out" / "sweep.tsv").read_bytes()

        def full(*_, **__):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("neuro_pe.derivatives.pd.DataFrame.to_csv", full)
        with pytest.raises(OSError, match="No space left"):
            run(numbers(4))
        assert (tmp_path / "out" / "sweep.tsv").read_bytes() == before
        assert [file.name for file in (tmp_path / "out").glob(".sweep.tsv*")] == []

    def test_progress(self, run):
        states = []
        run(numbers(4, fault="raise"), progress=states.append)
        last = states[-1]
        assert (last.total, last.done, last.failed, last.running) == (4, 3, 1, 0)
        assert states[0].newest is None
        assert {state.newest for state in states[1:]} == {f"x-{x}" for x in range(4)}

    def test_warnings_of_jobs_are_told_once(self, run):
        with pytest.warns(UserWarning, match="odd data") as caught:
            run(numbers(4), work=warn)
        assert len(caught) == 1

    def test_interrupt_ends_all_processes(self, run, trace):
        def interrupt(state):
            if state.newest is not None:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            run(numbers(6, seconds=0.3), progress=interrupt)
        lines = [line for file in trace.iterdir() for line in file.read_text().splitlines()]
        assert not any(is_alive(line.split()[0]) for line in lines)
        assert set(run(numbers(6, seconds=0.3))["status"]) == {"done"}

    def test_numbers_stay_as_they_were_written(self, run, tmp_path):
        jobs = [Job(name="big", arguments={"x": 123_456_789})]
        run(jobs)
        text = (tmp_path / "out" / "sweep.tsv").read_text()
        assert "\t15241578750190521\t" in text
        run([*jobs, Job(name="small", arguments={"x": 3, "fault": "raise"})])
        assert "\t15241578750190521\t" in (tmp_path / "out" / "sweep.tsv").read_text()

    @pytest.mark.parametrize("name", ["", "a/b", "..", ".hidden", "a b", "x" * 300])
    def test_names_that_are_no_folder(self, run, name):
        with pytest.raises(ValueError, match="job name"):
            run([Job(name=name, arguments={})])

    def test_names_are_unique(self, run):
        with pytest.raises(ValueError, match="found twice"):
            run([*numbers(2), *numbers(1)])

    def test_same_name_with_other_arguments(self, run):
        run(numbers(2, seconds=0.0))
        with pytest.raises(InputError, match=r"x-0 was done with seconds 0, now 0\.1"):
            run(numbers(2, seconds=0.1))

    def test_an_argument_that_is_no_number(self, run, tmp_path):
        run(numbers(2))
        file = tmp_path / "out" / "sweep.tsv"
        file.write_text(file.read_text().replace("x-1\tdone\tn/a\t1\t", "x-1\tdone\tn/a\t1?\t"))
        with pytest.raises(InputError, match=r"damaged \(x of x-1 is '1\?'\).* finds the finished"):
            run(numbers(2))

    def test_damaged_table(self, run, tmp_path):
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "sweep.tsv").write_text("a\tb\n1\t2\n")
        with pytest.raises(InputError, match="damaged"):
            run(numbers(2))

    def test_mistake_leaves_no_folder(self, run, tmp_path):
        def prepare():
            raise InputError("no data.")

        for place in ("out", "deep/er/out"):
            with pytest.raises(InputError, match="no data"):
                run_jobs(numbers(2), work, output_dir=tmp_path / place, prepare=prepare)
        assert {path.name for path in tmp_path.iterdir()} == {"trace"}
        (tmp_path / "out").mkdir()
        with pytest.raises(InputError, match="no data"):
            run(numbers(2), prepare=prepare)
        assert list((tmp_path / "out").iterdir()) == []

    def test_folder_of_another_program_stays_as_it_was(self, run, tmp_path):
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "dataset_description.json").write_text("{}")
        with pytest.raises(InputError, match="data set of someone else"):
            run(numbers(2))
        assert [file.name for file in (tmp_path / "out").iterdir()] == ["dataset_description.json"]

    def test_folder_below_a_file(self, tmp_path):
        (tmp_path / "file").touch()
        with pytest.raises(InputError, match=r"--output-dir .*file/out: cannot be .*; choose"):
            run_jobs(numbers(1), work, output_dir=tmp_path / "file" / "out")

    def test_folder_that_cannot_be_written(self, run, tmp_path, monkeypatch):
        monkeypatch.setattr("neuro_pe.jobs.os.access", lambda place, _: "out" not in str(place))
        with pytest.raises(InputError, match=r"--output-dir .*out: cannot be .*; choose another"):
            run(numbers(2))
        assert not (tmp_path / "out").exists()

    def test_finished_in_a_folder_that_cannot_be_written(self, run, tmp_path, monkeypatch):
        first = run(numbers(2))
        (tmp_path / "out" / ".sweep.lock").unlink()
        monkeypatch.setattr("neuro_pe.jobs.os.access", lambda place, _: "out" not in str(place))
        with pytest.warns(UserWarning, match="cannot be written; the table that stands there"):
            pd.testing.assert_frame_equal(run(numbers(2)), first)
        with pytest.raises(InputError, match="cannot be written, but fits are missing; choose"):
            run(numbers(3))
        assert [file.name for file in (tmp_path / "out").iterdir()] == ["sweep.tsv"]

    @pytest.mark.parametrize(
        ("more", "words"),
        [
            ({"dask": "tcp://localhost:1"}, "dask: found 'tcp://localhost:1'; expected DaskCl"),
            ({"n_workers": 1.5}, "--workers: found 1.5; expected a whole number"),
        ],
    )
    def test_values_of_a_wrong_kind(self, run, more, words):
        with pytest.raises(InputError, match=words):
            run(numbers(1), **more)


def start_coordinator(folder):
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    return subprocess.Popen(
        [sys.executable, "-c", COORDINATOR, str(folder)],
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for_rows(folder, count):
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if (folder / "sweep.tsv").exists() and len(read_jobs(folder)) >= count:
            return
        time.sleep(0.02)
    pytest.fail("the sweep did not start")


def children(pid):
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            found.append(int(folder.name))
    return found


@pytest.mark.skipif(not Path("/proc").exists(), reason="looks for processes in /proc")
class TestKilledCoordinator:
    def test_workers_end_and_the_same_call_goes_on(self, tmp_path):
        folder = tmp_path / "out"
        coordinator = start_coordinator(folder)
        wait_for_rows(folder, 1)
        workers = children(coordinator.pid)
        assert len(workers) == 2
        coordinator.kill()
        coordinator.wait()
        time.sleep(0.3)
        assert not any(map(is_alive, workers))
        table = run_jobs(numbers(6, seconds=0.5), work, output_dir=folder, n_workers=2)
        assert list(table["square"]) == [0, 1, 4, 9, 16, 25]
        coordinator.stderr.close()

    def test_a_second_one_is_refused(self, tmp_path, monkeypatch):
        monkeypatch.setattr("neuro_pe._job_lock.PATIENCE", 0.2)
        folder = tmp_path / "out"
        coordinator = start_coordinator(folder)
        wait_for_rows(folder, 1)
        with pytest.raises(InputError, match=f"process {coordinator.pid} on .*, since") as refused:
            run_jobs(numbers(6, seconds=0.5), work, output_dir=folder)
        assert len(str(refused.value).splitlines()) == 1
        assert coordinator.wait() == 0
        assert len(read_jobs(folder)) == 6
        coordinator.stderr.close()


@pytest.fixture
def cluster(tmp_path):
    """Return the scheduler file of a Dask cluster with two workers in processes of their own."""
    pytest.importorskip("distributed")
    file = tmp_path / "scheduler.json"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    start = [sys.executable, "-m", "distributed.cli"]
    scheduler = ["dask_scheduler", "--no-dashboard", "--host", "127.0.0.1", "--port", "0"]
    worker = ["dask_worker", "--nthreads", "1", "--nworkers", "2", "--no-dashboard"]
    processes = []
    for name, *options in (scheduler, worker):
        command = [*start[:2], f"distributed.cli.{name}", *options, "--scheduler-file", str(file)]
        log = (tmp_path / f"{name}.log").open("w")
        processes.append(subprocess.Popen(command, env=environment, stderr=log, stdout=log))
        log.close()
        while not file.exists():
            time.sleep(0.05)
    from distributed import Client

    with Client(scheduler_file=str(file), set_as_default=False) as client:
        client.wait_for_workers(2)
    yield file
    for process in processes[::-1]:
        process.terminate()
        process.wait()


class TestDask:
    def test_same_table_as_on_this_machine(self, cluster, run, tmp_path):
        local = run(numbers(5, fault="raise"))
        there = run_jobs(
            numbers(5, fault="raise"),
            work,
            output_dir=tmp_path / "there",
            dask=DaskCluster(scheduler_file=cluster),
            prepare=lambda: str(tmp_path / "trace"),
        )
        pd.testing.assert_frame_equal(there, local)
        assert [file.name for file in (tmp_path / "there").iterdir() if "locks" in file.name] == []

    def test_a_large_context_goes_to_each_worker_once(self, cluster, tmp_path):
        table = run_jobs(
            numbers(4),
            add_up,
            output_dir=tmp_path / "out",
            dask=DaskCluster(scheduler_file=cluster),
            prepare=lambda: np.ones(100_000),
        )
        assert set(table["sum"]) == {100_000}

    def test_a_cluster_without_workers_is_waited_for(self, tmp_path):
        distributed = pytest.importorskip("distributed")
        with distributed.LocalCluster(
            n_workers=0, processes=False, dashboard_address=None
        ) as cluster:
            later = threading.Timer(1, cluster.scale, [1])
            later.start()
            with pytest.warns(UserWarning, match="no workers yet; waiting"):
                table = run_jobs(
                    numbers(2),
                    add_up,
                    output_dir=tmp_path / "out",
                    dask=DaskCluster(address=cluster.scheduler_address),
                    prepare=lambda: np.ones(100_000),
                )
        assert set(table["sum"]) == {100_000}

    def test_no_scheduler(self, tmp_path, monkeypatch):
        pytest.importorskip("distributed")
        monkeypatch.setattr("neuro_pe._job_dask.PATIENCE", 1)
        with pytest.raises(InputError, match="no scheduler answers there"):
            run_jobs(
                numbers(1),
                work,
                output_dir=tmp_path / "out",
                dask=DaskCluster(address="tcp://127.0.0.1:9"),
            )
        assert not (tmp_path / "out").exists()

    def test_missing_package_names_the_extra(self, tmp_path, monkeypatch):
        monkeypatch.setitem(sys.modules, "distributed", None)
        with pytest.raises(InputError, match=r'pip install "neuro_pe\[dask\]"'):
            run_jobs(
                numbers(1),
                work,
                output_dir=tmp_path / "out",
                dask=DaskCluster(address="tcp://127.0.0.1:9"),
            )

    @pytest.mark.parametrize("address", ["nonsense", "tcp://host", "foo://host:1", "host:port", ""])
    def test_no_address(self, address):
        """Dask itself would leave a traceback behind."""
        with pytest.raises(InputError, match=f"--dask {address}: no address of a scheduler"):
            DaskCluster(address=address)

    @pytest.mark.parametrize("address", ["10.0.0.1:8786", "tls://h:1", "inproc://10.0.0.1/1/1"])
    def test_addresses(self, address):
        assert DaskCluster(address=address).address == address

    def test_either_address_or_file(self):
        with pytest.raises(InputError, match="either"):
            DaskCluster()


class TestSettings:
    def test_every_combination_once(self):
        settings = grid_settings({"sigma": [0.1, 1.0], "mask_ratio": [0.5, 0.9]})
        assert [(each.sigma, each.mask_ratio) for each in settings] == [
            (0.1, 0.5),
            (0.1, 0.9),
            (1.0, 0.5),
            (1.0, 0.9),
        ]

    def test_sigma_of_encodings_without_one_is_merged(self):
        grid = {"encoding": ["learn", "nope", "1d-fixed"], "sigma": [0.5, 1.0, 2.0]}
        names = [each.encoding for each in grid_settings(grid)]
        assert names == ["learn"] * 3 + ["nope", "1d-fixed"]

    def test_rows_are_crossed_with_the_grid(self):
        settings = grid_settings({"seed": [0, 7]}, [{"width": 64}, {"lr": 0.01}])
        assert [(each.width, each.lr, each.seed) for each in settings] == [
            (64, 2e-3, 0),
            (64, 2e-3, 7),
            (128, 0.01, 0),
            (128, 0.01, 7),
        ]

    @pytest.mark.parametrize(
        ("grid", "words"),
        [
            ({"sgma": [1.0]}, "sgma: no option of a fit"),
            ({"sigma": [0.1, -1.0]}, "sigma: found -1.0; expected a number over 0"),
            ({"sigma": 0.1}, "sigma: found 0.1; expected a list"),
            ({"encoding": "learn"}, "encoding: found 'learn'; expected a list"),
            ({"sigma": []}, r"sigma: found \[\]"),
        ],
    )
    def test_mistakes(self, grid, words):
        with pytest.raises(InputError, match=words):
            grid_settings(grid)

    def test_names_tell_all_settings_apart(self):
        grid = {
            "encoding": ["learn", "nope"],
            "sigma": [0.1, 0.1000001],
            "width": [64, 128],
            "epochs": [None, 5],
            "lr": [2e-3, 1e-4],
            "test_mask_ratio": [0.5, 0.9],
            "seed": [0, 1],
        }
        settings = grid_settings(grid)
        assert len({fit_name(each) for each in settings}) == len(settings)

    def test_name_is_that_of_train_at_the_defaults(self):
        for settings in (FitSettings(seed=3), FitSettings(encoding="nope", mask_ratio=0.5)):
            assert fit_name(settings) == settings.name


def table_of(errors, **options):
    """Build the table of a sweep from validation errors by sigma; test errors are 0.1 higher."""
    rows = [
        {
            **FitSettings(sigma=sigma, seed=seed, **options).__dict__,
            "validation_mse": error,
            "test_mse": error + 0.1,
        }
        for sigma, by_seed in errors.items()
        for seed, error in enumerate(by_seed)
    ]
    return pd.DataFrame(rows).assign(name="", status="done", error="")


ERRORS = {0.1: [0.70, 0.72, 0.71], 1.0: [0.81, 0.85, 0.80], 0.2: [0.71, 0.73, 0.72]}


class TestSummary:
    def test_mean_and_interval_against_scipy(self):
        settings = summarize_sweep(table_of(ERRORS)).settings
        for (sigma, errors), row in zip(ERRORS.items(), settings.to_dict("records"), strict=True):
            assert row["sigma"] == sigma
            assert row["n_seeds"] == 3
            assert row["validation_mse"] == pytest.approx(np.mean(errors))
            low, high = stats.t.interval(0.95, 2, loc=np.mean(errors), scale=stats.sem(errors))
            assert (row["validation_low"], row["validation_high"]) == pytest.approx((low, high))

    def test_f_test_against_the_formula(self):
        tests = summarize_sweep(table_of(ERRORS)).tests
        groups = np.array(list(ERRORS.values()))
        between = 3 * ((groups.mean(axis=1) - groups.mean()) ** 2).sum() / 2
        within = ((groups - groups.mean(axis=1, keepdims=True)) ** 2).sum() / 6
        assert list(tests["split"]) == ["validation", "test"]
        assert tests["f"].to_numpy() == pytest.approx(between / within)
        assert tests["p"].to_numpy() == pytest.approx(stats.f.sf(between / within, 2, 6))

    def test_best_is_paired_by_seed(self):
        choice = summarize_sweep(table_of(ERRORS)).choice
        assert (choice.best, choice.next) == ("learn, sigma 0.1", "learn, sigma 0.2")
        # Every seed differs by the same: no chance is left, though the intervals overlap.
        assert choice.difference == pytest.approx(-0.01)
        assert choice.is_clear

    def test_best_that_cannot_be_told(self):
        table = table_of({0.1: [0.70, 0.72, 0.71], 0.2: [0.73, 0.70, 0.71]})
        assert not summarize_sweep(table).choice.is_clear
        assert "cannot tell them apart" in sweep_text(summarize_sweep(table))

    def test_test_errors_choose_nothing(self):
        table = table_of(ERRORS)
        chosen = summarize_sweep(table).choice
        shuffled = table.assign(test_mse=table["test_mse"].to_numpy()[::-1])
        assert summarize_sweep(shuffled).choice == chosen

    def test_one_seed(self):
        text = sweep_text(summarize_sweep(table_of({0.1: [0.7], 1.0: [0.8]})))
        assert "With 1 shared seed it cannot be told from learn, sigma 1" in text
        assert "F-test" not in text

    def test_failed_fits_are_left_out(self):
        table = table_of(ERRORS)
        table.loc[0, ["status", "validation_mse"]] = ["failed", np.nan]
        summary = summarize_sweep(table)
        assert list(summary.settings["n_seeds"]) == [2, 3, 3]
        assert len(summary.failed) == 1

    def test_nothing_is_done(self):
        table = table_of({0.1: [0.7, 0.8]}).assign(status="failed")
        summary = summarize_sweep(table.drop(columns=["validation_mse", "test_mse"]))
        assert (len(summary.settings), summary.choice, summary.has_curve) == (0, None, False)
        assert sweep_text(summary) == "No fit succeeded, so there is nothing to compare."


GRID = {"sigma": [0.1, 1.0], "encoding": ["learn", "nope"]}


def fixed(settings):
    """Return the options that are not at their defaults."""
    return {
        name: value
        for name, value in settings.__dict__.items()
        if value != getattr(FitSettings(), name)
    }


@pytest.fixture(scope="module")
def swept(small, make_cohort, tmp_path_factory):
    """Sweep once, two seeds of three settings; return folder, grid and summary."""
    folder = tmp_path_factory.mktemp("swept") / "out"
    grid = {**GRID, **{name: [value] for name, value in fixed(small).items()}}
    summary = sweep(make_cohort(), output_dir=folder, grid=grid, n_seeds=2, n_workers=2)
    return folder, grid, summary


class TestSweep:
    def test_model_folders_and_table_agree(self, swept):
        folder, _, summary = swept
        models = find_model_folders([folder])
        assert len(models) == len(summary.table) == 6
        for row in summary.table.to_dict("records"):
            [model] = [model for model in models if model.path.name == row["name"]]
            assert (model.settings.encoding, model.settings.seed) == (row["encoding"], row["seed"])
            test = model.metrics.query("split == 'test'").set_index("predictor")["mse"]
            assert row["test_mse"] == pytest.approx(test["model"], rel=1e-6)
            assert row["test_mse_gaussian"] == pytest.approx(test["gaussian"], rel=1e-6)
            validation = model.metrics.query("split == 'validation' and predictor == 'model'")
            assert row["validation_mse"] == pytest.approx(validation["mse"].min(), rel=1e-6)

    def test_same_numbers_as_train(self, swept, small, make_cohort, tmp_path):
        from neuro_pe import train_models

        folder, *_ = swept
        [alone] = train_models(make_cohort(), output_dir=tmp_path / "alone", settings=small)
        model = find_model_folders([folder / fit_name(small)])[0]
        pd.testing.assert_frame_equal(
            model.metrics.drop(columns="seconds"), alone.metrics.drop(columns="seconds")
        )
        pd.testing.assert_frame_equal(model.region_errors, alone.region_errors)

    def test_baselines_are_computed_once(self, swept):
        assert len(list((swept[0] / "baselines").glob("*.npz"))) == 1

    def test_files(self, swept):
        folder, *_ = swept
        assert (folder / "figures" / "sweep_sigma.png").stat().st_size > 10_000
        settings = pd.read_csv(folder / "sweep_settings.tsv", sep="\t")
        assert list(settings["setting"]) == ["learn, sigma 0.1", "nope", "learn, sigma 1"]
        assert json.loads((folder / "sweep.json").read_text())["data"]["n_subjects"] == 6

    def test_compare_networks_understands_the_folder(self, swept):
        from neuro_pe.report import group_fits

        groups = group_fits(find_model_folders([swept[0]]))
        assert [len(models) for models in groups.values()] == [2, 2, 2]

    def test_widths_stand_side_by_side(self, small, make_cohort, tmp_path):
        from neuro_pe.report import group_fits

        grid = {name: [value] for name, value in fixed(small).items()}
        sweep(
            make_cohort(), output_dir=tmp_path / "out", grid={**grid, "width": [8, 16]}, n_workers=1
        )
        assert len(group_fits(find_model_folders([tmp_path / "out"]))) == 2

    def test_more_seeds_and_a_deleted_fit(self, swept, make_cohort, tmp_path):
        folder, grid, first = swept
        copy = tmp_path / "copy"
        shutil.copytree(folder, copy)
        gone, kept = first.table["name"].iloc[0], first.table["name"].iloc[1]
        shutil.rmtree(copy / gone)
        before = (copy / kept / "settings.json").stat().st_mtime_ns
        again = sweep(make_cohort(), output_dir=copy, grid=grid, n_seeds=3, n_workers=2)
        assert len(again.table) == 9
        assert set(again.table["status"]) == {"done"}
        assert (copy / kept / "settings.json").stat().st_mtime_ns == before
        both = again.table.merge(first.table, on="name", suffixes=("", "_first"))
        assert list(both["test_mse"]) == list(both["test_mse_first"])

    def test_other_data_and_other_splits_are_refused(self, swept, make_cohort):
        folder, grid, _ = swept
        words = r"holds a sweep of other data \(6 subjects and 6 runs, now 5 subjects and 5 runs\)"
        with pytest.raises(InputError, match=words + "; choose another --output-dir.$"):
            sweep(make_cohort(n_subjects=5), output_dir=folder, grid=grid)
        with pytest.raises(InputError, match="6 subjects and 6 runs too, of other values"):
            sweep(make_cohort(n_times=70), output_dir=folder, grid=grid)
        for name, old in (("test_subjects", "0.2"), ("validation_subjects", "0.15")):
            words = f"--{name.replace('_', '-')}: found 2, but the fits in .* have {old}; ask for"
            with pytest.raises(InputError, match=words):
                sweep(make_cohort(), output_dir=folder, grid=grid, **{name: 2})

    def test_other_data_are_refused_without_a_description(self, swept, make_cohort, tmp_path):
        folder, grid, first = swept
        shutil.copytree(folder, tmp_path / "copy")
        description = tmp_path / "copy" / "sweep.json"
        before = description.read_text()
        description.unlink()
        for each in (grid, {**grid, "sigma": [0.1, 1.0, 2.0]}):  # nothing missing, and a fit
            with pytest.raises(InputError, match="other data"):
                sweep(make_cohort(n_times=70), output_dir=tmp_path / "copy", grid=each, n_seeds=2)
            words = (
                r"--test-subjects: found 2 \(.., ..\), but the fits in .* have 1 \(..\); ask for"
            )
            with pytest.raises(InputError, match=words):
                sweep(make_cohort(), output_dir=tmp_path / "copy", grid=each, test_subjects=2)
        assert not description.exists()
        again = sweep(make_cohort(), output_dir=tmp_path / "copy", grid=grid, n_seeds=2)
        pd.testing.assert_frame_equal(again.table, first.table)
        assert description.read_text() == before

    @pytest.mark.filterwarnings("ignore:.*no known atlas")
    def test_a_refusal_leaves_no_cache(self, swept, small_derivative, tmp_path):
        folder, grid, _ = swept
        shutil.copytree(folder, tmp_path / "copy")
        (tmp_path / "copy" / "cache").mkdir()
        (tmp_path / "copy" / "cache" / "mine").touch()
        before = sorted((tmp_path / "copy").rglob("*"))
        with pytest.raises(InputError, match="found 2"):
            sweep(small_derivative, output_dir=tmp_path / "copy", grid=grid, test_subjects=2)
        assert sorted((tmp_path / "copy").rglob("*")) == before
        (tmp_path / "new" / "cache").mkdir(parents=True)
        (tmp_path / "new" / "cache" / "mine").touch()
        with pytest.raises(InputError, match="of subject '99'"):
            sweep(small_derivative, output_dir=tmp_path / "new", test_subjects=["99"])
        assert [path.name for path in (tmp_path / "new").rglob("*")] == ["cache", "mine"]

    @pytest.mark.parametrize(
        ("column", "value", "words"),
        [
            ("validation_mse", "abc1", "validation_mse of .* is 'abc1'"),
            ("core_seconds", "1,5", "core_seconds of .* is '1,5'"),
            ("test_mse_gaussian", "?", r"test_mse_gaussian of .* is '\?'"),
            ("width", "wide", "width of .* is 'wide'"),
            ("validation_mse", None, "its column validation_mse is missing"),
            ("device", None, "its column device is missing"),
        ],
    )
    def test_damaged_numbers_and_columns(self, swept, make_cohort, tmp_path, column, value, words):
        folder, grid, first = swept
        shutil.copytree(folder, tmp_path / "copy")
        file = tmp_path / "copy" / "sweep.tsv"
        table = pd.read_csv(file, sep="\t", dtype=str, keep_default_na=False)
        if value is None:
            table = table.drop(columns=column)
        else:
            table.loc[1, column] = value
        table.to_csv(file, sep="\t", index=False)
        with pytest.raises(InputError, match=rf"sweep.tsv: damaged \({words}\);.* Delete it"):
            sweep(make_cohort(), output_dir=tmp_path / "copy", grid=grid, n_seeds=2)
        if column == "device":  # the advice is right
            file.unlink()
            again = sweep(make_cohort(), output_dir=tmp_path / "copy", grid=grid, n_seeds=2)
            pd.testing.assert_frame_equal(again.table, first.table)

    def test_errors_of_a_finished_fit_that_were_cut(self, swept, make_cohort, tmp_path):
        """Read anew without a table, a fit without its test errors is not taken as whole."""
        folder, grid, _ = swept
        shutil.copytree(folder, tmp_path / "copy")
        (tmp_path / "copy" / "sweep.tsv").unlink()
        file = next((tmp_path / "copy").glob("*seed-1")) / "metrics.tsv"
        lines = file.read_text().splitlines(keepends=True)
        file.write_text("".join(lines[:2]))
        again = sweep(make_cohort(), output_dir=tmp_path / "copy", grid=grid, n_seeds=2)
        assert len(again.failed) == 1
        assert "metrics.tsv: damaged (not as it was" in again.failed["error"].item()

    def test_a_last_row_that_was_cut_is_read_from_the_fit(self, swept, make_cohort, tmp_path):
        folder, grid, first = swept
        shutil.copytree(folder, tmp_path / "copy")
        file = tmp_path / "copy" / "sweep.tsv"
        file.write_bytes(file.read_bytes()[:-3])
        again = sweep(make_cohort(), output_dir=tmp_path / "copy", grid=grid, n_seeds=2)
        pd.testing.assert_frame_equal(again.table, first.table)

    @pytest.mark.parametrize(
        ("more", "words"),
        [
            ({"n_seeds": 1.5}, "--seeds: found 1.5; expected a whole number"),
            ({"settings": [{"sigma": 0.1}]}, "settings: found dict; expected FitSettings"),
            ({"settings": []}, "settings: found an empty list; expected FitSettings"),
            ({"grid": ["sigma"]}, "grid: found list; expected lists by option"),
            ({"data": 7}, "data: found int; expected a Cohort or the folder"),
            ({"filters": {"tsk": "rest"}}, "filters: found 'tsk'; expected some of atlas, desc"),
        ],
    )
    def test_values_of_a_wrong_kind(self, small_derivative, tmp_path, more, words):
        with pytest.raises(InputError, match=words):
            sweep(**{"data": small_derivative, "output_dir": tmp_path / "out", **more})
        assert not (tmp_path / "out").exists()

    def test_finished_in_a_folder_that_cannot_be_written(
        self, swept, make_cohort, tmp_path, monkeypatch
    ):
        folder, grid, first = swept
        shutil.copytree(folder, tmp_path / "copy")
        monkeypatch.setattr("neuro_pe.jobs.os.access", lambda place, _: "copy" not in str(place))
        before = {file: file.stat().st_mtime_ns for file in (tmp_path / "copy").iterdir()}
        with pytest.warns(UserWarning, match="cannot be written"):
            again = sweep(make_cohort(), output_dir=tmp_path / "copy", grid=grid, n_seeds=2)
        assert sweep_text(again) == sweep_text(first)
        after = {file: file.stat().st_mtime_ns for file in (tmp_path / "copy").iterdir()}
        assert after == before

    def test_damaged_description(self, swept, make_cohort, tmp_path):
        folder, grid, _ = swept
        shutil.copytree(folder, tmp_path / "copy")
        (tmp_path / "copy" / "sweep.json").write_text("{")
        with pytest.raises(InputError, match="damaged"):
            sweep(make_cohort(), output_dir=tmp_path / "copy", grid=grid)

    def test_grid_or_settings(self, make_cohort, tmp_path):
        with pytest.raises(InputError, match="one of grid and settings"):
            sweep(make_cohort(), output_dir=tmp_path, grid={}, settings=[FitSettings()])
