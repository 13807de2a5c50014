import numpy as np
import pytest
import torch
from encoding_inputs import COLUMNS, INPUTS, ROWS, at, heads, make

from neuro_pe.encodings import (
    PositionalEncoding,
    _base,
    register,
    registered_modules,
)
from neuro_pe.errors import InputError
from neuro_pe.settings import ENCODINGS, WITH_VECTORS, FitSettings

LEARNED = {
    "learn",
    "relative",
    "relative-causal",
    "coordinates",
    "fourier",
    "laplacian",
    "gradient",
    "pearl",
    "t5",
    "t5-3d",
    "seqpe",
    "seqpe-3d",
    "cope",
    "dape",
}
DRAWN = {"randomized", "pearl"}  # anew in every training step


@pytest.mark.parametrize("name", ENCODINGS)
def test_every_name_of_the_settings_can_be_built(name):
    encoding = make(name, **INPUTS)
    vectors = encoding()
    assert (vectors is not None) == (name in WITH_VECTORS)
    if vectors is not None:
        assert vectors.shape == (50, 16)
    learned = sum(each.numel() for each in encoding.parameters() if each.requires_grad)
    assert f"n_regions=50, width=16, learned={learned}" in repr(encoding)
    assert bool(learned) == (name in LEARNED)


@pytest.mark.parametrize("name", ENCODINGS)
def test_the_generator_decides_all_that_is_learned(name):
    encoding = make(name, **INPUTS)
    starts = []
    for seed in (1, 1, 2):
        encoding.reset_parameters(torch.Generator().manual_seed(seed))
        starts.append([each.detach().clone() for each in encoding.parameters()])
    for first, again, other in zip(*starts, strict=True):
        assert torch.equal(first, again)
        assert not torch.equal(first, other)


@pytest.mark.parametrize("name", ENCODINGS)
def test_building_leaves_the_global_generator_alone_and_nothing_to_chance(name):
    before = torch.get_rng_state()
    first, again = make(name, **INPUTS), make(name, **INPUTS)
    assert torch.equal(torch.get_rng_state(), before)
    for one, two in zip(tensors(first), tensors(again), strict=True):
        assert torch.equal(one, two)
        assert one.isfinite().all()


@pytest.mark.parametrize("name", ENCODINGS)
def test_inputs_may_be_read_only_and_are_left_as_they_are(name, recwarn):
    arrays = {part: INPUTS[part].copy() for part in ("coordinates", "connectivity")}
    for array in arrays.values():
        array.flags.writeable = False
    make(name, **(INPUTS | arrays))
    assert not recwarn.list


def tensors(encoding):
    return [*encoding.parameters(), *encoding.buffers()]


@pytest.mark.parametrize("name", ENCODINGS)
def test_a_loaded_encoding_is_the_one_that_was_saved(name, rng):
    saved = make(name, **INPUTS)
    saved.reset_parameters(torch.Generator().manual_seed(1))
    other = {
        "coordinates": rng.uniform(-70, 70, size=(50, 3)),
        "connectivity": np.corrcoef(rng.normal(size=(50, 80))),
    }
    loaded = make(name, **(INPUTS | other))
    loaded.load_state_dict(saved.state_dict())
    saved.eval(), loaded.eval()
    if name in WITH_VECTORS:
        assert torch.equal(saved(), loaded())
    question = (heads(3, 0), heads(2, 1), at(1))
    assert torch.equal(saved.scores(*question), loaded.scores(*question))


@pytest.mark.parametrize("name", WITH_VECTORS)
def test_what_a_training_step_draws_comes_from_the_generator_and_ends_with_training(name):
    encoding = make(name, **INPUTS)
    drawn = []
    for seed in (1, 1, 2):
        encoding.resample(torch.Generator().manual_seed(seed))
        drawn.append(encoding().clone())
    assert torch.equal(drawn[0], drawn[1])
    assert torch.equal(drawn[1], drawn[2]) == (name not in DRAWN)
    in_evaluation = encoding.eval()()
    encoding.resample(torch.Generator().manual_seed(3))
    assert torch.equal(in_evaluation, encoding())


