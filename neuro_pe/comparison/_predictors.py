"""Reconstruction errors of the model beside those of the baselines."""

import pandas as pd

__all__ = ["compare_predictors"]


def compare_predictors(region_errors: pd.DataFrame) -> pd.DataFrame:
    """Compare the model with each baseline, paired by test subject.

    Parameters
    ----------
    region_errors : DataFrame
        Of a model folder; or of several seeds, concatenated: a subject's error is then its mean.

    Returns
    -------
    DataFrame
        One row a predictor: ``predictor, mse, difference`` (model minus predictor, so negative
        is in favour of the model), ``low, high`` (95 % interval of the difference from the t
        distribution over subjects; missing with one subject), ``n_subjects``.
    """
    from scipy import stats

    table = region_errors.dropna(subset=["mse"])
    weighted = table.assign(squared=table["mse"] * table["n"])
    sums = weighted.groupby(["predictor", "subject"], sort=False)[["squared", "n"]].sum()
    by_subject = (sums["squared"] / sums["n"]).unstack("predictor")
    rows = []
    for predictor in by_subject.columns:
        difference = (by_subject["model"] - by_subject[predictor]).to_numpy()
        row = {"predictor": predictor, "mse": by_subject[predictor].mean()}
        if predictor != "model":
            row["difference"] = difference.mean()
            if len(difference) > 1:
                half = stats.sem(difference) * stats.t.ppf(0.975, len(difference) - 1)
                row |= {"low": difference.mean() - half, "high": difference.mean() + half}
        rows.append({**row, "n_subjects": len(difference)})
    columns = ["predictor", "mse", "difference", "low", "high", "n_subjects"]
    return pd.DataFrame(rows, columns=columns).sort_values("mse", ignore_index=True)
