"""The Latin Square Task: the network, its training, and what is measured of it."""

import json
import shutil

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from neuro_pe.comparison import procrustes_distance
from neuro_pe.errors import InputError
from neuro_pe.synthetic import (
    PuzzleSplits,
    fit_lst,
    jaccard_dissimilarity,
    lst_settings,
    read_lst_folder,
    split_puzzles,
    sweep_lst,
)
from neuro_pe.synthetic.lst import accuracies, new_lst_network
from neuro_pe.synthetic.lst_folder import write_lst_folder
from neuro_pe.synthetic.lst_report import lst_text, write_lst_report
from neuro_pe.synthetic.lst_truth import (
    attention_correlation,
    grid_distances,
    grid_encoding,
    measure_encoding,
    measure_fit,
)

SMALL = {"width": 16, "layers": 2, "heads": 2, "epochs": 2}


@pytest.fixture(scope="module")
def splits():
    everything = split_puzzles()
    few = slice(0, None, 40)
    return PuzzleSplits(
        train=everything.train.select(few),
        heldout=everything.heldout.select(few),
        unlike=everything.unlike,
        unlike_name="human108",
    )


@pytest.fixture(scope="module")
def fit(splits):
    return fit_lst(splits, lst_settings("fast", **SMALL))


class TestSplits:
    def test_the_published_puzzles(self):
        splits = split_puzzles()
        sizes = {name: len(puzzles) for name, puzzles in splits.named().items()}
        assert sizes == {"train": 8100, "heldout": 900, "human108": 108}
        for puzzles in (splits.train, splits.heldout):
            counts = np.bincount(puzzles.complexity)[1:]
            assert np.ptp(counts) == 0  # stratified
        every = {puzzle.tobytes() for puzzle in splits.train.cells}
        assert not every & {puzzle.tobytes() for puzzle in splits.heldout.cells}

    @pytest.mark.parametrize("size", [4, 5])
    def test_drawn_puzzles_are_unlike(self, size):
        splits = split_puzzles(size=size, source="generated", seed=3)
        assert splits.unlike_name == "unlike"
        assert len(splits.train) == 2700 * (size - 1)
        assert len(splits.unlike) == 36 * (size - 1)
        for puzzles in (splits.train, splits.heldout):
            assert jaccard_dissimilarity(splits.unlike.cells, puzzles.cells).min() >= 0.8

    @pytest.mark.parametrize(("size", "source"), [(5, "published"), (4, "mine")])
    def test_what_there_is_not(self, size, source):
        with pytest.raises(InputError, match=f"puzzles: found '{source}'"):
            split_puzzles(size=size, source=source)


