"""Windows of runs, and splits of subjects."""

import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import torch

from neuro_pe.errors import InputError
from neuro_pe.timeseries import Cohort, RegionTimeSeries, standardize

__all__ = ["Split", "WindowSource", "long_enough", "split_subjects"]

TRAIN, VALIDATION, TEST = "train", "validation", "test"


@dataclass(frozen=True, kw_only=True)
class Split:
    """Which subjects train, validate and test a model; no subject is in two of them.

    Parameters
    ----------
    train, validation, test : tuple of str
        Subject labels.
    """

    train: tuple[str, ...]
    validation: tuple[str, ...] = ()
    test: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        everybody = [*self.train, *self.validation, *self.test]
        repeated = sorted({name for name in everybody if everybody.count(name) > 1})
        if repeated:
            msg = (
                f"subject {repeated[0]} is in two splits; expected every subject in one of "
                "training, validation and test."
            )
            raise InputError(msg)

    def to_frame(self) -> pd.DataFrame:
        """Return columns ``subject`` and ``split``, sorted by subject."""
        rows = [
            (subject, split)
            for split in (TRAIN, VALIDATION, TEST)
            for subject in getattr(self, split)
        ]
        table = pd.DataFrame(rows, columns=["subject", "split"])
        return table.sort_values("subject", ignore_index=True)


def split_subjects(
    subjects: Sequence[str],
    *,
    test: float | int | Sequence[str],
    validation: float | int | Sequence[str],
    groups: Sequence[str] | None = None,
    seed: int = 0,
) -> Split:
    """Split subjects, or groups of them (families, sites), at random or by name.

    Parameters
    ----------
    subjects : sequence of str
        All subject labels, each once.
    test, validation : float, int or sequence of str
        A share (below 1) or a number of subjects, or their labels. With `groups`, whole groups
        are drawn until the number is reached.
    groups : sequence of str or None
        Group of each subject; a group stays within one split.
    seed : int
        Of the draw; the same for all fits that are to be compared.

    Raises
    ------
    InputError
        If a label is unknown, a group would be in two splits, or no subject is left to train on.

    Examples
    --------
    >>> from neuro_pe.windows import split_subjects
    >>> split_subjects(["01", "02", "03", "04"], test=["04"], validation=1).test
    ('04',)
    """
    subjects = list(subjects)
    group_of = dict(zip(subjects, subjects if groups is None else groups, strict=True))
    order = list(np.random.default_rng(seed).permutation(sorted(set(group_of.values()))))
    chosen: dict[str, list[str]] = {}
    taken: set[str] = set()
    requests = {TEST: test, VALIDATION: validation}
    # Subjects asked for by name first, so that a draw cannot take them.
    for split in sorted(requests, key=lambda name: isinstance(requests[name], (int, float))):
        request = requests[split]
        if isinstance(request, (int, float)):
            wanted = _number_of_subjects(split, request, len(subjects))
            chosen[split] = _draw(subjects, group_of, order, taken, wanted)
        else:
            chosen[split] = _by_name(split, request, subjects)
        taken |= {group_of[subject] for subject in chosen[split]}
    left = [name for name in subjects if name not in {*chosen[TEST], *chosen[VALIDATION]}]
    if not left:
        kept = f" that stay together in {len(order)} groups (--group-column)" if groups else ""
        msg = (
            f"found {len(subjects)} subject{'s'[: len(subjects) > 1]}{kept}; none is left to train "
            f"on after --test-subjects {test} and --validation-subjects {validation}. Add "
            "subjects, or lower the two (0 is allowed)."
        )
        raise InputError(msg)
    result = Split(
        train=tuple(left), validation=tuple(chosen[VALIDATION]), test=tuple(chosen[TEST])
    )
    _check_groups(result, group_of)
    return result


def _number_of_subjects(split: str, request: float | int, total: int) -> int:
    if isinstance(request, float) and 0 < request < 1:
        return max(1, round(request * total))
    if not math.isfinite(request) or request < 0 or request != int(request):
        msg = (
            f"--{split}-subjects: found {request}; expected a share below 1, a whole number, "
            "or labels."
        )
        raise InputError(msg)
    return int(request)


def _by_name(split: str, request: Sequence[str], subjects: Sequence[str]) -> list[str]:
    labels = [str(label).removeprefix("sub-") for label in request]
    unknown = [label for label in labels if label not in subjects]
    if unknown:
        msg = (
            f"--{split}-subjects: no data of subject {unknown[0]!r}; found "
            f"{', '.join(subjects[:5])}{', ...' if len(subjects) > 5 else ''}."
        )
        raise InputError(msg)
    return list(dict.fromkeys(labels))


def _draw(
    subjects: Sequence[str],
    group_of: dict[str, str],
    order: Sequence[str],
    taken: set[str],
    wanted: int,
) -> list[str]:
    drawn: list[str] = []
    for group in order:
        if len(drawn) >= wanted:
            break
        if group not in taken:
            drawn += [subject for subject in subjects if group_of[subject] == group]
    return sorted(drawn)


