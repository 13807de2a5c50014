"""The table of a sweep, ``sweep.tsv``: read, checked, and written anew with each row."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from neuro_pe._job_worker import Job, Outcome
from neuro_pe.derivatives import write_table
from neuro_pe.errors import InputError

__all__ = ["DONE", "MISSING", "TABLE", "Table", "damaged"]

TABLE = "sweep.tsv"
DONE, FAILED = "done", "failed"
MISSING = "n/a"


def damaged(file: Path, what: str) -> InputError:
    """Return the error of a table that is not as it was written."""
    return InputError(
        f"{file}: damaged ({what}); expected the table that `neuro-pe sweep` wrote. Delete it; the "
        "same command finds the finished fits."
    )


class Table:
    """The rows of ``sweep.tsv``, as the text that stands in it: a row never changes by reading."""

    def __init__(self, file: Path, rows: dict[str, dict[str, str]], columns: list[str]) -> None:
        self.file = file
        self.rows = rows
        self.columns = columns

    @classmethod
    def read(cls, folder: Path, *, must_exist: bool = False) -> "Table":
        file = folder / TABLE
        first = ["name", "status", "error"]
        try:
            frame = pd.read_csv(file, sep="\t", dtype=str, keep_default_na=False)
        except (FileNotFoundError, NotADirectoryError):
            if must_exist:
                msg = f"{folder}: no {TABLE}; expected a folder that `neuro-pe sweep` wrote."
                raise InputError(msg) from None
            return cls(file, {}, first)
        except ValueError:
            frame = pd.DataFrame()
        if list(frame.columns[:3]) == first:
            frame = frame[frame["name"] != ""]  # a spreadsheet may leave empty rows
        if list(frame.columns[:3]) != first or frame["name"].duplicated().any():
            raise damaged(file, "it lacks names, or has one twice")
        if not file.read_bytes().endswith(b"\n"):  # cut off: its last row is not whole
            frame = frame.iloc[:-1]
        columns = [str(column) for column in frame.columns]
        rows = [dict(zip(columns, row, strict=True)) for row in frame.itertuples(index=False)]
        return cls(file, {row["name"]: row for row in rows}, columns)

    def has(self, job: Job) -> bool:
        return self.rows.get(job.name, {}).get("status") == DONE

    def difference(self, job: Job) -> tuple[str, str, str] | None:
        """Return the first argument that the row of a job has otherwise: name, found, wanted."""
        row = self.rows[job.name]
        for name, value in job.arguments.items():
            found, wanted = row.get(name, MISSING), _text(value)
            if not _is_same(found, wanted):
                return name, found, wanted
        return None

    def check(self, jobs: Sequence[Job]) -> None:
        """Refuse jobs of a name that was done with other arguments."""
        for job in filter(self.has, jobs):
            if (differs := self.difference(job)) is not None:
                name, found, wanted = differs
                if name not in self.columns:
                    raise damaged(self.file, f"its column {name} is missing")
                if _is_number(wanted) and found != MISSING and not _is_number(found):
                    raise damaged(self.file, f"{name} of {job.name} is {found!r}")
                msg = (
                    f"{self.file}: {job.name} was done with {name} {found}, now {wanted}; "
                    "choose another --output-dir."
                )
                raise InputError(msg)

    def add(self, outcome: Outcome, jobs: Sequence[Job]) -> None:
        """Write the row of a job that has ended, rows in the order of `jobs`."""
        job, results = outcome.job, outcome.results or {}
        row = {
            "name": job.name,
            "status": FAILED if outcome.error else DONE,
            "error": outcome.error,
        }
        row |= {**job.arguments, **results}
        self.rows[job.name] = {name: _text(value) for name, value in row.items()}
        # Arguments stand before results, whichever job brought a column first.
        known = dict.fromkeys([*self.columns[:3], *job.arguments, *self.columns, *results])
        self.columns = list(known)
        order = dict.fromkeys([*(job.name for job in jobs if job.name in self.rows), *self.rows])
        frame = pd.DataFrame([self.rows[name] for name in order], columns=self.columns)
        self.rows = {name: self.rows[name] for name in order}
        write_table(frame, self.file)


def _text(value: Any) -> str:
    """Spell a value as in the table."""
    if value is None or value == "" or (isinstance(value, float) and value != value):
        return MISSING
    if isinstance(value, float):
        return f"{value:.7g}"
    return " ".join(str(value).split())


def _is_same(found: str, wanted: str) -> bool:
    """Compare cells; a spreadsheet may have written 1 as 1.0."""
    if found == wanted:
        return True
    return _is_number(found) and _is_number(wanted) and float(found) == float(wanted)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
