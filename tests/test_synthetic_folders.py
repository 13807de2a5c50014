"""The folders of synthetic tasks: what stands in them already is kept, gone on from or refused."""

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest

from neuro_pe import InputError, sweep
from neuro_pe.model_folder import find_model_folders
from neuro_pe.report import write_comparison
from neuro_pe.synthetic import lst_text, sweep_lst, sweep_nmar

pytestmark = pytest.mark.filterwarnings("ignore:only . training steps")

LST = {"width": [8], "layers": [1], "epochs": [1], "batch_size": [2700]}
NMAR = {"width": [8], "heads": [2], "layers": [1], "epochs": [1]}
NETWORK = {"n_regions": 8, "n_modules": 2, "n_subjects": 4, "n_times": 120}


def run_lst(folder, **grid):
    return sweep_lst(output_dir=folder, grid={**LST, **grid}, n_workers=1)


def run_nmar(folder, **grid):
    return sweep_nmar(output_dir=folder, grid={**NMAR, **grid}, network=NETWORK, n_workers=1)


@pytest.fixture
def commands(make_cohort, small):
    """All that leaves fits in a folder."""
    from neuro_pe import train_models

    return {
        "lst": run_lst,
        "nmar": run_nmar,
        "sweep": lambda folder: sweep(make_cohort(), output_dir=folder, settings=[small]),
        "train": lambda folder: train_models(make_cohort(), output_dir=folder, settings=small),
    }


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folders = {task: tmp_path_factory.mktemp(task) for task in ("lst", "nmar")}
    run_lst(folders["lst"])
    run_nmar(folders["nmar"])
    return folders


@pytest.fixture
def copied(finished, tmp_path):
    """Return a folder of a task of one's own."""
    return lambda task: Path(shutil.copytree(finished[task], tmp_path / task))


def contents(folder):
    return {
        path: path.read_bytes() if path.is_file() else None for path in sorted(folder.rglob("*"))
    }


@pytest.mark.parametrize("is_listed", [True, False])
@pytest.mark.parametrize(
    ("task", "command"),
    [
        (task, command)
        for task in ("lst", "nmar")
        for command in ("lst", "nmar", "sweep", "train")
        if command != task
    ],
)
def test_one_task_a_folder(copied, commands, task, command, is_listed):
    folder = copied(task)
    if not is_listed:
        (folder / "sweep.tsv").unlink()
    before = contents(folder)
    with pytest.raises(InputError, match=f"it holds a sweep of the task {task}; choose another"):
        commands[command](folder)
    assert contents(folder) == before


@pytest.mark.parametrize("task", ["lst", "nmar"])
def test_fits_of_brain_data(commands, tmp_path, task):
    commands["train"](tmp_path)
    before = contents(tmp_path)
    with pytest.raises(InputError, match="it holds fits of brain data; choose another"):
        commands[task](tmp_path)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("command", ["lst", "nmar", "sweep", "train"])
def test_a_model_folder_holds_no_others(copied, commands, command):
    [path] = copied("lst").glob("encoding-*")
    with pytest.raises(InputError, match="it is a model folder; expected a folder to hold"):
        commands[command](path)


@pytest.mark.parametrize("task", ["lst", "nmar"])
def test_a_deleted_table_is_made_again(copied, commands, task):
    folder = copied(task)
    before = (folder / f"{task}.tsv").read_bytes()
    (folder / "sweep.tsv").unlink()
    commands[task](folder)
    assert (folder / f"{task}.tsv").read_bytes() == before


@pytest.mark.parametrize("task", ["lst", "nmar"])
def test_a_damaged_description(copied, commands, task):
    folder = copied(task)
    (folder / "sweep.json").write_text("{")
    with pytest.raises(InputError, match=r"sweep.json: damaged; .* Delete it; the same command"):
        commands[task](folder)
    (folder / "sweep.json").write_text(json.dumps({"task": "another"}))
    with pytest.raises(InputError, match="it holds a sweep of the task another"):
        commands[task](folder)
    (folder / "sweep.json").unlink()
    commands[task](folder)
    assert json.loads((folder / "sweep.json").read_text())["task"] == task