class TestNetwork:
    def test_as_large_as_the_papers(self):
        network = new_lst_network(lst_settings("paper"), size=4)
        assert sum(each.numel() for each in network.parameters()) == 1_248_964  # 1.25 million

    @pytest.mark.parametrize("encoding", ["learn", "2d-fixed", "rope", "relative", "nope", "cope"])
    def test_the_short_cut_changes_nothing(self, encoding):
        """Updating only the last token in the last block gives what updating all would."""
        network = new_lst_network(lst_settings(encoding=encoding, **SMALL), size=4).eval()
        cells = torch.randint(0, 6, (5, 16), generator=torch.Generator().manual_seed(0))
        whole = network._encode(*network._tokens(cells))
        torch.testing.assert_close(network(cells), network.readout(whole[:, -1]))

    def test_against_layers_of_pytorch(self):
        """One block with a GELU more after its MLP, encodings added before every block."""
        network = new_lst_network(lst_settings(**SMALL), size=4).eval()
        cells = torch.randint(0, 6, (5, 16), generator=torch.Generator().manual_seed(1))
        one_hot = nn.functional.one_hot(cells, 6)[..., 1:].float()
        tokens = one_hot @ network.embed.weight.T + network.embed.bias
        for block, encoding in zip(network.encoder, network.encodings, strict=True):
            attention = nn.MultiheadAttention(16, 2, batch_first=True)
            joined = [block.query, block.key, block.value]
            attention.load_state_dict(
                {
                    "in_proj_weight": torch.cat([each.weight for each in joined]),
                    "in_proj_bias": torch.cat([each.bias for each in joined]),
                    "out_proj.weight": block.out.weight,
                    "out_proj.bias": block.out.bias,
                }
            )
            tokens = tokens + encoding()
            added, _ = attention(tokens, tokens, tokens, need_weights=False)
            tokens = block.norm_query(tokens + added)
            inner = nn.functional.gelu(block.mlp_in(tokens))
            tokens = block.norm_mlp(tokens + nn.functional.gelu(block.mlp_out(inner)))
        torch.testing.assert_close(network(cells), network.readout(tokens[:, -1]))

    def test_a_blank_is_no_symbol(self):
        network = new_lst_network(lst_settings(**SMALL), size=4).eval()
        tokens, _ = network._tokens(torch.zeros(1, 16, dtype=torch.int64))
        torch.testing.assert_close(tokens[0], network.embed.bias.expand(16, -1))

    def test_maps_are_what_is_attended_with(self):
        network = new_lst_network(lst_settings(**SMALL), size=4).eval()
        cells = torch.randint(0, 6, (3, 16), generator=torch.Generator().manual_seed(1))
        maps = network.attention_maps(cells)
        assert maps.shape == (2, 3, 2, 16, 16)
        torch.testing.assert_close(maps.sum(dim=-1), torch.ones(2, 3, 2, 16))

    def test_encodings_of_the_brain_are_refused(self):
        with pytest.raises(InputError, match="3d-fixed"):
            new_lst_network(lst_settings(encoding="3d-fixed"), size=4)


class TestFit:
    def test_it_learns(self, splits):
        fit = fit_lst(splits, lst_settings(**{**SMALL, "epochs": 40, "batch_size": 16}))
        last = fit.metrics[fit.metrics["epoch"] == 40]
        train = last[(last["split"] == "train") & (last["complexity"] == "all")]
        assert train["accuracy"].item() > 0.5  # chance is 0.25

    def test_accuracies(self, splits):
        class Oracle(nn.Module):
            """Right about complexity 1, wrong about all else."""

            def __init__(self):
                super().__init__()
                self.weight = nn.Parameter(torch.zeros(1))

            def forward(self, cells):
                answers = torch.from_numpy(splits.unlike.solutions.astype(int) - 1)
                wrong = torch.from_numpy(splits.unlike.complexity != 1).long()
                return nn.functional.one_hot((answers + wrong) % 4, 4).float()

        rows = accuracies(Oracle(), splits.unlike)
        found = {row["complexity"]: (row["accuracy"], row["n"]) for row in rows}
        assert found == {
            "1": (1, 36),
            "2": (0, 36),
            "3": (0, 36),
            "all": (pytest.approx(1 / 3), 108),
        }

    def test_same_seed_same_numbers(self, splits, fit):
        again = fit_lst(splits, lst_settings("fast", **SMALL))
        np.testing.assert_array_equal(again.positional_encoding, fit.positional_encoding)
        assert again.metrics["accuracy"].equals(fit.metrics["accuracy"])

    def test_an_interrupted_fit_goes_on_to_the_same_numbers(self, splits, tmp_path, monkeypatch):
        monkeypatch.setattr("neuro_pe.training.SECONDS_BETWEEN_CHECKPOINTS", 0.0)
        settings = lst_settings("fast", **{**SMALL, "epochs": 3})
        whole = fit_lst(splits, settings, evaluate_every=1)

        def stop(now):
            if now["epoch"] == 2:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            fit_lst(splits, settings, evaluate_every=1, folder=tmp_path, progress=stop)
        resumed = fit_lst(splits, settings, evaluate_every=1, folder=tmp_path)
        np.testing.assert_array_equal(resumed.positional_encoding, whole.positional_encoding)
        columns = ["epoch", "split", "complexity", "accuracy", "n"]
        pd.testing.assert_frame_equal(resumed.metrics[columns], whole.metrics[columns])

    def test_its_folder(self, fit, tmp_path):
        data = {"task": "lst", "recipe": "fast", "size": 4, "puzzles": "published"}
        write_lst_folder(fit, tmp_path / "fit", data=data, structure=measure_fit(fit))
        folder = read_lst_folder(tmp_path / "fit")
        assert folder.settings == fit.settings
        np.testing.assert_allclose(folder.positional_encoding, fit.positional_encoding, rtol=1e-6)
        assert list(folder.positional_encoding.index[:5]) == [
            *(f"row_1_column_{column}" for column in (1, 2, 3, 4)),
            "row_2_column_1",
        ]
        np.testing.assert_array_equal(folder.attention, fit.attention)
        assert folder.metrics["accuracy"].to_numpy() == pytest.approx(fit.metrics["accuracy"])
        (tmp_path / "fit" / "structure.tsv").unlink()
        with pytest.raises(InputError, match=r"structure\.tsv: missing; delete"):
            read_lst_folder(tmp_path / "fit")

    def test_a_folder_of_something_else(self, tmp_path):
        content = {"format_version": 1, "settings": {}, "data": {}}
        (tmp_path / "settings.json").write_text(json.dumps(content))
        with pytest.raises(InputError, match="no fit of the Latin Square Task"):
            read_lst_folder(tmp_path)

    def test_unknown_recipe(self):
        with pytest.raises(InputError, match="recipe: found 'slow'"):
            lst_settings("slow")


