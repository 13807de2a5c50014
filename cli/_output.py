"""What commands show: progress, and the table of results."""

import sys
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import click

if TYPE_CHECKING:
    import pandas as pd

    from neuro_pe.jobs import JobProgress
    from neuro_pe.model_folder import ModelFolder
    from neuro_pe.settings import FitSettings

__all__ = ["Progress", "RunProgress", "SweepProgress", "results_table", "tell_failures"]

FEW_SUBJECTS = 5


class _Bar:
    """A bar that is drawn when there is something to show, and closed in any case."""

    bar: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.bar is not None:
            self.bar.__exit__(kind, error, traceback)

    def open(self, length: int) -> None:
        """Draw the bar, unless it is there."""
        if self.bar is None:
            self.bar = click.progressbar(
                length=length, file=sys.stderr, item_show_func=lambda text: text
            )
            self.bar.__enter__()


class Progress(_Bar):
    """A bar over the epochs of all fits; nothing at all when the output is not a terminal.

    Parameters
    ----------
    n_fits : int
    """

    def __init__(self, n_fits: int) -> None:
        self.n_fits = n_fits
        self.seeds: list[int] = []

    def update(self, settings: "FitSettings", row: dict[str, Any]) -> None:
        """Move the bar to an epoch of a fit."""
        if not sys.stderr.isatty():
            return
        epochs = settings.epochs or 0
        if settings.seed not in self.seeds:
            self.seeds.append(settings.seed)
        self.open(self.n_fits * epochs)
        error = "" if row["validation"] is None else f", validation MSE {row['validation']:.4f}"
        position = (len(self.seeds) - 1) * epochs + row["epoch"]
        self.bar.update(
            position - self.bar.pos, f"seed {settings.seed}, epoch {row['epoch']}{error}"
        )


class RunProgress(_Bar):
    """A bar over runs; nothing at all when the output is not a terminal."""

    def update(self, done: int, total: int) -> None:
        """Move the bar to a number of runs done."""
        if sys.stderr.isatty():
            self.open(total)
            self.bar.update(done - self.bar.pos)


def results_table(folders: Sequence["ModelFolder"]) -> str:
    """Return the errors on test subjects, the model beside the baselines, paired by subject."""
    import pandas as pd

    from neuro_pe.comparison import compare_predictors

    metrics = pd.concat([folder.metrics for folder in folders])
    name = folders[0].settings.name.rpartition("_seed")[0]
    title = f"{name}, {len(folders)} seed{'s' if len(folders) > 1 else ''}"
    errors = pd.concat([folder.region_errors for folder in folders])
    if errors.empty:
        return f"{title}: no test subjects, so no test error."
    table = compare_predictors(errors)
    seconds = metrics[metrics["split"] == "test"].groupby("predictor")["seconds"].mean()
    lines = [
        f"{title}; hidden regions of {table['n_subjects'].max()} unseen subjects"
        f" ({folders[0].settings.test_mask_ratio:.0%} hidden)",
        f"{'predictor':22}{'MSE':>8}{'model minus it [95 % interval]':>36}{'core-s':>10}",
    ]
    for row in table.itertuples():
        interval = ""
        if row.predictor != "model":
            interval = f"{row.difference:+.4f}"
            if pd.notna(row.low):
                interval += f" [{row.low:+.4f}, {row.high:+.4f}]"
        lines.append(
            f"{row.predictor:22}{row.mse:8.4f}{interval:>36}{seconds[row.predictor]:10.1f}"
        )
    if table["n_subjects"].max() < FEW_SUBJECTS:
        lines.append(f"Under {FEW_SUBJECTS} test subjects an interval says little.")
    lines.append("core-s: processor time of the fit; of all baselines together.")
    if len(folders) > 1:
        model = metrics[(metrics["split"] == "test") & (metrics["predictor"] == "model")]["mse"]
        lines.append(f"spread of the model's MSE over seeds: SD {model.std():.4f}")
    return "\n".join(lines)


class SweepProgress(_Bar):
    """A bar over fits on a terminal, else a line at the start and one a finished fit."""

    def __init__(self) -> None:
        self.newest: JobProgress | None = None

    def update(self, state: "JobProgress") -> None:
        """Show where the sweep stands."""
        is_first, self.newest = self.newest is None, state
        ended = state.done + state.failed
        if not sys.stderr.isatty():
            if is_first:
                left = state.total - ended
                click.echo(
                    f"{state.total} fits: {ended} done, {left} to do, {state.running} at a time.",
                    err=True,
                )
            if state.newest is not None:
                how = f"failed: {state.error}" if state.error else "done"
                click.echo(f"[{ended}/{state.total}] {state.newest} {how}", err=True)
            return
        self.open(state.total)
        failed = f", {state.failed} failed" if state.failed else ""
        text = f"{ended} of {state.total} fits, {state.running} running{failed}"
        self.bar.update(ended - self.bar.pos, text)
        self.bar.render_progress()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        super().__exit__(kind, error, traceback)
        if kind is KeyboardInterrupt:
            now = self.newest
            count = "" if now is None else f": {now.done} of {now.total} fits are done"
            msg = f"Interrupted{count}; the same command goes on."
            raise KeyboardInterrupt(msg) from None


def tell_failures(table: "pd.DataFrame") -> int:
    """Say which fits of a sweep failed, one line an error; return the exit status."""
    failed = table[table["status"] != "done"]
    for error, some in failed.groupby("error", sort=False):
        others = f" and {len(some) - 1} more" if len(some) > 1 else ""
        click.echo(f"Failed: {some['name'].iloc[0]}{others}: {error}", err=True)
    if len(failed):
        text = f"{len(failed)} of {len(table)} fits failed; the same command tries them again."
        click.echo(text, err=True)
    return 1 if len(failed) else 0
