"""What fits of simulated networks say: a table of all, means over seeds, tests."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from scipy import stats

from neuro_pe._job_table import MISSING
from neuro_pe.settings import uses_sigma
from neuro_pe.synthetic._fits import mean_interval

__all__ = [
    "CEILING",
    "COLUMNS",
    "SOURCES",
    "STATISTICS",
    "f_tests",
    "fault",
    "long_table",
    "summarize_nmar",
]

CEILING = "mse_noise_ceiling"
SOURCES = ("pe", "change", "fc")
STATISTICS = ("ari", "ari_matched", "q_partition", "within", "between")
MEASURES = [*STATISTICS, "correlation_with_weights", "ari_null", "ari_p"]
COLUMNS = ["fit", "encoding", "sigma", "noise", "seed", "core_seconds", "predictor", "mse"]
COLUMNS += ["source", *MEASURES]


def fault(row: Mapping[str, str]) -> str | None:
    """Return the first cell of a row of ``sweep.tsv`` that holds no such result, if any.

    Parameters
    ----------
    row : mapping of str to str
        Text of the cells by column.
    """
    numbers = {
        name: pd.to_numeric(row.get(name, ""), errors="coerce")
        for name in [CEILING, *(f"{source}_{name}" for source in SOURCES for name in MEASURES)]
    }
    if not numbers[CEILING] > 0:
        return CEILING
    for source in SOURCES:
        own = [f"{source}_{name}" for name in MEASURES]
        # An encoding without vectors, or one that stayed as it was, has nothing to compare.
        if source != "fc" and all(row.get(name, MISSING) == MISSING for name in own):
            continue
        for name in own:
            low = 0 if name.endswith("_p") else -1
            if not low <= numbers[name] <= 1:
                return name
    return None


def long_table(done: pd.DataFrame) -> pd.DataFrame:
    """Return ``nmar.tsv``: a row a fit and predictor, then a row a fit and source."""
    rows = []
    for row in done.to_dict("records"):
        sigma = row["sigma"] if uses_sigma(row["encoding"]) else np.nan
        shared = {"fit": row["name"].rpartition("_seed-")[0], "sigma": sigma}
        shared |= {name: row[name] for name in ("encoding", "noise", "seed", "core_seconds")}
        errors = {name: value for name, value in row.items() if str(name).startswith("mse_")}
        rows += [
            {**shared, "predictor": str(name).removeprefix("mse_"), "mse": value}
            for name, value in errors.items()
        ]
        for source in SOURCES:
            own = {name: row.get(f"{source}_{name}", np.nan) for name in MEASURES}
            if pd.notna(own["ari"]):
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
        A row a setting: ``fit, encoding, sigma, noise, n_seeds, core_seconds``; ``mse_`` of every
        predictor; ``ari``, ``within_minus_between`` and ``correlation_with_weights`` of every
        source, and of ARI ``_low`` and ``_high`` (95 % interval over seeds, t distribution) and
        ``_null`` (labels permuted).
    """
    rows = []
    for fit, group in results.groupby("fit", sort=False):
        first = group.iloc[0]
        row = {"fit": fit} | {name: first[name] for name in ("encoding", "sigma", "noise")}
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
    """Test at each noise whether the model's errors differ between settings."""
    rows = []
    model = results[results["predictor"] == "model"]
    for noise, group in model.groupby("noise"):
        samples = [part["mse"].to_numpy() for _, part in group.groupby("fit")]
        within = sum(map(len, samples)) - len(samples)
        if len(samples) > 1 and within > 0:
            test = stats.f_oneway(*samples)
            row = {"noise": noise, "f": test.statistic, "p": test.pvalue}
            rows.append({**row, "df_between": len(samples) - 1, "df_within": within})
    return pd.DataFrame(rows, columns=["noise", "f", "df_between", "df_within", "p"])
