"""Fits side by side: which may stand so, which are seeds of the same fit, how they compare."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import pandas as pd

from neuro_pe.errors import InputError
from neuro_pe.model_folder import ModelFolder

__all__ = ["Comparison", "group_fits"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Comparison:
    """Fits of the same data beside one partition: what the table and the figures come from.

    Parameters
    ----------
    table : DataFrame
        The columns of :func:`neuro_pe.compare_networks`, then ``fit``, the settings that the
        seeds of a fit share. Functional connectivity has neither fit nor seed; the seed of a
        Procrustes distance is a pair such as ``0-1``.
    groups : dict of str to list of ModelFolder
        The seeds of each ``fit``.
    networks : Series, region name -> network
        Regions that are compared.
    similarities : dict of (fit, source) to DataFrame, region x region
        Of the first seed; functional connectivity under ``("", "fc")``.
    communities : dict of (fit, source) to Series, region name -> community
        Of the first seed, at the resolution matched to the number of networks.
    notes : list of str
        What was left out, and why.
    """

    table: pd.DataFrame
    groups: dict[str, list[ModelFolder]]
    networks: pd.Series
    similarities: dict[tuple[str, str], pd.DataFrame]
    communities: dict[tuple[str, str], pd.Series]
    notes: list[str]


def group_fits(models: Sequence[ModelFolder]) -> dict[str, list[ModelFolder]]:
    """Sort fits by their settings; refuse what cannot stand side by side."""
    if not models:
        msg = "no model folders were given; expected at least one."
        raise InputError(msg)
    first = models[0]
    groups: dict[str, list[ModelFolder]] = {}
    for model in models:
        _check_same_data(model, first)
        fit = _name(model).removesuffix(f"_seed-{model.settings.seed}")
        for other in groups.setdefault(fit, []):
            if other.settings.seed == model.settings.seed:
                msg = f"{model.path} and {other.path}: both are {_name(model)}; give one."
                raise InputError(msg)
            _check_same_settings(model, other)
        groups[fit].append(model)
    return groups


def _name(model: ModelFolder) -> str:
    """Name of the folder, which says more after a sweep, unless somebody renamed it."""
    start, end = model.settings.name.split("_seed-")
    mine = model.path.name.startswith(f"{start}_") and model.path.name.endswith(f"_seed-{end}")
    return model.path.name if mine else model.settings.name


def _check_same_data(model: ModelFolder, first: ModelFolder) -> None:
    reason = ""
    if list(model.regions["name"]) != list(first.regions["name"]):
        reason = f"{len(model.regions)} regions that are not the {len(first.regions)}"
    elif model.data.get("fingerprint") != first.data.get("fingerprint"):
        reason = "fitted to other data than those"
    elif _splits(model) != _splits(first):
        reason = "its subjects are split in another way than those"
    if reason:
        msg = f"{model.path}: {reason} of {first.path}; compare fits of the same data at a time."
        raise InputError(msg)


def _splits(model: ModelFolder) -> dict[str, str]:
    return dict(zip(model.subjects["subject"], model.subjects["split"], strict=True))


def _check_same_settings(model: ModelFolder, other: ModelFolder) -> None:
    mine = replace(model.settings, seed=other.settings.seed)
    for option in fields(mine):
        here, there = getattr(mine, option.name), getattr(other.settings, option.name)
        if here != there:
            msg = (
                f"{model.path}: {option.name} {here} where {other.path} has {there}, though "
                "only their seeds should differ; compare them one at a time."
            )
            raise InputError(msg)
