"""The example and the table of docs/encodings.md."""

import re
import runpy
import sys
from pathlib import Path

import pytest

from neuro_pe.encodings import _base, make_encoding
from neuro_pe.settings import ENCODINGS, WITH_VECTORS

PAGE = (Path(__file__).parents[1] / "docs" / "encodings.md").read_text(encoding="utf-8")
# The sizes of a model that trains in a second.
SMALL = {
    'encoding="hemispheres")': 'encoding="hemispheres", epochs=1, width=16, heads=2)',
    '"hemispheres"]}': '"hemispheres"], "epochs": [1], "width": [16], "heads": [2]}',
    "n_seeds=3": "n_seeds=1, n_workers=1",
}


def test_the_tables_have_every_encoding_and_what_it_learns(rng):
    added, inside = PAGE.split("## All encodings")[1].split("## Options")[0].split("Inside the att")
    for part, names in ((added, set(WITH_VECTORS)), (inside, set(ENCODINGS) - set(WITH_VECTORS))):
        rows = dict(re.findall(r"^\| `([\w-]+)` \|.*\| ([\d,]+) \| [\d. ]*\|$", part, re.MULTILINE))
        assert set(rows) == names
        for name, learned in rows.items():
            encoding = make_encoding(
                name,
                n_regions=360,
                width=128,
                heads=8,
                n_blocks=3,
                grid=(18, 20),
                coordinates=rng.uniform(-70, 70, size=(360, 3)),
                connectivity=rng.normal(size=(360, 360)) + 9 * (rng.random((360, 360)) > 0.9),
            )
            found = sum(each.numel() for each in encoding.parameters() if each.requires_grad)
            assert f"{found:,}" == learned, name


@pytest.fixture
def run_example(tmp_path, make_derivative, monkeypatch, capsys):
    """Write the class beside a script of the page, and run that on tiny data."""
    folder = make_derivative(subjects=[f"{number:02d}" for number in range(1, 7)], n_times=50)
    (tmp_path / "derivatives").mkdir()
    folder.rename(tmp_path / "derivatives" / "xcp_d")
    module, *scripts = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "hemispheres.py").write_text(module, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)

    def run(number):
        script = scripts[number]
        for text, small in SMALL.items():
            script = script.replace(text, small)
        (tmp_path / "script.py").write_text(script, encoding="utf-8")
        runpy.run_path("script.py", run_name="__main__")
        return capsys.readouterr().out

    yield run
    sys.modules.pop("hemispheres", None)
    _base._REGISTRY.pop("hemispheres", None)
    if "hemispheres" in ENCODINGS:
        ENCODINGS.remove("hemispheres")


@pytest.mark.filterwarnings("ignore")  # of so few subjects and steps
def test_the_example_trains_a_model(run_example):
    assert "[360 rows x 16 columns]" in run_example(0)


@pytest.mark.filterwarnings("ignore")
def test_processes_of_a_sweep_find_the_example(run_example, tmp_path):
    assert "hemispheres" in run_example(1)
    [folder] = (tmp_path / "sweep").glob("encoding-hemispheres_*")
    assert (folder / "positional_encoding.tsv").exists()