@pytest.mark.parametrize("name", ["learn", "random"])
@pytest.mark.parametrize("sigma", [0.01, 0.1, 2.0])
def test_the_start_is_normal_with_standard_deviation_sigma(name, sigma):
    encoding = make(name, n_regions=500, width=64, sigma=sigma)
    encoding.reset_parameters(torch.Generator().manual_seed(1))
    start = encoding().detach()
    assert start.std().item() == pytest.approx(sigma, rel=0.02)
    assert start.mean().item() == pytest.approx(0, abs=0.02 * sigma)
    # A normal distribution has a kurtosis of 3, a uniform one 1.8.
    assert ((start / sigma) ** 4).mean().item() == pytest.approx(3, rel=0.1)


def test_a_uniform_start_has_the_same_standard_deviation():
    start = make("learn", n_regions=500, width=64, sigma=0.2, distribution="uniform")().detach()
    assert start.std().item() == pytest.approx(0.2, rel=0.02)
    assert ((start / 0.2) ** 4).mean().item() == pytest.approx(1.8, rel=0.05)


@pytest.mark.parametrize("distribution", ["normal", "uniform"])
def test_a_low_rank_start_has_the_rank_and_the_standard_deviation(distribution):
    options = {"n_regions": 2000, "width": 64, "rank": 5, "distribution": distribution}
    start = make("learn", sigma=0.3, **options)().detach()
    assert torch.linalg.matrix_rank(start) == 5
    assert start.std().item() == pytest.approx(0.3, rel=0.15)


def test_1d_fixed_follows_the_formula():
    encoding = make("1d-fixed")().numpy()
    for position in (0, 7, 49):
        for pair in range(8):
            angle = position / 10_000 ** (2 * pair / 16)
            assert encoding[position, pair] == pytest.approx(np.sin(angle), abs=1e-6)
            assert encoding[position, 8 + pair] == pytest.approx(np.cos(angle), abs=1e-6)


def test_3d_fixed_tells_places_apart_and_near_from_far(rng):
    xyz = rng.uniform(-70, 70, size=(200, 3))
    encoding = make("3d-fixed", n_regions=200, width=96, coordinates=xyz)().numpy()
    # The distance of sinusoids has a closed form: sum over axes and wavelengths of
    # 2 - 2 cos(2 pi d / wavelength).
    wavelengths = np.geomspace(20, 400, 16)
    phase = 2 * np.pi * (xyz[:1] - xyz)[:, :, None] / wavelengths
    expected = (2 - 2 * np.cos(phase)).sum(axis=(1, 2))
    squared = ((encoding[:1] - encoding) ** 2).sum(axis=1)
    np.testing.assert_allclose(squared, expected, atol=1e-3)