@pytest.mark.parametrize(
    ("task", "name"),
    [
        ("lst", "report.html"),
        ("lst", "lst.tsv"),
        ("lst", "lst_structure.tsv"),
        ("lst", "figures/mine.png"),
        ("nmar", "nmar.tsv"),
        ("nmar", "figures/mine.png"),
    ],
)
def test_files_of_the_user_are_not_replaced(commands, tmp_path, task, name):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("mine")
    with pytest.raises(InputError, match=f"{name.split('/')[0]}: found a f.* not of this command"):
        commands[task](tmp_path)
    assert [path.read_text() for path in tmp_path.rglob("*") if path.is_file()] == ["mine"]


@pytest.mark.parametrize("name", ["lst.tsv", "figures"])
def test_a_place_of_the_wrong_kind(copied, name):
    folder = copied("lst")
    if name == "figures":
        shutil.rmtree(folder / name, ignore_errors=True)
        (folder / name).touch()
    else:
        (folder / name).unlink()
        (folder / name).mkdir()
    with pytest.raises(InputError, match=rf"{name}: found a f"):
        run_lst(folder)


def test_a_backup_is_no_leftover(copied):
    folder = copied("lst")
    for name in (".sweep.tsv.backup", ".sweep.tsv.old.tsv", ".sweep.tsv.a1b2c3d4.tsv"):
        (folder / name).touch()
    run_lst(folder)
    assert (folder / ".sweep.tsv.backup").exists()
    assert (folder / ".sweep.tsv.old.tsv").exists()
    assert not (folder / ".sweep.tsv.a1b2c3d4.tsv").exists()  # of a write that was killed


@pytest.mark.parametrize("kind", ["file", "folder"])
@pytest.mark.parametrize("task", ["lst", "nmar"])
def test_something_else_of_the_name_of_a_fit(copied, commands, task, kind):
    folder = copied(task)
    [path] = (file.parent for file in folder.rglob("encoding-*/settings.json"))
    shutil.rmtree(path)
    path.touch() if kind == "file" else path.mkdir()
    with pytest.raises(InputError, match=f"{path}: not the fit of that name"):
        commands[task](folder)


def test_names_of_the_folder(commands, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for task in ("lst", "nmar"):
        with pytest.raises(InputError, match="output_dir: found an empty name"):
            commands[task]("")
        commands[task](f"~/{task}")
        assert (tmp_path / task / f"{task}.tsv").exists()
    (tmp_path / "file").touch()
    for place in ("file", "file/below"):
        with pytest.raises(InputError, match=f"--output-dir {place}"):
            run_lst(place)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "lst", "nmar"]


def test_compare_networks_says_what_it_finds(copied):
    with pytest.raises(InputError, match="a fit of the task lst; expected one of time series"):
        find_model_folders([copied("lst")])
    folder = copied("nmar")
    words = f"{folder}: no model folder in it, but in {folder}/noise-1_.*seed-0, for one"
    with pytest.raises(InputError, match=words):
        find_model_folders([folder])


@pytest.mark.parametrize(
    "change",
    [
        {"recipe": None},
        {"recipe": "slow"},
        {"recipe": []},
        {"size": "x"},
        {"size": 5},
        {"puzzles": "generated"},
    ],
)
def test_data_of_a_fit_that_were_changed(copied, change):
    folder = copied("lst")
    [file] = folder.glob("encoding-*/settings.json")
    content = json.loads(file.read_text())
    content["data"] |= change
    file.write_text(json.dumps(content))
    with pytest.raises(InputError, match=f"{file}: damaged .* delete {file.parent}, and"):
        run_lst(folder)


@pytest.mark.parametrize("values", [[], 3, "4", None])
def test_lists(tmp_path, values):
    with pytest.raises(InputError, match=r"sizes: found .*; expected a list of values"):
        sweep_lst(output_dir=tmp_path, sizes=values)
    with pytest.raises(InputError, match=r"noises: found .*; expected a list of values"):
        sweep_nmar(output_dir=tmp_path, noises=values)
    with pytest.raises(InputError, match="size: found '4'; expected a whole number"):
        sweep_lst(output_dir=tmp_path, sizes=["4"])
    with pytest.raises(InputError, match="noise: found '1'; expected a number"):
        sweep_nmar(output_dir=tmp_path, noises=["1"])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("task", ["lst", "nmar"])
