"""What a sweep says: settings beside each other over seeds; tables in, tables and text out."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pandas as pd

from neuro_pe.settings import FitSettings, uses_sigma

__all__ = ["Choice", "SweepSummary", "label_of", "summarize_sweep", "sweep_text"]

OPTIONS = [option.name for option in fields(FitSettings)]
SPLITS = ("validation", "test")
LEVEL = 0.95


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The setting with the lowest validation error, beside the next.

    Parameters
    ----------
    best, next : str
        Settings.
    difference, low, high : float
        Validation MSE of the best minus the next, paired by seed, and its 95 % interval (t
        distribution over seeds; NaN with one seed).
    n_seeds : int
        Seeds that both have.
    """

    best: str
    next: str
    difference: float
    low: float
    high: float
    n_seeds: int

    @property
    def is_clear(self) -> bool:
        """Whether the interval leaves out zero."""
        return self.high < 0


@dataclass(frozen=True, kw_only=True, eq=False)
class SweepSummary:
    """A sweep: its fits, its settings over seeds, and what can be told apart.

    Parameters
    ----------
    table : DataFrame
        A row a fit: ``name, status, error``, options, results (``sweep.tsv``).
    settings : DataFrame
        A row a setting: ``setting``, options, ``n_seeds``, and of the validation and the test
        MSE mean, SD and 95 % interval over seeds (t distribution).
    tests : DataFrame
        One-way F-tests over the settings: ``split, f, df_between, df_within, p``. The unit is a
        fit: they tell what chance in training can do, not how other subjects would differ.
    choice : Choice or None
        None with fewer than two settings.
    """

    table: pd.DataFrame
    settings: pd.DataFrame
    tests: pd.DataFrame
    choice: Choice | None

    @property
    def failed(self) -> pd.DataFrame:
        """Rows of the fits that failed."""
        return self.table[self.table["status"] != "done"]

    @property
    def has_curve(self) -> bool:
        """Whether several sigmas were tried."""
        return self.settings.loc[_with_sigma(self.settings), "sigma"].nunique() > 1


def _with_sigma(table: pd.DataFrame) -> pd.Series:
    return table["encoding"].map(uses_sigma).astype(bool)


def summarize_sweep(table: pd.DataFrame) -> SweepSummary:
    """Compare the settings of a sweep over their seeds.

    Parameters
    ----------
    table : DataFrame
        Of :func:`neuro_pe.jobs.run_jobs`, with the options of a fit as arguments.
    """
    done = table[table["status"] == "done"].copy()
    for column in [f"{split}_mse" for split in SPLITS]:
        done[column] = pd.to_numeric(done.get(column, pd.Series(dtype=float)))
    varied = [name for name in OPTIONS if name != "seed" and done[name].nunique(dropna=False) > 1]
    done["setting"] = [label_of(row, varied) for row in done.to_dict("records")]
    groups = dict(list(done.groupby("setting", sort=False)))
    others = [name for name in OPTIONS if name != "seed"]
    rows = []
    for label, group in groups.items():
        row = {"setting": label, **group.iloc[0][others].to_dict(), "n_seeds": len(group)}
        for split in SPLITS:
            errors = group[f"{split}_mse"].dropna().to_numpy()
            row |= {f"{split}_{name}": value for name, value in _spread(errors).items()}
        rows.append(row)
    columns = ["setting", *others, "n_seeds"]
    columns += [f"{split}_{name}" for split in SPLITS for name in ("mse", "sd", "low", "high")]
    settings = pd.DataFrame(rows, columns=columns)
    return SweepSummary(
        table=table, settings=settings, tests=_f_tests(groups), choice=_choose(settings, groups)
    )


def label_of(row: Mapping[Any, Any], varied: list[str]) -> str:
    """Name a setting by what differs in the sweep: encoding, sigma where it counts, the rest."""
    words = [str(row["encoding"])]
    if uses_sigma(str(row["encoding"])):
        words.append(f"sigma {row['sigma']:g}")
    for name in varied:
        if name not in ("encoding", "sigma"):
            value = row[name]
            shown = (
                "default" if pd.isna(value) else f"{value:g}" if isinstance(value, float) else value
            )
            words.append(f"{name.replace('_', ' ')} {shown}")
    return ", ".join(words)


def _spread(errors: np.ndarray) -> dict[str, float]:
    mean = float(errors.mean()) if len(errors) else np.nan
    sd, half = np.nan, np.nan
    if len(errors) > 1:
        sd, half = float(errors.std(ddof=1)), _half_width(errors)
    return {"mse": mean, "sd": sd, "low": mean - half, "high": mean + half}