def test_2d_fixed_is_1d_fixed_of_rows_and_columns():
    grid = make("2d-fixed", n_regions=12, width=16, grid=(3, 4))()
    line = make("1d-fixed", n_regions=4, width=8)()
    cells = [torch.cat([line[cell // 4], line[cell % 4]]) for cell in range(12)]
    torch.testing.assert_close(grid, torch.stack(cells))


@pytest.mark.parametrize("name", ["3d-fixed", "rope-3d"])
def test_without_coordinates_the_error_says_why(name):
    with pytest.raises(InputError, match=f"'{name}' needs MNI coordinates"):
        make(name)


@pytest.mark.parametrize("name", ["2d-fixed", "rope-2d"])
def test_a_brain_is_no_grid(name):
    with pytest.raises(InputError, match=f"'{name}' needs tokens on a grid.*choose 3d-fixed"):
        make(name)


@pytest.mark.parametrize(("name", "n_axes"), [("rope", 1), ("rope-2d", 2), ("rope-3d", 3)])
def test_rope_multiplies_complex_numbers(name, n_axes):
    encoding = make(name, **INPUTS)
    query, key = heads(3, 0), heads(2, 1)
    scores = encoding.scores(query, key, at(0))
    if n_axes == 1:
        positions = np.arange(50.0)[:, None]
    else:
        cells = np.stack([np.arange(50) // 10, np.arange(50) % 10], axis=1)
        positions = cells if n_axes == 2 else INPUTS["coordinates"]
    n_pairs = 4 // n_axes
    if n_axes == 3:
        frequencies = 2 * np.pi / np.geomspace(20, 400, n_pairs)
    else:
        frequencies = 10_000.0 ** -(np.arange(n_pairs) / n_pairs)
    angles = (positions[:, :, None] * frequencies).reshape(50, -1)
    n_turned = angles.shape[1]
    for batch, head, row, column in np.ndindex(2, 2, 3, 2):
        q, k = query[batch, head, row].numpy(), key[batch, head, column].numpy()
        difference = angles[ROWS[batch, row]] - angles[COLUMNS[batch, column]]
        first, second = (each[:n_turned] + 1j * each[n_turned : 2 * n_turned] for each in (q, k))
        turned = (first * second.conj() * np.exp(1j * difference)).real.sum()
        expected = (turned + q[2 * n_turned :] @ k[2 * n_turned :]) / 8**0.5
        assert scores[batch, head, row, column].item() == pytest.approx(expected, abs=1e-5)


def test_rope_needs_enough_dimensions_a_head():
    with pytest.raises(InputError, match="'rope-3d' expected at least 6"):
        make("rope-3d", **(INPUTS | {"heads": 4}))


def test_relative_is_the_formula_of_shaw():
    encoding = make("relative", **INPUTS)
    query, key, value = heads(3, 0), heads(2, 1), heads(2, 2)
    attended = encoding.attend(query, key, value, at(1)).detach()
    to_keys, to_values = encoding.keys[1].detach(), encoding.values[1].detach()
    for batch, head, row in np.ndindex(2, 2, 3):
        offset = (COLUMNS[batch] - ROWS[batch, row]).clip(-16, 16) + 16
        energy = (key[batch, head] + to_keys[offset]) @ query[batch, head, row] / 8**0.5
        weights = energy.softmax(dim=0)
        expected = weights @ (value[batch, head] + to_values[offset])
        torch.testing.assert_close(attended[batch, head, row], expected)


def test_causal_relative_looks_back_only():
    encoding = make("relative-causal", **INPUTS)
    query, key, value = heads(3, 0), heads(2, 1), heads(2, 2)
    attended = encoding.attend(query, key, value, at(2)).detach()
    vectors = encoding.keys[2].detach()
    for batch, head, row in np.ndindex(2, 2, 3):
        distance = ROWS[batch, row] - COLUMNS[batch]
        earlier = distance >= 0
        if not earlier.any():
            assert (attended[batch, head, row] == 0).all()
            continue
        keys = key[batch, head][earlier] + vectors[distance[earlier]]
        weights = (keys @ query[batch, head, row] / 8**0.5).softmax(dim=0)
        expected = weights @ value[batch, head][earlier]
        torch.testing.assert_close(attended[batch, head, row], expected)


def test_an_encoding_of_ones_own_is_known_by_its_name():
    class Zeros(PositionalEncoding):
        def forward(self):
            return torch.zeros(self.inputs.n_regions, self.inputs.width)

    try:
        register("zeros-of-a-test")(Zeros)
        # What it does with sigma is not known, so the name says sigma and sweeps keep it apart.
        name = FitSettings(encoding="zeros-of-a-test", sigma=0.3).name
        assert name == "encoding-zeros-of-a-test_sigma-0.3_mask-0.9_seed-0"
        assert make("zeros-of-a-test")().shape == (50, 16)
        assert registered_modules() == [__name__]
        with pytest.raises(ValueError, match="'learn': the name is taken by neuro_pe"):
            register("learn")(Zeros)
    finally:
        ENCODINGS.remove("zeros-of-a-test")
        _base._REGISTRY.pop("zeros-of-a-test")


@pytest.mark.parametrize("width", [2, 7, 10])
def test_any_width_can_be_filled(width, rng):
    for name in ("1d-fixed", "3d-fixed"):
        encoding = make(name, width=width, coordinates=rng.normal(size=(50, 3)))
        assert encoding().shape == (50, width)


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(InputError, match=r"found 'rotary'; expected one of .*learn, random"):
        make("rotary")
