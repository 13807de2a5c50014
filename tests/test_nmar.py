"""Simulated networks with modules: the process, its ceiling, and what sweeps say of it."""

import json
import re
import shutil

import numpy as np
import pandas as pd
import pytest

from neuro_pe.errors import InputError
from neuro_pe.model_folder import read_model_folder, write_settings
from neuro_pe.settings import FitSettings
from neuro_pe.synthetic import (
    NoiseCeiling,
    make_network,
    nmar_settings,
    nmar_text,
    simulate,
    simulate_cohort,
    sweep_nmar,
    write_nmar_report,
)
from neuro_pe.synthetic.nmar import BURN_IN, ModularNetwork


class TestNetwork:
    def test_shares_of_connections(self):
        network = make_network(n_regions=400, n_modules=4, within=0.3, between=0.02, seed=1)
        connected = network.weights != 0
        labels = network.modules.to_numpy()
        same = labels[:, None] == labels
        off = ~np.eye(400, dtype=bool)
        assert connected[same & off].mean() == pytest.approx(0.3, abs=0.01)
        assert connected[~same].mean() == pytest.approx(0.02, abs=0.003)
        assert not connected[~off].any()

    def test_it_is_scaled(self):
        network = make_network(spectral_radius=0.5)
        assert network.spectral_radius == pytest.approx(0.5)
        assert list(network.modules.value_counts()) == [10] * 4

    def test_the_seed_draws_it(self):
        assert (make_network(seed=3).weights == make_network(seed=3).weights).all()
        assert (make_network(seed=3).weights != make_network(seed=4).weights).any()

    @pytest.mark.parametrize(
        ("options", "match"),
        [
            ({"n_modules": 3}, "n_modules: found 3"),
            ({"n_modules": 40}, "n_modules: found 40; expected a whole number from 2 to 20"),
            ({"n_regions": 10**9}, "n_regions: found 1000000000; expected a whole number"),
            ({"n_regions": 40.0}, "n_regions: found 40.0"),
            ({"seed": -1}, "seed: found -1"),
            ({"within": 1.5}, "within: found 1.5"),
            ({"within": "x"}, "within: found 'x'; expected a share"),
            ({"spectral_radius": 1.0}, "spectral_radius: found 1"),
            ({"within": 0, "between": 0}, "has no cycle"),
        ],
    )
    def test_refused(self, options, match):
        with pytest.raises(InputError, match=match):
            make_network(**options)


class TestSimulation:
    def test_every_step_follows_the_equation(self):
        network = make_network(n_regions=10, n_modules=2, within=0.8)
        values = simulate(network, n_times=5000, noise=0.7, seed=1).values.astype(float)
        left = values[1:] - np.tanh(values[:-1]) @ network.weights.T
        # What is left is each region's own noise: of its SD, white, of nobody else.
        np.testing.assert_allclose(left.std(axis=0), 0.7, rtol=0.04)
        together = np.corrcoef(np.hstack([left[1:], left[:-1]]).T)
        np.fill_diagonal(together, 0)
        assert abs(together).max() < 0.07
        assert len(values) == 5000

    def test_the_start_is_forgotten(self):
        """After the burn-in, states from different starts with the same noise are the same."""
        network = make_network()
        x, y = np.full(40, 50.0), np.zeros(40)
        for _ in range(BURN_IN):
            x, y = network.weights @ np.tanh(x), network.weights @ np.tanh(y)
        assert abs(x - y).max() < 1e-6

    def test_subjects_share_the_network_alone(self):
        cohort = simulate_cohort(make_network(), n_subjects=3, n_times=400)
        assert cohort.subjects == ["01", "02", "03"]
        first, second = cohort[0].values[:, 0], cohort[1].values[:, 0]
        assert abs(np.corrcoef(first, second)[0, 1]) < 0.2
        again = simulate_cohort(make_network(), n_subjects=3, n_times=400)
        np.testing.assert_array_equal(again[2].values, cohort[2].values)

    @pytest.mark.parametrize(
        "options",
        [{"n_times": 0}, {"n_times": 10**12}, {"noise": 0}, {"noise": "x"}, {"seed": None}],
    )
    def test_refused(self, options):
        with pytest.raises(InputError, match=next(iter(options))):
            simulate(make_network(), **options)


