"""Kill a sweep's worker, its coordinator and its Dask scheduler, again and again.

    .venv/bin/python benchmarks/sweep_faults.py --repetitions 20 --output build/sweep_faults.tsv

Each repetition sweeps twelve short fits three times, killing (kill -9) a random worker, the
coordinator or the scheduler at a random moment, and repeats the command. Afterwards every setting
must stand in the table once, with the numbers and the weights of an undisturbed sweep.
"""

import argparse
import hashlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pandas as pd

from neuro_pe import load_demo

SCRIPT = Path(sys.executable).parent / "neuro-pe"
GRID = ["--sigma", "0.1,1", "--mask-ratio", "0.5,0.8", "--seeds", "3", "--epochs", "10"]
MODEL = ["--width", "16", "--heads", "2", "--layers", "1", "--window", "10", "--batch-size", "8"]
N_FITS = 12
N_REGIONS, N_TIMES, N_SUBJECTS = 24, 120, 8


def write_data(folder: Path) -> None:
    """Write a corner of the bundled data, so that a fit takes a second."""
    for run in list(load_demo())[:N_SUBJECTS]:
        stem = f"sub-{run.subject}/func/sub-{run.subject}_task-rest_atlas-Glasser_timeseries"
        file = folder / f"{stem}.tsv"
        file.parent.mkdir(parents=True)
        values = run.values[:N_TIMES, :N_REGIONS]
        table = pd.DataFrame(values, columns=run.regions[:N_REGIONS])
        table.to_csv(file, sep="\t", index=False)
        file.with_suffix(".json").write_text(f'{{"RepetitionTime": {run.tr}}}')


def start(data: Path, output: Path, *more: str) -> subprocess.Popen:
    command = [str(SCRIPT), "sweep", "--bids-dir", str(data), "--output-dir", str(output)]
    return subprocess.Popen(
        [*command, *GRID, *MODEL, "--workers", "2", *more],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def finish(process: subprocess.Popen) -> tuple[int, str]:
    errors = process.communicate(timeout=300)[1]
    return process.returncode, errors


def children(pid: int) -> list[int]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid and fields[0] != "Z":
            found.append(int(folder.name))
    return found


def is_alive(pid: int) -> bool:
    """Whether a process runs; a zombie that nobody has waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def n_rows(output: Path) -> int:
    try:
        return len((output / "sweep.tsv").read_text().splitlines()) - 1
    except FileNotFoundError:
        return 0


def wait_for(output: Path, rows: int, process: subprocess.Popen) -> None:
    while n_rows(output) < rows and process.poll() is None:
        time.sleep(0.01)
    time.sleep(random.random())


def content(output: Path) -> tuple[pd.DataFrame, dict[str, str]]:
    """Return the table without seconds, and a checksum of each fit's weights."""
    table = pd.read_csv(output / "sweep.tsv", sep="\t", dtype=str, keep_default_na=False)
    weights = {
        file.parent.name: hashlib.sha256(file.read_bytes()).hexdigest()
        for file in output.glob("*/model.safetensors")
    }
    return table.drop(columns="core_seconds", errors="ignore"), weights


def start_cluster(file: Path) -> list[subprocess.Popen]:
    file.unlink(missing_ok=True)
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    shared = ["--no-dashboard", "--scheduler-file", str(file)]
    cli = [sys.executable, "-m"]
    scheduler = subprocess.Popen(
        [*cli, "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0", *shared],
        **quiet,
    )
    while not file.exists():
        time.sleep(0.02)
    workers = ["--nthreads", "1", "--nworkers", "2", "--death-timeout", "300"]
    worker = subprocess.Popen(
        [*cli, "distributed.cli.dask_worker", *workers, *shared], **quiet, start_new_session=True
    )
    return [scheduler, worker]


def stop_cluster(cluster: list[subprocess.Popen]) -> None:
    cluster[0].kill()
    os.killpg(cluster[1].pid, signal.SIGKILL)
    for process in cluster:
        process.wait()


def kill_worker(data: Path, output: Path, rows: int) -> str:
    sweep = start(data, output)
    wait_for(output, rows, sweep)
    workers = children(sweep.pid)
    if workers:
        os.kill(random.choice(workers), signal.SIGKILL)
    code, errors = finish(sweep)  # goes on by itself
    return f"exit {code}" if code == 0 else f"exit {code}: {errors}"


def kill_coordinator(data: Path, output: Path, rows: int) -> str:
    sweep = start(data, output)
    wait_for(output, rows, sweep)
    workers = children(sweep.pid)
    sweep.kill()
    killed, start_of_wait = finish(sweep)[0], time.monotonic()
    while any(map(is_alive, workers)):
        if time.monotonic() - start_of_wait > 5:
            return "orphans after 5 s"
        time.sleep(0.005)
    seconds = time.monotonic() - start_of_wait
    code, errors = finish(start(data, output))
    how = f"exit {killed}, workers gone in {seconds:.2f} s, repeated: exit {code}"
    return how if code == 0 else f"{how}: {errors}"


def kill_scheduler(data: Path, output: Path, rows: int) -> str:
    file = output.parent / "scheduler.json"
    cluster = start_cluster(file)
    sweep = start(data, output, "--dask-scheduler-file", str(file))
    wait_for(output, rows, sweep)
    cluster[0].kill()
    killed, errors = finish(sweep)
    stop_cluster(cluster)
    last = errors.strip().splitlines()[-1][:60]
    cluster = start_cluster(file)
    code, errors = finish(start(data, output, "--dask-scheduler-file", str(file)))
    stop_cluster(cluster)
    how = f"exit {killed} ({last}...), repeated: exit {code}"
    return how if code == 0 else f"{how}: {errors}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=20)
    parser.add_argument("--output", type=Path, help="Table of repetitions.")
    options = parser.parse_args()
    faults = {"worker": kill_worker, "coordinator": kill_coordinator, "scheduler": kill_scheduler}
    results = []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_data(folder / "data")
        if (ended := finish(start(folder / "data", folder / "undisturbed")))[0]:
            sys.exit(ended[1])
        expected_table, expected_weights = content(folder / "undisturbed")
        assert len(expected_table) == len(expected_weights) == N_FITS
        for repetition in range(options.repetitions):
            for name, fault in faults.items():
                random.seed(f"{repetition} {name}")
                output = folder / f"{name}-{repetition}"
                rows = n_before = random.randint(0, N_FITS - 3)
                how = fault(folder / "data", output, rows)
                table, weights = content(output)
                same = table.equals(expected_table) and weights == expected_weights
                row = {"repetition": repetition, "killed": name, "rows_before": n_before}
                results.append({**row, "same": same, "how": how})
                print(results[-1], flush=True)
    table = pd.DataFrame(results)
    print(table.groupby("killed")["same"].agg(["sum", "size"]).to_string())
    if options.output is not None:
        table.to_csv(options.output, sep="\t", index=False)
    sys.exit(0 if table["same"].all() else 1)


if __name__ == "__main__":
    main()