class TestTruth:
    def test_the_truth_itself(self):
        vectors = grid_encoding(4, 32)
        rotation = np.linalg.qr(np.random.default_rng(0).normal(size=(32, 32)))[0]
        table = measure_encoding(np.hstack([vectors, vectors @ rotation]), size=4, width=32)
        for part in ("block_0", "block_1"):
            own = table[table["part"] == part].set_index("statistic")
            assert own.loc["procrustes", "value"] == pytest.approx(0, abs=1e-6)
            assert own.loc["grid_correlation", "value"] > 0.9
            assert (own["p"] == 1 / 201).all()

    def test_lines_alone(self):
        """Cells as sums of a vector for the row and one for the column: only lines are near."""
        rng = np.random.default_rng(0)
        rows, columns = np.divmod(np.arange(16), 4)
        vectors = rng.normal(size=(4, 64))[rows] + rng.normal(size=(4, 64))[columns]
        found = measure_encoding(vectors, size=4, width=64).set_index("statistic")["value"]
        assert found["line_correlation"] > 0.8
        assert found["line_correlation"] > found["grid_correlation"]

    def test_noise(self):
        vectors = np.random.default_rng(0).normal(size=(16, 64))
        table = measure_encoding(vectors, size=4, width=64).set_index("statistic")
        assert (table["p"] > 0.01).all()
        assert table.loc["procrustes", "value"] == pytest.approx(
            procrustes_distance(vectors, grid_encoding(4, 64))
        )

    def test_a_block_that_did_not_move_is_left_out(self):
        vectors = np.hstack([np.zeros((16, 8)), np.random.default_rng(0).normal(size=(16, 8))])
        assert set(measure_encoding(vectors, size=4, width=8)["part"]) == {"block_1"}

    def test_distances(self):
        distances = grid_distances(5)
        assert distances["grid"][0, 24] == pytest.approx(np.hypot(4, 4))
        assert [distances["line"][7, cell] for cell in (5, 2, 0, 7)] == [0, 0, 1, 0]

    def test_attention_has_no_order_of_heads(self):
        maps = np.random.default_rng(0).random((2, 3, 16, 16))
        np.testing.assert_allclose(attention_correlation(maps, maps[:, ::-1]), 1)
        assert (
            abs(attention_correlation(maps, np.random.default_rng(1).random(maps.shape))).max()
            < 0.2
        )

    def test_start_and_change(self, fit):
        table = measure_fit(fit)
        assert set(table["source"]) == {"pe", "change", "weights"}
        moved = table[table["source"] == "weights"].set_index("part")["value"]
        change = np.linalg.norm(fit.positional_encoding - fit.initial) / np.linalg.norm(fit.initial)
        assert moved["encodings"] == pytest.approx(change, rel=1e-5)
        assert fit.initial.std() == pytest.approx(0.2, rel=0.1)


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lst")
    grid = {name: [value] for name, value in {**SMALL, "epochs": 1}.items()}
    grid |= {"encoding": ["learn", "2d-fixed", "rope"], "sigma": [0.1, 0.2, 1.0]}
    return folder, grid, sweep_lst(output_dir=folder, grid=grid, n_seeds=2)