def _check_groups(split: Split, group_of: dict[str, str]) -> None:
    seen: dict[str, str] = {}
    for subject, name in split.to_frame().itertuples(index=False):
        group = group_of[subject]
        if seen.setdefault(group, name) != name:
            msg = (
                f"group {group!r} is in the {seen[group]} and the {name} split; a group must stay "
                "within one. Name all its subjects."
            )
            raise InputError(msg)


def long_enough(cohort: Cohort, *, window: int) -> Cohort:
    """Leave out runs that are shorter than a window, with a warning.

    Before a split, so that no subject without a window is counted in it.

    Parameters
    ----------
    cohort : Cohort
    window : int
        Length of a window, in TRs.

    Raises
    ------
    InputError
        If no run is as long as a window.
    """
    short = [run for run in cohort if run.n_times < window]
    if len(short) == len(cohort):
        msg = (
            f"{short[0].label if short else 'data'}: no run is as long as a window of "
            f"{window} TRs (the longest has {max((run.n_times for run in short), default=0)}); "
            "choose a smaller --window."
        )
        raise InputError(msg)
    for run in short:
        msg = f"{run.label}: left out, {run.n_times} TRs is shorter than a window of {window}."
        warnings.warn(msg, stacklevel=2)
    if not short:
        return cohort
    return replace(cohort, runs=tuple(run for run in cohort if run.n_times >= window))


class WindowSource:
    """Standardized runs of a cohort, cut into windows of consecutive TRs.

    Values are standardized as they are read, so a cohort that is mapped from a file stays there.

    Parameters
    ----------
    cohort : Cohort
    window : int
        Length of a window, in TRs. A shorter run is left out with a warning.
    stride : int or None
        TRs from the start of a window to that of the next; None is `window`: they adjoin.

    Attributes
    ----------
    cohort : Cohort
        The runs that are long enough, as they came.
    subjects : list of str
        Subjects with at least one window.
    n_regions : int

    Raises
    ------
    InputError
        If no run is as long as a window, or a region has no signal throughout.
    """

    def __init__(self, cohort: Cohort, *, window: int, stride: int | None = None) -> None:
        self.window = window
        self.stride = window if stride is None else stride
        self.cohort = long_enough(cohort, window=window)
        self.subjects = self.cohort.subjects
        self.subject_of_run = np.array([self.subjects.index(run.subject) for run in self.cohort])
        self.lengths = np.array([run.n_times for run in self.cohort])
        self.n_regions = len(self.cohort.region_names)
        self._scales = [self._scale(run) for run in self.cohort]

    def training_windows(self, generator: torch.Generator) -> torch.Tensor:
        """Cut every run into windows a stride apart from a random start, in random order.

        Parameters
        ----------
        generator : torch.Generator

        Returns
        -------
        Tensor of int64, shape (window, 2)
            Run and first TR of each window.
        """
        pieces = []
        for run, length in enumerate(self.lengths):
            spare = int(length) - self.window
            offset = int(torch.randint(min(spare, self.stride - 1) + 1, (1,), generator=generator))
            pieces.append(self._cut(run, offset))
        windows = torch.cat(pieces)
        return windows[torch.randperm(len(windows), generator=generator)]

    def evaluation_windows(self) -> torch.Tensor:
        """Cut every run into windows a stride apart from its first TR.

        Returns
        -------
        Tensor of int64, shape (window, 2)
            Run and first TR of each window.
        """
        return torch.cat([self._cut(run, 0) for run in range(len(self.lengths))])

    def gather(self, windows: torch.Tensor) -> torch.Tensor:
        """Return the values of windows.

        Parameters
        ----------
        windows : Tensor of int64, shape (batch, 2)
            Run and first TR.

        Returns
        -------
        Tensor of float32, shape (batch, region, time)
        """
        values = np.empty((len(windows), self.n_regions, self.window), dtype=np.float32)
        for number, (run, start) in enumerate(windows.tolist()):
            piece = self.cohort[run].values[start : start + self.window]
            mean, deviation = self._scales[run]
            values[number] = ((piece - mean) / deviation).T
        for run in windows[:, 0].unique().tolist():
            self.cohort[run].release()
        return torch.from_numpy(values)

    def standardized_runs(self) -> Iterator[np.ndarray]:
        """Yield every run, standardized: float32, shape (time, region)."""
        for run in self.cohort:
            yield standardize(run.values)
            run.release()

    @staticmethod
    def _scale(run: RegionTimeSeries) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of each region over time."""
        values = np.asarray(run.values, dtype=np.float64)
        run.release()
        mean, deviation = values.mean(axis=0), values.std(axis=0)
        useless = ~np.isfinite(mean) | (deviation == 0)
        if useless.any():
            msg = (
                f"{run.label}: region {run.regions[int(useless.argmax())]} lacks values or is "
                f"constant, as {useless.sum()} of {len(mean)} regions; expected complete runs: "
                "load them without keep_missing, or fill them in with `impute`."
            )
            raise InputError(msg)
        return mean, deviation

    def _cut(self, run: int, offset: int) -> torch.Tensor:
        starts = torch.arange(offset, int(self.lengths[run]) - self.window + 1, self.stride)
        return torch.stack([torch.full_like(starts, run), starts], dim=1)