def test_copies_in_the_folder_are_left_alone(copied, commands, task):
    folder = copied(task)
    before = (folder / f"{task}.tsv").read_bytes()
    [path] = (file.parent for file in folder.rglob("encoding-*/settings.json"))
    shutil.copytree(path, folder / "backup" / path.name)
    shutil.copytree(path, path.with_name(f"{path.name} (copy)"))
    commands[task](folder)
    assert (folder / f"{task}.tsv").read_bytes() == before


@pytest.mark.parametrize("task", ["lst", "nmar"])
def test_a_copy_in_place_of_another_fit(copied, commands, task):
    folder = copied(task)
    [path] = (file.parent for file in folder.rglob("encoding-*/settings.json"))
    other = path.with_name(path.name.replace("width-8", "width-16"))
    shutil.copytree(path, other)
    with pytest.raises(InputError, match=f"{other}: not the fit of that name"):
        commands[task](folder, width=[16])


@pytest.mark.parametrize("task", ["lst", "nmar"])
def test_a_table_that_an_editor_saved(copied, commands, task):
    """Without its last newline, and with a row of empty cells."""
    folder = copied(task)
    before = (folder / f"{task}.tsv").read_bytes()
    file = folder / "sweep.tsv"
    text = file.read_text()
    for changed in (text.rstrip("\n"), text + "\t" * text.split("\n")[0].count("\t") + "\n"):
        file.write_text(changed)
        commands[task](folder)
        assert (folder / f"{task}.tsv").read_bytes() == before


def test_fits_that_the_user_deleted(copied):
    """What is not asked for any more may go."""
    folder = copied("lst")
    run_lst(folder, sigma=[1.0])
    shutil.rmtree(next(folder.glob("encoding-learn_sigma-1_*")))
    assert len(run_lst(folder).folders) == 1


def test_long_names(tmp_path):
    options = {
        "distribution": ["uniform"], "rank": [2], "inject": ["input"], "optimizer": ["adamw"],
        "lr": [0.00123456789], "encoding_lr": [0.00123456789], "weight_decay": [0.0123456789],
        "schedule": ["constant"], "precision": ["float32"], "device": ["cpu"],
        "sigma": [0.1, 0.123456789],
    }  # fmt: skip
    first = run_lst(tmp_path, **options)
    assert len({fit.path.name for fit in first.folders}) == 2
    assert len(run_lst(tmp_path, **options).folders) == 2


def test_only_sigma_differs_in_a_line(tmp_path):
    for sigma, width in ((0.1, 8), (1.0, 16), (2.0, 32)):
        result = run_lst(tmp_path, sigma=[sigma], width=[width])
    assert "Rank correlation" not in lst_text(result)
    result = run_lst(tmp_path, sigma=[0.1, 1.0, 2.0])
    assert "Rank correlation with sigma (3 sigmas, heads-1, size-4, " in lst_text(result)


def test_a_damaged_partial_fit(copied):
    folder = copied("lst")
    [path] = folder.glob("encoding-*")
    shutil.rmtree(path)
    partial = path.with_name(f"{path.name}.partial")
    partial.mkdir()
    (partial / "metrics.tsv").write_text("junk")
    [error] = run_lst(folder).failed["error"]
    assert f"metrics.tsv: damaged; delete {partial}, and the same command" in error
    shutil.rmtree(partial)
    partial.touch()
    with pytest.raises(InputError, match=f"{partial}: found a file; expected a folder"):
        run_lst(folder)


def test_a_report_of_a_sweep_is_not_replaced_by_another(copied):
    folder = copied("nmar")
    [place] = folder.glob("noise-1_*")
    models = find_model_folders([place])
    modules = pd.read_csv(place / "modules.tsv", sep="\t", index_col="name")["module"]
    with pytest.raises(InputError, match="it holds a sweep of the task nmar"):
        write_comparison(models, partition=modules, output_dir=folder)
