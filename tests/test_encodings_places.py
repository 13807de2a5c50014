"""Encodings that are learned functions of a place, and positions that are drawn."""

import math

import numpy as np
import pytest
import torch
from encoding_inputs import INPUTS, make

from neuro_pe.errors import InputError

XYZ = INPUTS["coordinates"]


def gelu(x):
    return x * (1 + np.vectorize(math.erf)(x / 2**0.5)) / 2


def affine(layer, x):
    return x @ layer.weight.detach().numpy().T + layer.bias.detach().numpy()


@pytest.mark.parametrize("name", ["coordinates", "fourier", "seqpe-3d"])
def test_without_coordinates_the_error_says_why(name):
    with pytest.raises(InputError, match=f"'{name}' needs MNI coordinates"):
        make(name)


def test_coordinates_are_mapped_linearly():
    encoding = make("coordinates", **INPUTS)
    expected = affine(encoding.linear, XYZ / 100)
    np.testing.assert_allclose(encoding().detach(), expected, atol=1e-6)


def test_fourier_features_follow_the_algorithm_of_li():
    encoding = make("fourier", **INPUTS)
    frequencies = encoding.frequencies.detach().numpy()
    features = np.empty((50, 16))
    for region in range(50):
        for number in range(8):
            phase = sum(XYZ[region, axis] / 20 * frequencies[axis, number] for axis in range(3))
            features[region, number] = np.cos(phase) / 16**0.5
            features[region, 8 + number] = np.sin(phase) / 16**0.5
    expected = affine(encoding.out, gelu(affine(encoding.hidden, features)))
    np.testing.assert_allclose(encoding().detach(), expected, atol=1e-5)


def position_of(vector):
    """Find the whole position that a sinusoidal vector belongs to."""
    pairs = len(vector) // 2
    positions = np.arange(200)[:, None] / 10_000 ** (np.arange(pairs) / pairs)
    candidates = np.concatenate([np.sin(positions), np.cos(positions)], axis=1)
    distance = np.abs(candidates - vector).max(axis=1)
    assert distance.min() < 1e-5
    return int(distance.argmin())


def test_randomized_positions_are_sorted_and_from_four_times_the_range():
    encoding = make("randomized", **INPUTS)
    seen = set()
    for seed in range(20):
        encoding.resample(torch.Generator().manual_seed(seed))
        positions = [position_of(vector) for vector in encoding().numpy()]
        assert positions == sorted(set(positions))
        seen.update(positions)
    # Each of the 200 positions is missed by one draw with a chance of 3/4.
    assert len(seen) > 190
    encoding.eval()
    assert [position_of(vector) for vector in encoding().numpy()] == list(range(0, 200, 4))


@pytest.mark.parametrize("name", ["seqpe", "seqpe-3d"])
def test_seqpe_reads_digits_with_attention(name):
    encoding = make(name, **INPUTS)
    if name == "seqpe":
        words = [f"{region:02d}" for region in range(50)]
    else:
        steps = np.round(XYZ - XYZ.min(axis=0)).astype(int)
        words = [f"{x:03d}{y:03d}{z:03d}" for x, y, z in steps]
    of_digit, of_place = encoding.of_digit.detach().numpy(), encoding.of_place.detach().numpy()
    for region in (0, 9, 31, 49):
        tokens = [of_digit[int(digit)] for digit in words[region]]
        tokens = np.stack([*tokens, np.zeros(32)]) + of_place
        for layer in encoding.layers:
            parts = np.split(affine(layer.pairs, standardize(tokens)), 3, axis=1)
            joined = []
            for head in range(4):
                query, key, value = (part[:, 8 * head : 8 * head + 8] for part in parts)
                weights = np.exp(query @ key.T / 8**0.5)
                joined.append(weights / weights.sum(axis=1, keepdims=True) @ value)
            tokens = tokens + affine(layer.joined, np.concatenate(joined, axis=1))
            inner = gelu(affine(layer.mlp_in, standardize(tokens)))
            tokens = tokens + affine(layer.mlp_out, inner)
        expected = affine(encoding.out, standardize(tokens[-1:]))[0]
        np.testing.assert_allclose(encoding()[region].detach(), expected, atol=1e-4)


def standardize(tokens):
    centered = tokens - tokens.mean(axis=1, keepdims=True)
    return centered / np.sqrt((centered**2).mean(axis=1, keepdims=True) + 1e-5)
