"""Region time series with their labels: one run, and the runs of a cohort in one region order."""

import hashlib
import mmap
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import pandas as pd

from neuro_pe.errors import InputError

__all__ = ["Cohort", "RegionTimeSeries", "coordinates_of", "standardize"]

# A run that lacks more than this share of its regions is left out rather than
# taking all those regions from everybody.
MAX_MISSING_REGIONS = 0.05


@dataclass(frozen=True, kw_only=True, eq=False)
class RegionTimeSeries:
    """The parcellated time series of one BIDS run.

    Parameters
    ----------
    values : ndarray, shape (time, region)
        Signal of each region; any unit. A region without signal may be all NaN.
    regions : sequence of str, length region
        Region names, unique, in column order.
    tr : float or None
        Repetition time in seconds; None when unknown.
    subject : str
        Subject label without ``sub-``.
    session, task, run : str or None
        BIDS entities of the run.
    source : str
        File (or description) that the values come from.

    Raises
    ------
    InputError
        If the array is not 2-D, names are missing or repeat, or the TR is not positive.

    Examples
    --------
    >>> import numpy as np
    >>> from neuro_pe import RegionTimeSeries
    >>> run = RegionTimeSeries(values=np.random.default_rng(0).normal(size=(50, 2)),
    ...                        regions=["L_V1", "R_V1"], tr=0.72, subject="01")
    >>> run.n_times, run.n_regions
    (50, 2)
    """

    values: np.ndarray
    regions: tuple[str, ...]
    tr: float | None = None
    subject: str
    session: str | None = None
    task: str | None = None
    run: str | None = None
    source: str = ""

    def __post_init__(self) -> None:
        values = np.asarray(self.values)
        if values.ndim != 2 or values.size == 0:
            msg = f"{self.label}: expected a (time, region) array, found shape {values.shape}."
            raise InputError(msg)
        if values.dtype.kind not in "iuf":
            msg = f"{self.label}: expected numbers, found an array of {values.dtype}."
            raise InputError(msg)
        regions = tuple(self.regions)  # the same object for a tuple: all runs can share one
        if {type(name) for name in regions} - {str}:
            regions = tuple(map(str, regions))
        if len(regions) != values.shape[1]:
            msg = f"{self.label}: {values.shape[1]} columns but {len(regions)} region names."
            raise InputError(msg)
        repeated = [name for name, count in Counter(regions).items() if count > 1]
        if repeated:
            msg = (
                f"{self.label}: region names repeat ({', '.join(repeated[:3])}); "
                "every column needs a name of its own."
            )
            raise InputError(msg)
        if self.tr is not None and not (np.isfinite(self.tr) and self.tr > 0):
            msg = f"{self.label}: repetition time {self.tr} s; expected a positive number."
            raise InputError(msg)
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "regions", regions)

    @property
    def label(self) -> str:
        """How messages name this run: its file, else its subject."""
        return self.source or f"subject {self.subject}"

    @property
    def n_times(self) -> int:
        """Number of volumes."""
        return self.values.shape[0]

    @property
    def n_regions(self) -> int:
        """Number of regions."""
        return self.values.shape[1]

    def unusable_regions(self) -> dict[str, str]:
        """Name the regions that carry no signal, each with the reason.

        Returns
        -------
        dict
            Region name to ``"not finite"``, ``"not finite at 3 of 400 volumes"`` or
            ``"constant"``.
        """
        finite = np.isfinite(self.values).sum(axis=0)
        first = self.values[:1]
        with np.errstate(invalid="ignore"):
            scale = np.abs(self.values).max(axis=0)
            constant = np.abs(self.values - first).max(axis=0) <= 1e-6 * scale
        reasons = {}
        for name, n_finite, is_constant in zip(self.regions, finite, constant, strict=True):
            if n_finite == 0:
                reasons[name] = "not finite"
            elif n_finite < self.n_times:
                bad = self.n_times - n_finite
                reasons[name] = f"not finite at {bad} of {self.n_times} volumes"
            elif is_constant:
                reasons[name] = "constant"
        return reasons

    def select(self, regions: Sequence[str]) -> "RegionTimeSeries":
        """Return the run with these regions, in this order."""
        if tuple(regions) == self.regions:
            return self
        position = {name: column for column, name in enumerate(self.regions)}
        columns = [position[name] for name in regions]
        return replace(self, values=self.values[:, columns], regions=tuple(regions))

    def release(self) -> None:
        """Let go of the memory of values that are mapped from a file; they are read anew."""
        base: object = self.values
        while isinstance(base, np.ndarray):
            base = base.base
        if isinstance(base, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
            base.madvise(mmap.MADV_DONTNEED)

    def standardized(self) -> "RegionTimeSeries":
        """Return the run with every region at mean 0 and standard deviation 1 over time."""
        return replace(self, values=standardize(self.values))


def coordinates_of(regions: pd.DataFrame) -> np.ndarray | None:
    """Return MNI x y z in mm, shape (region, 3); None when any region of the table lacks them."""
    if not {"x", "y", "z"} <= set(regions.columns):
        return None
    xyz = regions[["x", "y", "z"]].to_numpy(dtype=float)
    return xyz if np.isfinite(xyz).all() else None


def standardize(values: np.ndarray) -> np.ndarray:
    """Z-score every region of a run over time.

    Parameters
    ----------
    values : ndarray, shape (time, region)
        Finite values, no constant region.

    Returns
    -------
    ndarray of float32, shape (time, region)
    """
    values = np.asarray(values, dtype=np.float64)
    values = values - values.mean(axis=0)
    return (values / values.std(axis=0)).astype(np.float32)


@dataclass(frozen=True, kw_only=True, eq=False)
class Cohort(Sequence[RegionTimeSeries]):
    """Runs of several subjects with the same regions in the same order.

    Build one with :meth:`from_runs`, or with :func:`neuro_pe.load_bids`.

    Parameters
    ----------
    runs : tuple of RegionTimeSeries
        All with the columns of `regions`.
    regions : DataFrame, one row a region
        Column ``name``; where an atlas is known also ``hemisphere``, ``x``, ``y``, ``z`` (MNI,
        mm) and one column a network partition.
    dropped : DataFrame
        ``name`` and ``reason`` of every region that was left out.
    atlas : str or None
        Name of the atlas.
    participants : DataFrame or None
        ``participants.tsv`` indexed by subject label (without ``sub-``).
    """

    runs: tuple[RegionTimeSeries, ...]
    regions: pd.DataFrame
    dropped: pd.DataFrame = field(
        default_factory=lambda: pd.DataFrame({"name": [], "reason": []}, dtype=str)
    )
    atlas: str | None = None
    participants: pd.DataFrame | None = None

    @classmethod
    def from_runs(
        cls,
        runs: Sequence[RegionTimeSeries],
        *,
        regions: pd.DataFrame | None = None,
        dropped: pd.DataFrame | None = None,
        atlas: str | None = None,
        participants: pd.DataFrame | None = None,
        keep: Callable[[RegionTimeSeries], RegionTimeSeries] | None = None,
    ) -> "Cohort":
        """Bring runs into one region order and leave out what carries no signal.

        A run that lacks more than 5 % of the regions that any run has is left out; a region that
        one of the others lacks is left out for everybody. Both are warned about.

        Parameters
        ----------
        runs : sequence of RegionTimeSeries
            All with the same set of region names.
        regions : DataFrame or None
            Region table with a ``name`` column that sets the order; None takes the first run's.
        dropped : DataFrame or None
            Regions that were left out earlier (``name``, ``reason``).
        atlas, participants
            See the class.
        keep : callable or None
            Called with every run of the result in turn, to put its values elsewhere.

        Raises
        ------
        InputError
            If there is no run, region names differ between runs, the repetition times differ,
            or no region is left.
        """
        if not runs:
            msg = "no runs were given; expected at least one RegionTimeSeries."
            raise InputError(msg)
        if regions is None:
            regions = pd.DataFrame({"name": list(runs[0].regions)})
        names = [str(name) for name in regions["name"]]
        for run in runs:
            _check_same_regions(run, names, runs[0])
        _check_repetition_times(runs)
        kept, reasons = _usable(runs, names)
        left = [name for name in names if name not in reasons]
        if not left:
            msg = f"{kept[0].label}: no region has a signal in every run; nothing is left to fit."
            raise InputError(msg)
        table = pd.DataFrame({"name": list(reasons), "reason": list(reasons.values())}, dtype=str)
        if dropped is not None and len(dropped):
            table = pd.concat([dropped[["name", "reason"]], table], ignore_index=True)
        is_left = regions["name"].astype(str).isin(left)
        return cls(
            runs=tuple(map(keep or (lambda run: run), (run.select(left) for run in kept))),
            regions=regions[is_left].reset_index(drop=True),
            dropped=table,
            atlas=atlas,
            participants=participants,
        )

    def __repr__(self) -> str:
        sizes = f"{len(self.subjects)} subjects, {len(self)} runs, {len(self.regions)} regions"
        return f"Cohort({sizes}, atlas={self.atlas!r}, tr={self.tr})"

    def __len__(self) -> int:
        return len(self.runs)

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        return self.runs[index]

    def __iter__(self) -> Iterator[RegionTimeSeries]:
        return iter(self.runs)

    @property
    def subjects(self) -> list[str]:
        """Subject labels, in order of first appearance."""
        return list(dict.fromkeys(run.subject for run in self.runs))

    @property
    def tr(self) -> float | None:
        """Repetition time in seconds, or None when no run knows it."""
        return next((run.tr for run in self.runs if run.tr is not None), None)

    @property
    def region_names(self) -> list[str]:
        """Region names in column order."""
        return list(self.runs[0].regions)

    @property
    def coordinates(self) -> np.ndarray | None:
        """MNI x y z in mm, shape (region, 3); None when any region lacks them."""
        return coordinates_of(self.regions)

    def select_subjects(self, subjects: Sequence[str]) -> "Cohort":
        """Return the runs of these subjects."""
        wanted = set(subjects)
        return replace(self, runs=tuple(run for run in self.runs if run.subject in wanted))

    def fingerprint(self) -> str:
        """Return a checksum of the values and their labels: equal for equal data only."""
        return self._fingerprint

    @cached_property
    def _fingerprint(self) -> str:
        digest = hashlib.sha256("\n".join(self.region_names).encode())
        for run in self.runs:
            digest.update(f"{run.subject}|{run.tr}|{run.values.shape}".encode())
            digest.update(np.ascontiguousarray(run.values, dtype=np.float32).data)
            run.release()
        return digest.hexdigest()

    def functional_connectivity(self) -> pd.DataFrame:
        """Mean correlation between regions: over the runs of a subject, then over subjects.

        Returns
        -------
        DataFrame, region x region
        """
        total = np.zeros((len(self.region_names),) * 2)
        n_runs = Counter(run.subject for run in self.runs)
        for run in self.runs:
            total += np.corrcoef(run.values.astype(float), rowvar=False) / n_runs[run.subject]
            run.release()
        names = self.region_names
        return pd.DataFrame(total / len(n_runs), index=names, columns=names)


def _check_same_regions(
    run: RegionTimeSeries, names: Sequence[str], first: RegionTimeSeries
) -> None:
    missing = sorted(set(names) - set(run.regions))
    extra = sorted(set(run.regions) - set(names))
    if missing or extra:
        example = f"lacks {missing[0]!r}" if missing else f"has {extra[0]!r} in addition"
        msg = (
            f"{run.label}: {run.n_regions} regions where {first.label} has {len(names)} "
            f"(it {example}); all runs need the same regions."
        )
        raise InputError(msg)


def _check_repetition_times(runs: Sequence[RegionTimeSeries]) -> None:
    known = [run for run in runs if run.tr is not None]
    for run in known:
        if abs(run.tr - known[0].tr) > 0.01 * known[0].tr:  # type: ignore[operator]
            msg = (
                f"{run.label}: repetition time {run.tr:g} s where {known[0].label} has "
                f"{known[0].tr:g} s; a window must last equally long in every run. "
                "Fit them apart, or resample one."
            )
            raise InputError(msg)


def _usable(
    runs: Sequence[RegionTimeSeries], names: Sequence[str]
) -> tuple[list[RegionTimeSeries], dict[str, str]]:
    """Return the runs with enough regions, and the regions that one of those lacks."""
    kept = []
    reasons: dict[str, str] = {}
    unusable_by_run = []
    for run in runs:
        unusable_by_run.append(run.unusable_regions())
        run.release()
    # What every run lacks (below the field of view) says nothing against any of them.
    lacking_everywhere = set(names).intersection(*unusable_by_run)
    n_regions = len(names) - len(lacking_everywhere)
    for run, unusable in zip(runs, unusable_by_run, strict=True):
        lacking = {name: why for name, why in unusable.items() if name not in lacking_everywhere}
        if len(lacking) > MAX_MISSING_REGIONS * n_regions:
            msg = (
                f"{run.label}: left out, {len(lacking)} of {n_regions} regions have no signal "
                f"(first: {', '.join(next(iter(lacking.items())))})."
            )
            warnings.warn(msg, stacklevel=3)
            continue
        kept.append(run)
        for name, reason in unusable.items():
            reasons.setdefault(name, f"{reason} in {run.label}")
    if not kept:
        msg = (
            f"{runs[0].label}: no run has a signal in at least "
            f"{1 - MAX_MISSING_REGIONS:.0%} of the {n_regions} regions that any run has."
        )
        raise InputError(msg)
    if reasons:
        first_name, first_reason = next(iter(reasons.items()))
        msg = (
            f"{len(reasons)} of {len(names)} regions left out for everybody "
            f"(first: {first_name}, {first_reason})."
        )
        warnings.warn(msg, stacklevel=3)
    return kept, reasons