class TestSweep:
    def test_every_setting_once(self, swept):
        _, _, sweep = swept
        assert len(sweep.table) == 10
        assert (sweep.table["status"] == "done").all()
        assert list(sweep.settings["n_seeds"]) == [2] * 5
        assert sweep.settings.set_index("fit")["sigma"].isna().sum() == 2

    def test_tables(self, swept):
        folder, _, sweep = swept
        table = pd.read_csv(folder / "lst.tsv", sep="\t", na_values="n/a")
        assert set(table["split"]) == {"train", "heldout", "human108"}
        assert len(table) == 10 * 3 * 4
        learned = table[table["encoding"] == "learn"]
        assert learned["change_procrustes"].notna().all()
        mean = learned[learned["split"] == "human108"].groupby("fit")["accuracy"]
        assert mean.size().eq(8).all()
        structure = pd.read_csv(folder / "lst_structure.tsv", sep="\t", na_values="n/a")
        assert set(structure["source"]) == {"pe", "change", "weights", "attention"}
        row = sweep.settings[sweep.settings["encoding"] == "rope"].iloc[0]
        human = table[(table["encoding"] == "rope") & (table["complexity"] == "all")]
        human = human[human["split"] == "human108"]["accuracy"]
        assert row["unlike"] == pytest.approx(human.mean())
        assert row["unlike_min"] == human.min()

    def test_again_does_nothing(self, swept):
        folder, grid, sweep = swept
        before = (folder / "sweep.tsv").stat().st_mtime_ns
        again = sweep_lst(output_dir=folder, grid=grid, n_seeds=2)
        assert (folder / "sweep.tsv").stat().st_mtime_ns == before
        pd.testing.assert_frame_equal(again.settings, sweep.settings)

    def test_the_report(self, swept):
        folder, _, sweep = swept
        page = write_lst_report(sweep, folder).read_text(encoding="utf-8")
        for row in sweep.settings.to_dict("records"):
            assert f"<td>{row['fit']}</td>" in page
            assert f"{row['unlike']:.3f} [" in page
        assert page.count("data:image/png;base64,") == 4
        assert 'src="http' not in page
        text = lst_text(sweep)
        assert "Rank correlation with sigma (3 sigmas" in text
        assert f"{sweep.settings['unlike_min'].iloc[0]:.3f}" in text

    @pytest.mark.parametrize(
        ("options", "match"),
        [
            ({"sizes": [3]}, "size"),
            ({"sizes": [5], "puzzles": "published"}, "published"),
            ({"recipe": "slow"}, "recipe"),
            ({"grid": {"sigma": [-1.0]}}, "sigma"),
            ({"n_seeds": 0}, "--seeds"),
        ],
    )
    def test_refused_before_anything_is_written(self, options, match, tmp_path):
        with pytest.raises(InputError, match=match):
            sweep_lst(output_dir=tmp_path / "out", **options)
        assert not (tmp_path / "out").exists()

    def test_one_seed_has_no_interval(self, tmp_path):
        grid = {name: [value] for name, value in {**SMALL, "epochs": 1}.items()}
        sweep = sweep_lst(output_dir=tmp_path, grid=grid, n_workers=1)
        assert np.isnan(sweep.settings["unlike_low"].item())
        # Other settings are added to what is there.
        again = sweep_lst(output_dir=tmp_path, grid={**grid, "sigma": [1.0]}, n_workers=1)
        assert list(again.table["sigma"]) == [1.0]
        assert sorted(again.settings["sigma"]) == [0.2, 1.0]
        assert pd.read_csv(tmp_path / "lst.tsv", sep="\t")["sigma"].nunique() == 2

    def test_attention_is_held_beside_networks_with_as_many_heads(self, tmp_path):
        grid = {name: [value] for name, value in {**SMALL, "epochs": 1}.items()}
        one_head = {**grid, "encoding": ["2d-fixed", "learn"], "heads": [1]}
        sweep_lst(output_dir=tmp_path, grid=one_head, n_workers=1)
        sweep_lst(output_dir=tmp_path, grid={**grid, "heads": [2]}, n_workers=1)
        structure = pd.read_csv(tmp_path / "lst_structure.tsv", sep="\t", na_values="n/a")
        beside = structure[structure["source"] == "attention"]["fit"]
        assert beside.nunique() == 1
        assert beside.iloc[0].startswith("encoding-learn")
        assert "heads-1" in beside.iloc[0]

    def test_few_steps_are_warned_of(self, splits):
        with pytest.warns(UserWarning, match="only 1 training step"):
            fit_lst(splits, lst_settings(**{**SMALL, "epochs": 1, "batch_size": 10_000}))


