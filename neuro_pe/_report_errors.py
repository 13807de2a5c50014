"""The errors of fits as the report's page lists them: on the whole, and by network."""

from typing import Any

import pandas as pd

from neuro_pe._fit_groups import Comparison
from neuro_pe.comparison import compare_predictors

__all__ = ["error_rows", "network_error_rows"]


def error_rows(comparison: Comparison, fit: str) -> list[dict[str, Any]]:
    """Masked errors of model and baselines: test subjects, paired; else validation subjects."""
    models = comparison.groups[fit]
    metrics = pd.concat([model.metrics.assign(fit_seed=model.settings.seed) for model in models])
    split = "test" if (metrics["split"] == "test").any() else "validation"
    metrics = metrics[metrics["split"] == split]
    # Of a model's validation errors, the lowest is that of the epoch that was kept.
    ranked = metrics.sort_values("mse", ascending=False)
    last = ranked.groupby(["fit_seed", "predictor"], sort=False).tail(1)
    over_seeds = last.groupby("predictor", sort=False).agg(
        mse=("mse", "mean"), sd=("mse", "std"), r2=("r2", "mean"), n=("mse", "size")
    )
    errors = pd.concat([model.region_errors for model in models])
    paired = pd.DataFrame(columns=["difference", "low", "high", "n_subjects"], dtype=float)
    if split == "test" and len(errors):
        paired = compare_predictors(errors).set_index("predictor")[list(paired.columns)]
    table = over_seeds.join(paired).sort_values("mse", kind="stable").reset_index()
    table["predictor"] = table["predictor"].str.replace("_", " ")
    rows = table.assign(split=split).to_dict("records")
    return [{str(key): value for key, value in row.items()} for row in rows]


def network_error_rows(comparison: Comparison, fit: str) -> list[dict[str, Any]]:
    """R2 of hidden entries by network, of the model and the baselines; the best predicted first.

    Means over the regions of a network, then over test subjects and seeds.
    """
    errors = pd.concat([model.region_errors for model in comparison.groups[fit]])
    errors = errors.assign(network=errors["region"].map(comparison.networks))
    errors = errors.dropna(subset=["network", "r2"])
    if errors.empty:
        return []
    by_subject = errors.groupby(["network", "predictor", "subject"])["r2"].mean()
    table = by_subject.groupby(["network", "predictor"]).mean().unstack()
    table = table.sort_values("model", ascending=False)
    # The best on the whole first, the model in front.
    order = ["model", *table.drop(columns="model").mean().sort_values(ascending=False).index]
    sizes = comparison.networks.value_counts().to_dict()
    return [
        {
            "network": network,
            "n_regions": sizes[network],
            "r2": {predictor.replace("_", " "): row[predictor] for predictor in order},
        }
        for network, row in table.to_dict("index").items()
    ]
