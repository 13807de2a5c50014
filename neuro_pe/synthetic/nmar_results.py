"""What fits of simulated networks say: a table of all, means over seeds, tests."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy import stats

from neuro_pe.settings import uses_sigma
from neuro_pe.synthetic._fits import FinishedFit, mean_interval

__all__ = [
    "CEILING",
    "COLUMNS",
    "SOURCES",
    "STATISTICS",
    "f_tests",
    "long_table",
    "summarize_nmar",
]

CEILING = "mse_noise_ceiling"
SOURCES = ("pe", "change", "fc")
STATISTICS = ("ari", "ari_matched", "q_partition", "within", "between")
MEASURES = [*STATISTICS, "correlation_with_weights", "ari_null", "ari_p"]
COLUMNS = ["fit", "network", "encoding", "sigma", "noise", "seed", "core_seconds"]
COLUMNS += ["predictor", "mse", "source", *MEASURES]


def long_table(fits: Sequence[FinishedFit]) -> pd.DataFrame:
    """Return ``nmar.tsv``: a row a fit and predictor, then a row a fit and source."""
    rows = []
    for fit in fits:
        asked, results = fit.job.arguments, fit.results
        shared = {
            "fit": fit.job.name.rpartition("_seed-")[0],
            "core_seconds": results["core_seconds"],
        }
        shared |= {name: asked[name] for name in ("encoding", "noise", "seed")}
        shared["network"] = fit.path.parent.name.rpartition("_seed-")[0]
        shared["sigma"] = asked["sigma"] if uses_sigma(asked["encoding"]) else np.nan
        errors = {name: value for name, value in results.items() if name.startswith("mse_")}
        rows += [
            {**shared, "predictor": name.removeprefix("mse_"), "mse": value}
            for name, value in errors.items()
        ]
        for source in SOURCES:
            if f"{source}_ari" in results:
                own = {name: results[f"{source}_{name}"] for name in MEASURES}
                rows.append({**shared, "source": source, **own})
    return pd.DataFrame(rows, columns=COLUMNS)


def summarize_nmar(results: pd.DataFrame) -> pd.DataFrame:
    """Bring the seeds of each setting together.

    Parameters
    ----------
    results : DataFrame
        ``nmar.tsv``.

    Returns
    -------
    DataFrame
        A row a setting: ``fit, network, encoding, sigma, noise, n_seeds, core_seconds``; ``mse_``
        of every predictor; ``ari``, ``within_minus_between``, ``correlation_with_weights`` of every
        source, and of ARI ``_low`` and ``_high`` (95 % interval over seeds, t distribution) and
        ``_null`` (labels permuted).
    """
    rows = []
    for fit, group in results.groupby("fit", sort=False):
        first = group.iloc[0]
        row = {"fit": fit} | {
            name: first[name] for name in ("network", "encoding", "sigma", "noise")
        }
        row |= {"n_seeds": group["seed"].nunique(), "core_seconds": group["core_seconds"].mean()}
        errors = group.groupby("predictor")["mse"].mean()
        row |= {f"mse_{name}": value for name, value in errors.items()}
        for source, own in group.groupby("source"):
            ends = [f"{source}_ari{end}" for end in ("", "_low", "_high")]
            row |= dict(zip(ends, mean_interval(own["ari"]), strict=True))
            row[f"{source}_ari_null"] = own["ari_null"].astype(float).mean()
            row[f"{source}_within_minus_between"] = (own["within"] - own["between"]).mean()
            row[f"{source}_correlation_with_weights"] = own["correlation_with_weights"].mean()
        rows.append(row)
    return pd.DataFrame(rows)


def f_tests(results: pd.DataFrame) -> pd.DataFrame:
    """Test for each kind of network whether the model's errors differ between settings."""
    rows = []
    model = results[results["predictor"] == "model"]
    for network, group in model.groupby("network", sort=False):
        samples = [part["mse"].to_numpy() for _, part in group.groupby("fit")]
        within = sum(map(len, samples)) - len(samples)
        if len(samples) > 1 and within > 0:
            test = stats.f_oneway(*samples)
            row = {"network": network, "f": test.statistic, "p": test.pvalue}
            rows.append({**row, "df_between": len(samples) - 1, "df_within": within})
    return pd.DataFrame(rows, columns=["network", "f", "df_between", "df_within", "p"])
