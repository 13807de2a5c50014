"""Model folders: what is written is what is read, what is damaged is named, nothing is run."""

import json
import pickle
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from neuro_pe import FitSettings, InputError, MaskedRegionModel, train_models
from neuro_pe.building import load_network
from neuro_pe.model_folder import (
    LABELLED,
    TABLES,
    ModelFolder,
    find_model_folders,
    partial_path,
    read_checkpoint,
    read_model_folder,
    write_checkpoint,
    write_model_folder,
    write_settings,
)

ODD_NAMES = ["01", "NA", "None", "n/a", "nan", "L_V1", " blank", 'quo"ted', "tab\tbed", "7"]


def some_folder(path, *, names=ODD_NAMES, encoding="learn"):
    """Build a model folder in memory, with names, gaps and hemispheres that are hard to write."""
    rng = np.random.default_rng(3)
    n = len(names)
    index = pd.Index(names, name="region")
    vectors = pd.DataFrame(rng.normal(size=(n, 4)), index=index).add_prefix("dimension_")
    there = encoding != "nope"
    return ModelFolder(
        path=path,
        settings=FitSettings(encoding=encoding, width=4, heads=2, epochs=3, device="cpu"),
        data={"atlas": None, "sources": ["/data"], "fingerprint": "f", "tr": 0.72},
        regions=pd.DataFrame(
            {
                "name": names,
                "hemisphere": ["L", "R"] * (n // 2) + ["L"] * (n % 2),
                "x": [np.nan, *rng.normal(size=n - 1)],
                "yeo7": ["None", "n/a ", *["Vis"] * (n - 2)],
            }
        ),
        dropped=pd.DataFrame({"name": ["03", "NULL"], "reason": ["constant in sub-01", "n.a."]}),
        subjects=pd.DataFrame({"subject": ["01", "NA", "3"], "split": ["train", "train", "test"]}),
        metrics=pd.DataFrame(
            {"epoch": pd.array([1, None], dtype="Int64"), "mse": [0.5, np.nan], "split": "train"}
        ),
        positional_encoding=vectors if there else None,
        positional_encoding_change=vectors / 2 if there else None,
        functional_connectivity=pd.DataFrame(np.eye(n), index=index, columns=names),
        region_errors=pd.DataFrame(
            {"region": names, "subject": "01", "predictor": "zero", "mse": 0.25, "n": 3}
        ),
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory, make_cohort, small):
    """One trained model, to be copied before it is damaged."""
    output = tmp_path_factory.mktemp("trained") / "out"
    return train_models(make_cohort(), output_dir=output, settings=small)[0].path


@pytest.fixture
def model(trained, tmp_path):
    """Path of a model folder of one's own."""
    return Path(shutil.copytree(trained, tmp_path / "holder" / trained.name))


class TestRoundTrip:
    def test_tables_and_labels(self, tmp_path):
        folder = some_folder(tmp_path / "model")
        write_model_folder(folder, {"a": torch.ones(2)})
        back = read_model_folder(tmp_path / "model")
        assert back.settings == folder.settings
        assert back.data == folder.data
        for name in ("dropped", "subjects", "metrics", "region_errors"):
            pd.testing.assert_frame_equal(
                getattr(back, name), getattr(folder, name), check_dtype=False
            )
        assert back.regions["name"].tolist() == ODD_NAMES
        assert list(back.regions.columns) == list(folder.regions.columns)
        assert back.regions["hemisphere"].tolist() == folder.regions["hemisphere"].tolist()
        assert back.regions["yeo7"].tolist() == folder.regions["yeo7"].tolist()
        assert np.allclose(back.regions["x"], folder.regions["x"], equal_nan=True)
        for name in ("positional_encoding", "functional_connectivity"):
            one, other = getattr(back, name), getattr(folder, name)
            assert list(one.index) == list(other.index)
            assert list(one.columns) == list(other.columns)
            assert np.allclose(one, other, rtol=1e-6)

    def test_nothing_dropped_no_encoding_no_errors(self, tmp_path):
        folder = some_folder(tmp_path / "model", encoding="nope")
        object.__setattr__(folder, "dropped", folder.dropped[:0])
        object.__setattr__(folder, "region_errors", folder.region_errors[:0])
        write_model_folder(folder, {})
        back = read_model_folder(tmp_path / "model")
        assert back.dropped.empty
        assert back.region_errors.empty
        assert back.positional_encoding is None
        assert back.positional_encoding_change is None
        assert len(back.regions) == len(ODD_NAMES)

    def test_weights_of_any_layout(self, tmp_path):
        base = torch.arange(6.0).reshape(2, 3)
        weights = {"view": base.T, "shared": base, "half": base.bfloat16(), "step": torch.tensor(3)}
        write_model_folder(some_folder(tmp_path / "model"), weights)
        back = read_model_folder(tmp_path / "model").weights()
        assert set(back) == set(weights)
        for name, tensor in weights.items():
            assert back[name].dtype == tensor.dtype
            assert torch.equal(back[name], tensor)

    def test_checkpoint(self, tmp_path):
        tensors, state = {"a.b": torch.randn(3)}, {"rows": [{"train": 0.1 + 0.2}], "best": 1}
        assert read_checkpoint(tmp_path) is None
        write_checkpoint(tmp_path, tensors, state)
        back = read_checkpoint(tmp_path)
        assert torch.equal(back[0]["a.b"], tensors["a.b"])
        assert back[1] == state


class TestWriting:
    def test_no_trace_of_the_work_is_left(self, tmp_path):
        partial = partial_path(tmp_path / "model")
        partial.mkdir()
        write_settings(partial, FitSettings(), {})
        write_checkpoint(partial, {"a": torch.ones(1)}, {})
        # What a kill in the middle of a write leaves.
        (partial / ".metrics.tsv.abcd.tsv").write_text("half")
        (partial / "checkpoint" / ".state.safetensors.abcd.safetensors").write_text("half")
        write_model_folder(some_folder(tmp_path / "model"), {})
        assert [path.name for path in tmp_path.iterdir()] == ["model"]
        names = {path.name for path in (tmp_path / "model").iterdir()}
        assert "checkpoint" not in names
        assert not [name for name in names if name.startswith(".")]

    def test_an_encoding_of_an_earlier_try_does_not_stay(self, tmp_path):
        partial = partial_path(tmp_path / "model")
        partial.mkdir()
        (partial / "positional_encoding.tsv").write_text("region\tdimension_0\n01\t1\n")
        write_model_folder(some_folder(tmp_path / "model", encoding="nope"), {})
        assert read_model_folder(tmp_path / "model").positional_encoding is None


FILES = [f"{name}.tsv" for name in ("regions", *TABLES, *LABELLED)]
FILES += ["model.safetensors"]


class TestDamage:
    """Each ends in one line that names the file."""

    def refused(self, model, words, read=read_model_folder):
        with pytest.raises(InputError, match=words) as caught:
            read(model)
        assert "\n" not in str(caught.value)
        assert str(model) in str(caught.value)

    def edit(self, model, change):
        content = json.loads((model / "settings.json").read_text())
        change(content)
        (model / "settings.json").write_text(json.dumps(content))

    def test_a_newer_format(self, model):
        self.edit(model, lambda content: content.update(format_version=2))
        self.refused(model, r"settings.json: format version 2, .* reads up to 1; update neuro_pe")

    def test_a_newer_format_that_calls_things_otherwise(self, model):
        (model / "settings.json").write_text('{"format_version": 7, "options": {}}')
        self.refused(model, "format version 7, .*update neuro_pe")

    def test_an_unknown_setting(self, model):
        self.edit(model, lambda content: content["settings"].update(rotation=1))
        self.refused(model, "settings.json: settings: unknown option 'rotation'.*Update")

    @pytest.mark.parametrize(
        "value", [{"heads": "8"}, {"sigma": -1}, {"encoding": "x"}, {"layers": True}]
    )
    def test_a_setting_that_cannot_be(self, model, value):
        self.edit(model, lambda content: content["settings"].update(value))
        self.refused(model, f"settings.json: {next(iter(value))}: found")

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "{",
            "[]",
            "null",
            "{}",
            '{"format_version": 1}',
            '{"format_version": 1, "settings": 3, "data": {}}',
            '{"format_version": "x", "settings": {}, "data": {}}',
            '{"format_version": null}',
            "[" * 100_000,
            b"\xff\xfe\x00",
        ],
        ids=lambda text: repr(text[:12]),
    )
    def test_settings_that_are_no_settings(self, model, text):
        data = text if isinstance(text, bytes) else text.encode()
        (model / "settings.json").write_bytes(data)
        self.refused(model, "settings.json: damaged; expected the JSON")

    @pytest.mark.parametrize("name", FILES)
    def test_a_missing_file(self, model, name):
        (model / name).unlink()
        self.refused(model, f"{name}: missing; delete {model}, and the command that made it")

    @pytest.mark.parametrize("name", FILES)
    @pytest.mark.parametrize("damage", ["cut", "empty", "digit"])
    def test_a_damaged_file(self, model, name, damage):
        content = bytearray((model / name).read_bytes())
        content[-2] ^= 1
        damaged = {"cut": content[:-7], "empty": b"", "digit": content}
        (model / name).write_bytes(damaged[damage])
        self.refused(model, rf"{name}: damaged \(not as it was written\); delete {model}, and")

    @pytest.mark.parametrize("checksums", [None, {}, [], "x", {"regions.tsv": 3}])
    def test_damaged_checksums(self, model, checksums):
        self.edit(model, lambda content: content.update(checksums=checksums))
        self.refused(model, r"settings.json: damaged \(checksums are missing\); delete")

    def test_a_file_that_is_not_of_the_fit(self, tmp_path):
        write_model_folder(some_folder(tmp_path / "model", encoding="nope"), {})
        (tmp_path / "model" / "positional_encoding.tsv").write_text("region\tdimension_0\n01\t1\n")
        assert read_model_folder(tmp_path / "model").positional_encoding is None

    def test_a_fit_of_a_synthetic_task(self, model):
        self.edit(model, lambda content: content["data"].update(task="lst"))
        self.refused(model, "a fit of the task lst; expected one of time series of regions")

    def test_missing_settings(self, model):
        (model / "settings.json").unlink()
        self.refused(model, "no settings.json; expected a model folder")

    @pytest.mark.parametrize(
        ("part", "change"),
        [("settings", {"width": 32}), ("settings", {"lr": 0.1}), ("data", {"tr": 3})],
    )
    def test_settings_that_were_changed(self, model, part, change):
        self.edit(model, lambda content: content[part].update(change))
        self.refused(model, r"settings.json: damaged \(not as it was written\); delete")

    def test_weights_of_other_regions(self, model):
        folder = read_model_folder(model)
        object.__setattr__(folder, "regions", folder.regions[:-1])
        with pytest.raises(InputError, match="the weights do not fit"):
            load_network(folder)


