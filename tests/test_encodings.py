import numpy as np
import pytest
import torch

from neuro_pe.encodings import make_encoding
from neuro_pe.errors import InputError
from neuro_pe.settings import ENCODINGS


def make(name, **options):
    return make_encoding(name, **({"n_regions": 50, "width": 16} | options))


@pytest.mark.parametrize("name", ENCODINGS)
def test_every_name_of_the_settings_can_be_built(name, rng):
    encoding = make(name, coordinates=rng.uniform(-70, 70, size=(50, 3)))
    assert encoding().shape == (50, 16)
    learned = sum(parameter.requires_grad for parameter in encoding.parameters())
    assert learned == (name == "learn")
    assert f"learned={50 * 16 if name in ('learn', 'random') else 0}" in repr(encoding)


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


def test_the_generator_decides_the_start():
    encoding = make("learn")
    starts = []
    for seed in (1, 1, 2):
        encoding.reset_parameters(torch.Generator().manual_seed(seed))
        starts.append(encoding().detach().clone())
    assert torch.equal(starts[0], starts[1])
    assert not torch.equal(starts[0], starts[2])


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


def test_3d_fixed_without_coordinates_says_why():
    with pytest.raises(InputError, match="'3d-fixed' needs MNI coordinates"):
        make("3d-fixed")


@pytest.mark.parametrize("width", [2, 7, 10])
def test_any_width_can_be_filled(width, rng):
    for name in ("1d-fixed", "3d-fixed"):
        encoding = make(name, width=width, coordinates=rng.normal(size=(50, 3)))
        assert encoding().shape == (50, width)


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(InputError, match=r"found 'rotary'; expected one of .*learn, random"):
        make("rotary")