class TestDamage:
    """What was changed or cut after it was written is named, and nothing is computed from it."""

    @pytest.fixture
    def copied(self, swept, tmp_path):
        folder, grid, _ = swept
        shutil.copytree(folder, tmp_path / "lst")
        return tmp_path / "lst", grid

    @pytest.mark.parametrize(
        "name",
        [
            "metrics.tsv",
            "structure.tsv",
            "positional_encoding.tsv",
            "positional_encoding_change.tsv",
            "attention.npz",
            "model.safetensors",
        ],
    )
    def test_a_file_cut_off(self, copied, name):
        folder, grid = copied
        file = next(folder.glob("encoding-learn_sigma-1_*_seed-0")) / name
        file.write_bytes(file.read_bytes()[:-20])
        before = (folder / "lst.tsv").read_bytes()
        with pytest.raises(InputError, match=rf"{name}: damaged \(not as it was written\); delete"):
            sweep_lst(output_dir=folder, grid=grid, n_seeds=2)
        assert (folder / "lst.tsv").read_bytes() == before
        # What the line says helps.
        shutil.rmtree(file.parent)
        assert len(sweep_lst(output_dir=folder, grid=grid, n_seeds=2).folders) == 10

    def test_settings_that_are_not_those_of_the_name(self, copied):
        folder, grid = copied
        file = next(folder.glob("encoding-learn_sigma-1_*_seed-0")) / "settings.json"
        file.write_text(file.read_text().replace('"sigma": 1.0', '"sigma": 5.0'))
        with pytest.raises(InputError, match=r"settings.json: damaged \(not as it was.*; delete"):
            sweep_lst(output_dir=folder, grid=grid, n_seeds=2)


@pytest.mark.parametrize(
    ("grid", "match"),
    [
        ({"encoding": ["3d-fixed"]}, "3d-fixed"),
        ({"encoding": ["rope-2d"], "heads": [80]}, "heads"),
        ({"rank": [500]}, "rank: found 500; expected 16 at most"),
        ({"device": ["mps"]}, "--device: found 'mps'"),
    ],
)
def test_fits_that_cannot_be_are_refused_before_anything_is_written(grid, match, tmp_path):
    with pytest.raises(InputError, match=match):
        sweep_lst(output_dir=tmp_path / "out", grid=grid)
    assert not (tmp_path / "out").exists()
