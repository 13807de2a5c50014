"""``neuro-pe synthetic``: what is typed, printed and left."""

from dataclasses import asdict

import pytest

from neuro_pe.cli.synthetic import LST_OPTIONS, NMAR_OPTIONS, OF_RECIPE
from neuro_pe.synthetic import lst_settings, nmar_settings
from neuro_pe.synthetic.lst import RECIPES

LST = ["--width", "16", "--layers", "2", "--heads", "2", "--epochs", "1"]
NMAR = ["--regions", "12", "--modules", "2", "--subjects", "5", "--times", "200"]
NMAR += ["--within", "0.6", "--width", "16", "--epochs", "4"]


def test_the_defaults_shown_are_those_of_the_code():
    for recipe in RECIPES:
        settings = asdict(lst_settings(recipe))
        for name, shown in LST_OPTIONS.items():
            differs = any(name in other for other in RECIPES.values())
            assert shown == (OF_RECIPE if differs else f"{settings[name]}"), name
    settings = asdict(nmar_settings())
    assert {name: f"{settings[name]}" for name in NMAR_OPTIONS} == NMAR_OPTIONS


def test_latin_squares(call, tmp_path):
    code, out, err = call(
        "synthetic", "lst", "--output-dir", tmp_path, "--encoding", "learn,nope", *LST
    )
    assert (code, "Accuracy." in out) == (0, True)
    assert "[2/2]" in err
    assert {file.name for file in tmp_path.iterdir() if file.is_file()} >= {
        "lst.tsv",
        "lst_structure.tsv",
        "report.html",
        "sweep.tsv",
    }
    assert len(list(tmp_path.glob("encoding-*/model.safetensors"))) == 2


def test_networks(call, tmp_path):
    code, out, _ = call("synthetic", "nmar", "--output-dir", tmp_path, "--sigma", "0.1,1", *NMAR)
    assert code == 0
    assert "Modules. ARI" in out
    assert (tmp_path / "nmar.tsv").exists()
    # What it leaves is what other commands read.
    [place] = tmp_path.glob("noise-1_*")
    code, out, err = call(
        "compare-networks", place, "--partition", place / "modules.tsv", "--permutations", "50"
    )
    assert code == 0, err
    assert "12 regions, 2 networks" in out


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["lst", "--size", "four"], "--size: found 'four'"),
        (["lst", "--size", "3"], "size"),
        (["lst", "--size", "5", "--puzzles", "published"], "'published' of size 5"),
        (["lst", "--sigma", "-1"], "--sigma: found '-1'"),
        (["lst", "--heads", "3"], "--heads: found 3"),
        (["lst", "--mask-ratio", "0.5"], "--mask-ratio"),
        (["lst", "--seeds", "0"], "--seeds: found 0"),
        (["lst", "--encoding", "3d-fixed"], "needs MNI coordinates"),
        (["nmar", "--regions", "1000000000"], "--regions: found 1000000000"),
        (["nmar", "--regions", "-40"], "--regions: found -40"),
        (["nmar", "--noise", "loud"], "--noise: found 'loud'"),
        (["nmar", "--noise", "0"], "noise: found 0"),
        (["nmar", "--modules", "7"], "--modules: found 7"),
        (["nmar", "--within", "2"], "--within: found 2"),
        (["nmar", "--spectral-radius", "1.5"], "--spectral-radius: found 1.5"),
        (["nmar", "--times", "2"], "--times: found 2; expected a whole number from 3"),
        (["nmar", "--times", "9", "--window", "10"], "--times: found 9, under the window of 10"),
        (["lst", "--width", "1000000000000"], "the memory is not enough; ask for a smaller"),
        (["nmar", "--subjects", "2"], "--subjects"),
    ],
)
def test_bad_options(call, tmp_path, arguments, named):
    code, out, err = call("synthetic", *arguments, "--output-dir", tmp_path / "out")
    assert (code, out) == (2, "")
    assert named in err
    assert len(err.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "command", [["synthetic", "lst"], ["sweep", "--demo"], ["train", "--demo"]]
)
def test_an_empty_name_is_no_folder(call, command):
    code, _, err = call(*command, "--output-dir", "")
    assert code == 2
    assert "--output-dir: found an empty name" in err