class TestCeiling:
    def test_where_the_network_is_linear(self):
        """With little noise tanh(x) is x, and the posterior mean has a closed form."""
        network = make_network(n_regions=12, n_modules=2, within=0.6, seed=2)
        window, noise = 3, 0.01
        ceiling = NoiseCeiling(network, noise=noise)
        values = simulate(network, n_times=600, noise=noise, seed=4).values / ceiling.scale
        windows = values.reshape(-1, window, 12).transpose(0, 2, 1).astype(np.float64)
        visible, hidden = np.arange(0, 12, 2), np.arange(1, 12, 2)

        # Stationary covariance S = W S W' + noise^2, lagged by powers of W.
        weights = network.weights
        covariance = np.eye(12) * noise**2
        total = covariance.copy()
        for _ in range(400):
            covariance = weights @ covariance @ weights.T
            total += covariance
        lags = [np.linalg.matrix_power(weights, lag) @ total for lag in range(window)]
        blocks = [
            [lags[i - j] if i >= j else lags[j - i].T for j in range(window)] for i in range(window)
        ]
        whole = np.block(blocks) / np.outer(np.tile(ceiling.scale, 3), np.tile(ceiling.scale, 3))
        seen = np.concatenate([visible + 12 * time for time in range(window)])
        unseen = np.concatenate([hidden + 12 * time for time in range(window)])
        flat = windows.transpose(0, 2, 1).reshape(len(windows), -1)
        gain = np.linalg.solve(whole[np.ix_(seen, seen)], whole[np.ix_(seen, unseen)])
        exact = (flat[:, seen] @ gain).reshape(-1, window, 6).transpose(0, 2, 1)

        predicted = ceiling.predict(windows, visible, hidden)
        truth = windows[:, hidden]
        assert np.mean((predicted - exact) ** 2) < 0.02 * np.mean((truth - exact) ** 2)
        assert 0.6 < np.mean(ceiling.acceptance) < 0.95

    def test_what_it_cannot_predict(self):
        ceiling = NoiseCeiling(make_network(n_regions=8, n_modules=2, within=0.9), noise=1.0)
        windows = np.zeros((1, 8, 4))
        for visible, hidden in ((range(4), range(4, 7)), (range(5), range(4, 8))):
            with pytest.raises(InputError, match="expected each of the 8 once"):
                ceiling.predict(windows, np.array(visible), np.array(hidden))
        windows[0, 0, 0] = np.nan
        with pytest.raises(InputError, match="not finite in visible regions"):
            ceiling.predict(windows, np.arange(4), np.arange(4, 8))
        ceiling.predict(windows, np.arange(1, 8), np.array([0]))  # hidden ones are not read

    def test_hidden_values_are_not_read(self):
        network = make_network(n_regions=8, n_modules=2, within=0.9)
        windows = np.random.default_rng(0).normal(size=(5, 8, 4))
        visible, hidden = np.arange(4), np.arange(4, 8)
        first = NoiseCeiling(network, noise=1.0).predict(windows, visible, hidden)
        windows[:, hidden] = 99.0
        second = NoiseCeiling(network, noise=1.0).predict(windows, visible, hidden)
        np.testing.assert_array_equal(first, second)

    def test_one_region_drives_another(self):
        """The effect is past tanh, far from linear: only the true equation knows."""
        weights = np.array([[0.0, 0.01], [0.8, 0.0]])
        modules = pd.Series(["a", "b"], index=["r1", "r2"])
        network = ModularNetwork(weights=weights, modules=modules)
        ceiling = NoiseCeiling(network, noise=3.0)
        values = simulate(network, n_times=4000, noise=3.0, seed=1).values / ceiling.scale
        windows = values.reshape(-1, 2, 2).transpose(0, 2, 1)
        predicted = ceiling.predict(windows, np.array([0]), np.array([1]))
        expected = 0.8 * np.tanh(windows[:, 0, 0] * ceiling.scale[0]) / ceiling.scale[1]
        assert np.corrcoef(predicted[:, 0, 1], expected)[0, 1] > 0.95


