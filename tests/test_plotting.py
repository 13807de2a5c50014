import sys

import matplotlib
import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from neuro_pe import InputError
from neuro_pe.plotting import (
    _spread,
    plot_communities,
    plot_network_errors,
    plot_region_errors,
    plot_similarity,
    plot_similarity_against_fc,
)


@pytest.fixture
def brain(rng):
    """Make regions with networks, coordinates, a similarity and errors."""

    def make(n_regions=40, n_networks=4):
        names = [f"region_{number}" for number in range(n_regions)]
        labels = [f"Network-{number % n_networks:02d}" for number in range(n_regions)]
        xyz = pd.DataFrame(rng.normal(size=(n_regions, 3)) * 25, index=names, columns=list("xyz"))
        values = rng.normal(size=(n_regions, n_regions))
        matrix = pd.DataFrame((values + values.T) / 4, index=names, columns=names)
        errors = pd.DataFrame(
            [
                (name, subject, predictor, rng.uniform(0.6, 1.0))
                for name in names
                for subject in ("01", "02", "03")
                for predictor in ("model", "gaussian", "zero")
            ],
            columns=["region", "subject", "predictor", "mse"],
        )
        return pd.Series(labels, index=names), xyz, matrix, errors

    return make


def boxes_overlap(figure, texts):
    renderer = figure.canvas.get_renderer()
    boxes = [text.get_window_extent(renderer) for text in texts if text.get_text()]
    return any(one.overlaps(two) for i, one in enumerate(boxes) for two in boxes[:i])


@pytest.mark.parametrize(("n_regions", "n_networks"), [(12, 2), (100, 20), (1000, 17)])
def test_similarity_shows_the_matrix_by_network_with_legible_names(brain, n_regions, n_networks):
    networks, _, matrix, _ = brain(n_regions, n_networks)
    figure = plot_similarity(matrix, networks, title="PE")
    axes = figure.axes[0]
    order = networks.sort_values(kind="stable").index
    shown = np.asarray(axes.images[0].get_array(), dtype=float)
    np.testing.assert_array_equal(shown, matrix.loc[order, order].to_numpy())
    assert [text.get_text() for text in axes.texts] == sorted(set(networks))
    FigureCanvasAgg(figure).draw()
    assert not boxes_overlap(figure, axes.texts)
    left = min(text.get_window_extent().x0 for text in axes.texts)
    assert left >= 0


def test_similarity_leaves_out_regions_without_a_network(brain):
    networks, _, matrix, _ = brain()
    networks.iloc[:3] = np.nan
    figure = plot_similarity(matrix, networks)
    assert figure.axes[0].images[0].get_array().shape == (37, 37)


def test_names_are_spread_no_more_than_needed():
    places = _spread(np.array([0.0, 1.0, 2.0, 50.0]), gap=10, end=100)
    assert (np.diff(places) >= 10 - 1e-9).all()
    assert places[0] >= 0
    assert places[-1] == pytest.approx(50, abs=5)
    np.testing.assert_allclose(_spread(np.array([5.0, 40.0]), gap=10, end=100), [5, 40])
    assert _spread(np.array([97.0, 98.0, 99.0]), gap=10, end=100)[-1] <= 100


def test_similarity_against_fc_says_their_correlation(brain):
    networks, _, matrix, _ = brain()
    figure = plot_similarity_against_fc(matrix, 0.5 * matrix + 0.1, networks, title="PE")
    assert "r = 1.00" in figure.axes[0].get_title()
    assert figure.axes[0].get_ylabel()


def test_communities_are_named_by_their_networks(brain):
    networks, xyz, _, _ = brain(40, 4)
    communities = networks.map({name: place for place, name in enumerate(sorted(set(networks)))})
    communities.iloc[0] = 9
    figure = plot_communities(xyz, communities, networks)
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert "Network-01 10 of 10" in labels
    assert "Network-00 1 of 1" in labels


def test_many_communities_share_one_grey(brain):
    networks, xyz, _, _ = brain(100, 4)
    communities = pd.Series(np.arange(100) % 20, index=networks.index)
    figure = plot_communities(xyz, communities, networks)
    assert figure.legends[0].get_texts()[-1].get_text() == "8 smaller (40 regions)"


def test_region_errors_have_a_scale_with_its_unit(brain):
    _, xyz, _, errors = brain()
    by_region = errors.groupby("region")["mse"].mean()
    figure = plot_region_errors(xyz, by_region, label="MSE (unit)")
    assert figure.axes[-1].get_xlabel() == "MSE (unit)"


def test_network_errors_are_means_over_subjects_with_intervals(brain):
    networks, _, _, errors = brain()
    figure = plot_network_errors(errors, networks)
    axes = figure.axes[0]
    model = axes.containers[0]
    assert model.get_label() == "model"
    own = errors[errors["predictor"] == "model"].assign(network=errors["region"].map(networks))
    by_subject = own.groupby(["network", "subject"])["mse"].mean().unstack()
    np.testing.assert_allclose(model.lines[0].get_xdata().astype(float), by_subject.mean(axis=1))
    (segments,) = model.lines[2]
    width = [segment[1, 0] - segment[0, 0] for segment in segments.get_segments()]
    # t of 0.975 at 2 degrees of freedom
    np.testing.assert_allclose(width, 2 * 4.302653 * by_subject.sem(axis=1), rtol=1e-5)


def test_network_errors_of_unknown_regions_are_refused(brain):
    networks, _, _, errors = brain()
    with pytest.raises(InputError, match="no region of the table"):
        plot_network_errors(errors, networks.rename(lambda name: f"other_{name}"))


def test_backend_and_open_figures_stay_the_users(brain):
    networks, xyz, matrix, errors = brain()
    backend = matplotlib.get_backend()
    plot_similarity(matrix, networks)
    plot_communities(xyz, pd.Series(0, index=networks.index), networks)
    plot_network_errors(errors, networks)
    assert matplotlib.get_backend() == backend
    assert not sys.modules["matplotlib.pyplot"].get_fignums()