def _half_width(values: np.ndarray) -> float:
    from scipy import special

    quantile = special.stdtrit(len(values) - 1, (1 + LEVEL) / 2)
    return float(quantile * values.std(ddof=1) / np.sqrt(len(values)))


def _f_tests(groups: dict[Any, pd.DataFrame]) -> pd.DataFrame:
    from scipy import stats

    rows = []
    for split in SPLITS:
        samples = [group[f"{split}_mse"].dropna().to_numpy() for group in groups.values()]
        samples = [errors for errors in samples if len(errors)]
        between, within = len(samples) - 1, sum(map(len, samples)) - len(samples)
        if between < 1 or within < 1:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of encodings that no seed changes
            test = stats.f_oneway(*samples)
        row = {"split": split, "f": test.statistic, "p": test.pvalue}
        rows.append({**row, "df_between": between, "df_within": within})
    return pd.DataFrame(rows, columns=["split", "f", "df_between", "df_within", "p"])


def _choose(settings: pd.DataFrame, groups: dict[Any, pd.DataFrame]) -> Choice | None:
    """Take the lowest mean validation error; test errors choose nothing."""
    ranked = settings.dropna(subset=["validation_mse"]).sort_values("validation_mse")
    if len(ranked) < 2:
        return None
    best, other = ranked["setting"].iloc[:2]
    pairs = [groups[name].set_index("seed")["validation_mse"] for name in (best, other)]
    differences = (pairs[0] - pairs[1]).dropna().to_numpy()
    spread = _spread(differences)
    return Choice(
        best=best,
        next=other,
        difference=spread["mse"],
        low=spread["low"],
        high=spread["high"],
        n_seeds=len(differences),
    )


def sweep_text(summary: SweepSummary) -> str:
    """Return what the end of a sweep prints."""
    settings, table = summary.settings, summary.table
    lines = []
    if not len(settings):
        lines.append("No fit succeeded, so there is nothing to compare.")
    else:
        width = max(len("space_time_gaussian"), *(len(name) for name in settings["setting"]))
        head = f"{'validation MSE [95 % interval]':>34}{'test MSE [95 % interval]':>34}"
        lines.append(f"{'setting':{width}}{'seeds':>7}{head}")
        for row in settings.to_dict("records"):
            cells = "".join(f"{_interval(row, split):>34}" for split in SPLITS)
            lines.append(f"{row['setting']:{width}}{row['n_seeds']:>7}{cells}")
        lines += _baseline_lines(table, width)
    for row in summary.tests.to_dict("records"):
        lines.append(
            f"F-test over the settings, {row['split']} MSE: F({row['df_between']}, "
            f"{row['df_within']}) = {row['f']:.3g}, p = {row['p']:.2g} (unit: a fit, so it tells "
            "of chance in training, not of other subjects)"
        )
    if summary.choice is not None:
        lines.append(_choice_line(summary.choice))
    return "\n".join(lines)


def _interval(row: Mapping[Any, Any], split: str) -> str:
    mean, low, high = (row[f"{split}_{name}"] for name in ("mse", "low", "high"))
    if pd.isna(mean):
        return "none held out"
    return f"{mean:.4f}" + ("" if pd.isna(low) else f" [{low:.4f}, {high:.4f}]")


def _baseline_lines(table: pd.DataFrame, width: int) -> list[str]:
    """Return the baselines' errors; a range where windows or masks differ between settings."""
    names = table.columns[table.columns.str.startswith("test_mse_")].str.removeprefix("test_mse_")
    lines = []
    for name in names:
        cells = ""
        for split in SPLITS:
            column = f"{split}_mse_{name}"
            errors = table[column].dropna() if column in table else pd.Series(dtype=float)
            low, high = f"{errors.min():.4f}", f"{errors.max():.4f}"
            shown = "" if errors.empty else low if low == high else f"{low} to {high}"
            cells += f"{shown:>34}"
        lines.append(f"{name:{width}}{'':>7}{cells}")
    return lines


def _choice_line(choice: Choice) -> str:
    start = f"Lowest validation MSE: {choice.best}. "
    if choice.n_seeds < 2:
        seeds = f"{choice.n_seeds} shared seed{'s' if choice.n_seeds == 0 else ''}"
        return start + f"With {seeds} it cannot be told from {choice.next}; add --seeds."
    interval = f"{choice.difference:+.4f} [{choice.low:+.4f}, {choice.high:+.4f}]"
    verdict = "the seeds tell them apart" if choice.is_clear else "the seeds cannot tell them apart"
    return start + f"Minus the next, {choice.next}: {interval}, {choice.n_seeds} seeds: {verdict}."