pytestmark = pytest.mark.filterwarnings("ignore:only 3 training steps")

GRID = {"encoding": ["learn", "nope"], "sigma": [0.1, 1.0], "epochs": [1], "width": [16]}
SMALL = {"n_regions": 12, "n_modules": 2, "n_subjects": 5, "n_times": 200, "within": 0.6}


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    folder = tmp_path_factory.mktemp("nmar")
    return folder, sweep_nmar(output_dir=folder, grid=GRID, network=SMALL, n_seeds=2)


@pytest.fixture
def copied(swept, tmp_path):
    """The folder of a sweep, to be damaged; its results stand beside it."""
    shutil.copytree(swept[0], tmp_path / "nmar")
    shutil.copyfile(tmp_path / "nmar" / "nmar.tsv", tmp_path / "before.tsv")
    return tmp_path / "nmar"


class TestSweep:
    def test_tables(self, swept):
        folder, sweep = swept
        assert (sweep.table["status"] == "done").all()
        assert len(sweep.settings) == 3
        assert list(sweep.settings["n_seeds"]) == [2, 2, 2]
        table = pd.read_csv(folder / "nmar.tsv", sep="\t", na_values="n/a")
        predictors = {"model", "zero", "visible_mean", "gaussian", "space_time_gaussian"}
        assert set(table["predictor"].dropna()) == predictors | {"noise_ceiling"}
        assert set(table.loc[table["encoding"] == "nope", "source"].dropna()) == {"fc"}
        errors = table.dropna(subset="mse").groupby(["seed", "predictor"])["mse"]
        # The same hidden values for all settings of a seed.
        assert errors.nunique().drop("model", level="predictor").eq(1).all()
        assert (table["seed"].nunique(), len(sweep.tests)) == (2, 1)

    def test_each_network_has_a_folder_for_compare_networks(self, swept):
        folder, _ = swept
        places = sorted(folder.glob("noise-1_*"))
        assert [place.name.rpartition("_")[2] for place in places] == ["seed-0", "seed-1"]
        modules = pd.read_csv(places[0] / "modules.tsv", sep="\t", index_col="name")["module"]
        [path] = places[0].glob("*sigma-0.1*")
        assert list(read_model_folder(path).regions["name"]) == list(modules.index)

    def test_again_does_nothing(self, swept):
        folder, sweep = swept
        before = (folder / "sweep.tsv").stat().st_mtime_ns
        again = sweep_nmar(output_dir=folder, grid=GRID, network=SMALL, n_seeds=2)
        assert (folder / "sweep.tsv").stat().st_mtime_ns == before
        pd.testing.assert_frame_equal(again.settings, sweep.settings)

    def test_the_report(self, swept):
        folder, sweep = swept
        page = write_nmar_report(sweep, folder).read_text(encoding="utf-8")
        assert page.count("data:image/png;base64,") == 5
        for row in sweep.settings.to_dict("records"):
            assert f"<td>{row['mse_noise_ceiling']:.4f}</td>" in page
        text = nmar_text(sweep)
        assert re.search(
            r"F-test of the model's MSE over settings, noise-1_.*-200: F\(2, 3\)", text
        )
        assert f"{sweep.settings['fc_ari'].iloc[0]:.3f} [" in text

    @pytest.mark.parametrize(
        ("column", "value", "words"),
        [
            ("mse_model", "0.5", "mse_model of .* is '0.5'"),
            ("mse_zero", None, "mse_zero of .* is 'n/a'"),
            ("mse_noise_ceiling", "-1", "mse_noise_ceiling of .* is '-1'"),
            ("core_seconds", "foo", "core_seconds of .* is 'foo'"),
            ("fc_ari", "7", "fc_ari of .* is '7'"),
            ("pe_ari_p", "n/a", "pe_ari_p of .* is 'n/a'"),
            ("change_ari", None, "change_ari of .* is 'n/a'"),
            ("fc_within", "", "fc_within of .* is ''"),
            ("device", None, "its column device is missing"),
            ("n_regions", "many", "n_regions of .* is 'many'"),
            ("sigma", "0.3", "sigma of .* is '0.3'"),
            ("noise", "2", "noise of .* is '2'"),
        ],
    )
    def test_damaged_rows(self, copied, column, value, words):
        file = copied / "sweep.tsv"
        table = pd.read_csv(file, sep="\t", dtype=str, keep_default_na=False)
        if value is None:
            table = table.drop(columns=column)
        else:
            table.loc[0, column] = value
        table.to_csv(file, sep="\t", index=False)
        before = (copied / "nmar.tsv").read_bytes()
        # Nothing is computed with it, though only other fits are asked for.
        with pytest.raises(InputError, match=rf"sweep.tsv: damaged \({words}\); .*Delete it"):
            sweep_nmar(output_dir=copied, grid={**GRID, "encoding": ["nope"]}, network=SMALL)
        assert (copied / "nmar.tsv").read_bytes() == before
        file.unlink()  # the advice is right
        sweep_nmar(output_dir=copied, grid=GRID, network=SMALL, n_seeds=2)
        pd.testing.assert_frame_equal(
            pd.read_csv(copied / "nmar.tsv", sep="\t"),
            pd.read_csv(copied.parent / "before.tsv", sep="\t"),
        )

    @pytest.mark.parametrize("text", ["", "\xff\xfe", "name\tmodule\nregion_01\tmodule_2\n", "a\n"])
    def test_damaged_modules(self, copied, text):
        file = next(copied.glob("noise-1_*seed-1")) / "modules.tsv"
        right = file.read_bytes()
        file.write_bytes(text.encode("latin-1"))
        with pytest.raises(InputError, match=rf"{file}: damaged .*; delete it, and the same"):
            sweep_nmar(output_dir=copied, grid=GRID, network=SMALL, n_seeds=2)
        file.unlink()
        sweep_nmar(output_dir=copied, grid=GRID, network=SMALL, n_seeds=2)
        assert file.read_bytes() == right

    @pytest.mark.parametrize("is_listed", [True, False])
    @pytest.mark.parametrize("name", ["metrics.tsv", "truth.tsv"])
    def test_damaged_fits(self, copied, is_listed, name):
        file = next(copied.glob("*/*sigma-0.1*seed-1")) / name
        file.write_bytes(file.read_bytes()[:-3])
        how = {"output_dir": copied, "grid": GRID, "network": SMALL, "n_seeds": 2}
        if not is_listed:
            (copied / "sweep.tsv").unlink()
        words = rf"{name}: damaged \(not as it was written\); delete {file.parent}, and"
        with pytest.raises(InputError, match=words):
            sweep_nmar(**how)
        shutil.rmtree(file.parent)
        assert sweep_nmar(**how).failed.empty

    def test_fits_of_earlier_commands_are_found_without_the_table(self, copied):
        (copied / "sweep.tsv").unlink()
        again = sweep_nmar(output_dir=copied, grid={**GRID, "sigma": [0.1]}, network=SMALL)
        assert (len(again.table), len(again.fits)) == (2, 6)
        before = pd.read_csv(copied.parent / "before.tsv", sep="\t")
        after = pd.read_csv(copied / "nmar.tsv", sep="\t")
        by = ["fit", "seed", "predictor", "source"]
        pd.testing.assert_frame_equal(
            after.sort_values(by, ignore_index=True), before.sort_values(by, ignore_index=True)
        )

    def test_a_row_of_something_else_is_no_fit(self, copied):
        file = copied / "sweep.tsv"
        file.write_text(file.read_text().replace("encoding-nope", "mine"))
        again = sweep_nmar(output_dir=copied, grid={**GRID, "encoding": ["learn"]}, network=SMALL)
        assert set(again.settings["encoding"]) == {"learn", "nope"}

    def test_results_that_were_not_added_yet(self, copied):
        """A fit whose process was killed between its model folder and its results."""
        path = next(copied.glob("*/*sigma-0.1*seed-1"))
        content = json.loads((path / "settings.json").read_text())
        del content["data"]["job"], content["checksums"]
        settings, data = FitSettings(**content["settings"]), content["data"]
        (path / "truth.tsv").unlink()
        names = [file.name for file in path.iterdir() if file.name != "settings.json"]
        write_settings(path, settings, data, files=names)
        again = sweep_nmar(output_dir=copied, grid=GRID, network=SMALL, n_seeds=2)
        assert (path / "truth.tsv").exists()
        assert len(again.fits) == 6

    def test_kinds_of_networks_are_not_pooled(self, copied):
        grid = {**GRID, "sigma": [0.1], "encoding": ["learn"]}
        smaller = {**SMALL, "n_regions": 8}
        sweep = sweep_nmar(output_dir=copied, grid=grid, network=smaller, n_seeds=2)
        assert list(sweep.tests["df_between"]) == [2]  # one setting of the smaller network
        page = write_nmar_report(sweep, copied).read_text(encoding="utf-8")
        assert "regions-8" in page

    def test_numbers_of_many_digits(self, tmp_path):
        """Each has a fit of its own, of the number as it was given."""
        grid = {"encoding": ["nope"], "width": [8], "epochs": [1]}
        network = {**SMALL, "n_times": 120, "spectral_radius": 0.99999999}
        noises = [0.1234561, 0.123456123456]
        for _ in range(2):
            sweep = sweep_nmar(output_dir=tmp_path, grid=grid, network=network, noises=noises)
        assert [fit.job.arguments["noise"] for fit in sweep.fits] == noises
        assert sweep.results["noise"].nunique() == 2

    def test_an_encoding_that_did_not_move_has_a_report(self, tmp_path):
        grid = {"sigma": [0.1, 1.0], "width": [8], "epochs": [1], "batch_size": [1000]}
        with pytest.warns(UserWarning, match="only 1 training step"):
            sweep = sweep_nmar(output_dir=tmp_path, grid=grid, network=SMALL)
        write_nmar_report(sweep, tmp_path)

    def test_modules_are_found(self, tmp_path):
        """Modules of few, strong connections; chance is 0."""
        network = {**SMALL, "n_times": 2000, "between": 0.0}
        grid = {"epochs": [30], "width": [32]}
        sweep = sweep_nmar(output_dir=tmp_path, grid=grid, network=network, n_workers=1)
        assert sweep.settings["change_ari"].item() > 0.5
        assert sweep.settings["mse_model"].item() < sweep.settings["mse_zero"].item()

    @pytest.mark.parametrize(
        ("options", "match"),
        [
            ({"noises": [0.0]}, "noise"),
            ({"network": {"regions": 4}}, "unknown option 'regions'"),
            ({"network": {"n_modules": 7}}, "n_modules"),
            ({"grid": {"sigma": [-1.0]}}, "sigma"),
            ({"grid": {"encoding": ["3d-fixed"]}}, "3d-fixed"),
            ({"network": {"n_subjects": 2}}, "n_subjects: found 2; expected a whole number from 3"),
            ({"n_seeds": 10**9}, "--seeds: found 1000000000 for 1 settings"),
        ],
    )
    def test_refused_before_anything_is_written(self, options, match, tmp_path):
        with pytest.raises(InputError, match=match):
            sweep_nmar(output_dir=tmp_path / "out", **options)
        assert not (tmp_path / "out").exists()


def test_settings():
    assert nmar_settings(sigma=2.0).sigma == 2.0
    assert nmar_settings().mask_ratio == nmar_settings().test_mask_ratio == 0.5
