"""The data of a sweep and the split of its subjects: the same for all fits of an output folder."""

import inspect
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from neuro_pe.derivatives import write_json
from neuro_pe.errors import InputError
from neuro_pe.jobs import DESCRIPTION, read_description
from neuro_pe.settings import option_name
from neuro_pe.timeseries import Cohort

__all__ = ["Source"]

CACHE = "cache"
FEW_LABELS = 5


@dataclass(kw_only=True)
class Source:
    """Where the data are, and how their subjects are split.

    Parameters
    ----------
    output_dir : str
    cohort : Cohort or None
        Runs in memory.
    bids_dir : str or None
        In place of runs, a folder that each process reads.
    filters : dict
        Options of :func:`neuro_pe.load_bids`.
    split : dict
        Options of :func:`neuro_pe.experiment.split_cohort`.
    modules : sequence of str
        That register encodings of the user's own.
    """

    output_dir: str
    cohort: Cohort | None
    bids_dir: str | None
    filters: dict[str, Any]
    split: dict[str, Any]
    modules: Sequence[str] = ()

    def load(self) -> Cohort:
        """Return the runs, read once a process."""
        if self.cohort is None:
            from neuro_pe.bids import load_bids

            assert self.bids_dir is not None
            known = set(inspect.signature(load_bids).parameters)
            known -= {"bids_dir", "cache_dir", "keep_missing"}
            if unknown := sorted(set(self.filters) - known):
                msg = f"filters: found {unknown[0]!r}; expected some of {', '.join(sorted(known))}."
                raise InputError(msg)
            # One copy of the values for all processes, and none of it in their memory.
            cache = Path(self.output_dir) / CACHE
            self.cohort = load_bids(self.bids_dir, cache_dir=cache, **self.filters)
        return self.cohort

    def differs(self) -> bool:
        """Whether the folder may hold fits of other data or splits than those asked for."""
        if not self.is_described():
            return self._some_fit() is not None
        return self.bids_dir is None or self._description().get("asked") != self._asked()

    def check(self) -> None:
        """Refuse a folder that holds fits of other data or splits."""
        with self._nothing_left():
            if self.is_described():
                old = self._description()
                self._check_data(old["data"], self.load())
                self._check_split(old["asked"]["split"], self._asked()["split"])
            elif (fit := self._some_fit()) is not None:
                self._check_fit(fit)

    def _check_fit(self, fit: Path) -> None:
        """Compare with what a fit saw, in place of the description that is gone."""
        from neuro_pe.experiment import split_cohort
        from neuro_pe.model_folder import read_settings
        from neuro_pe.windows import long_enough

        settings, old = read_settings(fit)
        cohort = long_enough(self.load(), window=settings.window)
        self._check_data(old, cohort)
        new = asdict(split_cohort(cohort, **self.split))
        names = [name for name in ("test", "validation") if name in old.get("split", {})]
        self._check_split(
            {f"{name}_subjects": sorted(old["split"][name]) for name in names},
            {f"{name}_subjects": sorted(new[name]) for name in names},
        )

    def prepare(self, window: int) -> "Source":
        """Find mistakes before the first fit; return what workers get."""
        from neuro_pe.encodings import registered_modules
        from neuro_pe.experiment import split_cohort
        from neuro_pe.windows import long_enough

        self.check()
        with self._nothing_left():
            split_cohort(long_enough(self.load(), window=window), **self.split)
        self.describe()
        return replace(
            self,
            cohort=self.cohort if self.bids_dir is None else None,
            modules=registered_modules(),
        )

    def is_described(self) -> bool:
        """Whether the folder says what data and split its fits have."""
        return self._file.exists()

    def describe(self) -> None:
        """Write what data and split the fits of the folder have."""
        from neuro_pe.fitting import describe_data

        data = describe_data(self.load())
        write_json({"format_version": 1, "asked": self._asked(), "data": data}, self._file)

    @property
    def _file(self) -> Path:
        return Path(self.output_dir) / DESCRIPTION

    def _some_fit(self) -> Path | None:
        """Return the folder of a fit, finished if there is one."""
        files = Path(self.output_dir).glob("*seed-*/settings.json")
        fits = sorted(files, key=lambda file: (file.parent.suffix == ".partial", file))
        return fits[0].parent if fits else None

    def _asked(self) -> dict[str, Any]:
        asked = {"bids_dir": self.bids_dir, "filters": self.filters, "split": self.split}
        return json.loads(json.dumps(asked, default=str))

    def _description(self) -> dict[str, Any]:
        content = read_description(Path(self.output_dir)) or {}
        try:
            dict(content["asked"]["split"]), content["data"]["fingerprint"]
        except (ValueError, KeyError, TypeError):
            msg = (
                f"{self._file}: damaged; expected what `neuro-pe sweep` wrote. Delete it; the same "
                "command writes it again."
            )
            raise InputError(msg) from None
        return content

    def _check_data(self, old: Mapping[str, Any], cohort: Cohort) -> None:
        from neuro_pe.fitting import describe_data

        new = describe_data(cohort)
        if old["fingerprint"] == new["fingerprint"]:
            return
        found, now = (
            f"{data.get('n_subjects')} subjects and {data.get('n_runs')} runs"
            for data in (old, new)
        )
        what = f"{found}, now {now}" if found != now else f"{found} too, of other values"
        msg = (
            f"--output-dir {self.output_dir}: holds a sweep of other data ({what}); choose another "
            "--output-dir."
        )
        raise InputError(msg)

    def _check_split(self, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
        for name, value in new.items():
            if old.get(name) != value:
                msg = (
                    f"{option_name(name)}: found {_spell(value)}, but the fits in "
                    f"{self.output_dir} have {_spell(old.get(name))}; ask for the same, or choose "
                    "another --output-dir."
                )
                raise InputError(msg)

    @contextmanager
    def _nothing_left(self) -> Iterator[None]:
        """Take a cache away again that was made for what is refused."""
        cache = Path(self.output_dir) / CACHE
        before = set(cache.iterdir()) if cache.is_dir() else None
        try:
            yield
        except InputError:
            if before is None:
                shutil.rmtree(cache, ignore_errors=True)
            else:
                for file in set(cache.iterdir()) - before:
                    file.unlink()
            raise


def _spell(request: Any) -> str:
    """Spell a request for a split, or the subjects that it became."""
    if not isinstance(request, list):
        return "none" if request is None else str(request)
    more = ", ..." if len(request) > FEW_LABELS else ""
    return f"{len(request)} ({', '.join(request[:FEW_LABELS])}{more})"
