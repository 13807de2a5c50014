"""Encodings that are made from functional connectivity."""

import math

import networkx
import numpy as np
import pytest
import torch
from encoding_inputs import INPUTS, make

from neuro_pe.encodings import diffusion_gradients, laplacian_eigenvectors, region_graph
from neuro_pe.errors import InputError

CONNECTIVITY = INPUTS["connectivity"]


@pytest.mark.parametrize("name", ["laplacian", "gradient", "pearl"])
def test_without_connectivity_the_error_says_why(name):
    with pytest.raises(InputError, match=f"'{name}' needs the functional connectivity"):
        make(name)


def test_the_graph_links_nearest_neighbors_both_ways():
    graph = region_graph(CONNECTIVITY)
    nearest = [set(np.argsort(row)[::-1][1:11]) for row in CONNECTIVITY]  # first is the region
    for one, two in np.ndindex(50, 50):
        assert graph[one, two] == (one != two and (two in nearest[one] or one in nearest[two]))


def test_laplacian_eigenvectors_solve_the_eigenvalue_problem_in_ascending_order():
    graph = region_graph(CONNECTIVITY)
    laplacian = networkx.normalized_laplacian_matrix(networkx.from_numpy_array(graph)).toarray()
    vectors = laplacian_eigenvectors(graph)
    assert vectors.shape == (50, 32)
    values = (vectors * (laplacian @ vectors)).mean(axis=0)
    np.testing.assert_allclose(laplacian @ vectors, vectors * values, atol=1e-9)
    np.testing.assert_allclose(values, np.linalg.eigvalsh(laplacian)[1:33])
    np.testing.assert_allclose(vectors.T @ vectors / 50, np.eye(32), atol=1e-9)


@pytest.mark.parametrize("make_vectors", [laplacian_eigenvectors, diffusion_gradients])
def test_signs_do_not_hang_on_the_order_of_regions(make_vectors, rng):
    matrix = region_graph(CONNECTIVITY)
    if make_vectors is diffusion_gradients:
        matrix = CONNECTIVITY
    order = rng.permutation(50)
    shuffled = make_vectors(matrix[np.ix_(order, order)])
    vectors = make_vectors(matrix)
    np.testing.assert_allclose(shuffled, vectors[order], atol=1e-6)
    largest = np.abs(vectors).argmax(axis=0)
    assert (vectors[largest, range(vectors.shape[1])] > 0).all()


def affinity_of(connectivity):
    """The normalized angles of rows of which the largest tenth is kept."""
    n_regions = len(connectivity)
    rows = []
    for row in connectivity:
        kept = sorted(range(n_regions), key=lambda other: row[other])[-(n_regions // 10) :]
        rows.append([max(row[other], 0) if other in kept else 0 for other in range(n_regions)])
    angle = np.empty((n_regions, n_regions))
    for one, two in np.ndindex(n_regions, n_regions):
        first, second = rows[one], rows[two]
        cosine = math.fsum(a * b for a, b in zip(first, second, strict=True))
        cosine /= math.hypot(*first) * math.hypot(*second)
        angle[one, two] = 1 - math.acos(min(cosine, 1)) / math.pi
    return angle


def test_gradients_are_the_diffusion_map_of_coifman_and_lafon():
    affinity = affinity_of(CONNECTIVITY)
    degree = affinity.sum(axis=1)
    weights = affinity / np.sqrt(np.outer(degree, degree))
    walk = weights / weights.sum(axis=1, keepdims=True)
    gradients = diffusion_gradients(CONNECTIVITY)
    assert gradients.shape == (50, 30)
    # Each is an eigenvector of the random walk; all sizes follow from its eigenvalues.
    values = np.sort(np.linalg.eigvals(walk).real)[::-1]
    np.testing.assert_allclose(walk @ gradients, gradients * values[1:31], atol=1e-8)
    share = weights.sum(axis=1) / weights.sum()  # the walk's resting state
    size = np.sqrt(share @ gradients**2)
    factor = values[1:31] / (1 - values[1:31])
    np.testing.assert_allclose(size / size[0], np.abs(factor / factor[0]), rtol=1e-6)
    assert np.square(gradients[:, 0]).mean() == pytest.approx(1)


@pytest.mark.parametrize("name", ["laplacian", "gradient"])
def test_vectors_of_the_graph_are_mapped_linearly(name):
    encoding = make(name, **INPUTS)
    graph = region_graph(CONNECTIVITY)
    known = {
        "laplacian": laplacian_eigenvectors(graph),
        "gradient": diffusion_gradients(CONNECTIVITY),
    }
    weight, bias = (each.detach().numpy() for each in encoding.linear.parameters())
    np.testing.assert_allclose(encoding().detach(), known[name] @ weight.T + bias, atol=1e-4)


def test_pearl_is_a_graph_network_on_random_numbers():
    encoding = make("pearl", **INPUTS)
    encoding.resample(torch.Generator().manual_seed(4))
    numbers = torch.randn(50, 16, generator=torch.Generator().manual_seed(4)).numpy()
    graph = region_graph(CONNECTIVITY)
    degree = graph.sum(axis=0)

    def pass_on(values):
        """Each region gets the values of its neighbors."""
        new = np.zeros_like(values)
        for one, two in zip(*graph.nonzero(), strict=True):
            new[one] += values[two] / np.sqrt(degree[one] * degree[two])
        return new

    def layer(linear, values):
        weight, bias = (each.detach().numpy() for each in linear.parameters())
        return values @ weight.T + bias

    def gelu(x):
        return x * (1 + np.vectorize(math.erf)(x / 2**0.5)) / 2

    pooled = np.zeros((50, 32))
    powers = [numbers]
    for _ in range(7):
        powers.append(pass_on(powers[-1]))
    powers = [(each - each.mean()) / np.sqrt(each.var() + 1e-5) for each in powers]
    for draw in range(16):
        hidden = gelu(layer(encoding.filter, np.stack([each[:, draw] for each in powers], axis=1)))
        pooled += gelu(layer(encoding.message, hidden + pass_on(hidden))) / 16
    pooled = (pooled - pooled.mean(axis=0)) / np.sqrt(pooled.var(axis=0) + 1e-5)
    expected = layer(encoding.out, pooled)
    np.testing.assert_allclose(encoding().detach(), expected, atol=1e-3)


def test_pearl_follows_the_regions_when_their_order_changes(rng):
    order = rng.permutation(50)
    encoding = make("pearl", **INPUTS)
    shuffled = make("pearl", **(INPUTS | {"connectivity": CONNECTIVITY[np.ix_(order, order)]}))
    shuffled.redrawn = encoding.redrawn[order]
    torch.testing.assert_close(shuffled(), encoding()[order], atol=1e-4, rtol=1e-4)