class TestNothingInItIsRun:
    @pytest.mark.parametrize("save", ["pickle", "torch"])
    @pytest.mark.parametrize(
        "name", ["model.safetensors", "settings.json", "positional_encoding.tsv", "regions.tsv"]
    )
    def test_a_pickle_in_the_place_of_a_file(self, model, tmp_path, save, name):
        trap = tmp_path / "trap"
        if save == "pickle":
            (model / name).write_bytes(pickle.dumps(Trap(trap)))
        else:
            torch.save({"a": Trap(trap)}, model / name)
        with pytest.raises(InputError):
            MaskedRegionModel.load(model)
        assert not trap.exists()
        # The trap is a live one.
        if save == "pickle":
            pickle.loads((model / name).read_bytes())
            assert trap.exists()

    def test_a_pickle_in_the_place_of_a_checkpoint(self, tmp_path):
        (tmp_path / "checkpoint").mkdir()
        file = tmp_path / "checkpoint" / "state.safetensors"
        file.write_bytes(pickle.dumps(Trap(tmp_path / "trap")))
        with pytest.raises(InputError, match=r"state.safetensors: damaged.*Delete .* fit it again"):
            read_checkpoint(tmp_path)
        assert not (tmp_path / "trap").exists()


class Trap:
    """Creates a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


class TestFinding:
    def test_a_folder_and_the_folder_that_holds_it_count_once(self, model, monkeypatch):
        shutil.copytree(model, model.parent / "another")
        (model.parent / "report.html").write_text("")
        (model.parent / "figures").mkdir()
        found = find_model_folders([model.parent])
        assert [folder.path.name for folder in found] == ["another", model.name]
        assert [folder.path for folder in find_model_folders([str(model)])] == [model]
        monkeypatch.chdir(model.parent)
        assert len(find_model_folders([model, model.name, model.parent, "."])) == 2

    def test_unfinished_fits_are_passed_over(self, model):
        shutil.copytree(model, model.parent / "b.partial")
        assert [folder.path for folder in find_model_folders([model.parent])] == [model]

    def test_an_unfinished_fit_itself(self, model):
        partial = model.rename(partial_path(model))
        with pytest.raises(InputError, match=r"\.partial: an unfinished fit; .*--resume"):
            find_model_folders([partial])

    def test_unfinished_fits_only(self, model):
        model.rename(partial_path(model))
        with pytest.raises(InputError, match=r"holder: no model folder in it \(only unfinished"):
            find_model_folders([model.parent])

    @pytest.mark.parametrize(
        ("make", "words"),
        [
            (lambda path: None, "found nothing; expected a model folder"),
            (lambda path: path.mkdir(), "no model folder in it; `neuro-pe train` writes them"),
            (lambda path: path.write_text(""), "found a file; expected a model folder"),
        ],
    )
    def test_nothing_there(self, tmp_path, make, words):
        make(tmp_path / "place")
        with pytest.raises(InputError, match=f"place: {words}"):
            find_model_folders([tmp_path / "place"])
