import json
from dataclasses import fields

import pytest

from neuro_pe.errors import InputError
from neuro_pe.settings import FitSettings


def test_every_setting_says_what_it_means():
    for option in fields(FitSettings):
        assert option.metadata["help"].endswith((".", "]")), option.name


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("encoding", "sinus"),
        ("sigma", 0.0),
        ("sigma", float("nan")),
        ("sigma", float("inf")),
        ("sigma", "0.1"),
        ("mask_ratio", 1.0),
        ("window", 0),
        ("window", 2.5),
        ("layers", True),
        ("heads", 5),
        ("epochs", 0),
        ("optimizer", "sgd"),
        ("weight_decay", -0.1),
        ("seed", -1),
        ("seed", 2**32),
    ],
)
def test_a_bad_value_is_refused_by_name(name, value):
    with pytest.raises(InputError, match=f"^{name}: found "):
        FitSettings(**{name: value})


def test_settings_survive_json():
    settings = FitSettings(encoding="random", sigma=1, epochs=7)
    again = FitSettings.from_mapping(json.loads(settings.to_json()))
    assert again == settings
    assert isinstance(again.sigma, float)


def test_an_unknown_option_is_refused_by_name():
    with pytest.raises(InputError, match="'rotary'"):
        FitSettings.from_mapping({"rotary": True})


def test_the_folder_name_says_what_was_asked():
    assert FitSettings(seed=3).name == "encoding-learn_sigma-0.1_mask-0.9_seed-3"
    assert FitSettings(encoding="3d-fixed").name == "encoding-3d-fixed_mask-0.9_seed-0"
