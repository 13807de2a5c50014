"""Train a transformer on Latin Square Task puzzles and see whether it solves unlike ones."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch.nn import functional

from neuro_pe.derivatives import read_table, write_table
from neuro_pe.encodings import PositionalEncoding, make_encoding
from neuro_pe.errors import InputError
from neuro_pe.fitting import resolve_machine, warn_of_few_steps
from neuro_pe.settings import FitSettings
from neuro_pe.synthetic._checks import check_whole
from neuro_pe.synthetic.lst_network import LatinSquareTransformer
from neuro_pe.synthetic.puzzle_splits import PuzzleSplits
from neuro_pe.synthetic.puzzles import Puzzles
from neuro_pe.training import train

__all__ = [
    "RECIPES",
    "LatinSquareFit",
    "LatinSquareTask",
    "accuracies",
    "fit_lst",
    "lst_settings",
    "new_lst_network",
]

PUZZLES_AT_ONCE = 512
METRICS = "metrics.tsv"

# What is trained is the same; how it is trained differs.
NETWORK = {"width": 160, "layers": 4, "heads": 1, "norm": "post", "inject": "every-block"}
START = {"sigma": 0.2, "batch_size": 128}
RECIPES: dict[str, dict[str, Any]] = {
    "paper": {
        "optimizer": "adamw",
        "schedule": "constant",
        "lr": 1e-4,
        "encoding_lr": 1e-4,
        "weight_decay": 0.0,
        "epochs": 4000,
    },
    "fast": {
        "optimizer": "muon",
        "schedule": "cosine",
        "lr": 1e-3,
        "encoding_lr": 1e-3,
        "muon_lr": 5e-3,
        "weight_decay": 0.1,
        "epochs": 15,
    },
}
COLUMNS = ["epoch", "core_seconds", "split", "complexity", "accuracy", "n"]


def lst_settings(recipe: str = "fast", **options: Any) -> FitSettings:
    """Return the settings of a recipe.

    Parameters
    ----------
    recipe : {"paper", "fast"}
        How the network of the paper is trained: as there (AdamW without decay, learning rate
        1e-4, 4,000 epochs), or in a few minutes (Muon with decay, warm-up and cosine).
    **options
        Fields of :class:`neuro_pe.settings.FitSettings` that shall differ.

    Raises
    ------
    InputError
        If the recipe is unknown or an option is out of range.

    Examples
    --------
    >>> from neuro_pe.synthetic import lst_settings
    >>> lst_settings("paper").lr, lst_settings("fast", sigma=0.2).epochs
    (0.0001, 15)
    """
    if recipe not in RECIPES:
        msg = f"recipe: found {recipe!r}; expected one of {', '.join(RECIPES)}."
        raise InputError(msg)
    return FitSettings(**{**NETWORK, **START, **RECIPES[recipe], **options})


class LatinSquareTask:
    """Name the symbol at the target: the task of :func:`neuro_pe.training.train`.

    Parameters
    ----------
    puzzles : Puzzles
        To train on; no puzzle stops the training.
    settings : FitSettings
    device : torch.device
    """

    def __init__(self, puzzles: Puzzles, settings: FitSettings, device: torch.device) -> None:
        self.cells, self.symbols = _tensors(puzzles, device)
        self.batch_size = settings.batch_size

    def batches(self, generator: torch.Generator) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Return the puzzles of one epoch, shuffled, batch by batch."""
        order = torch.randperm(len(self.cells), generator=generator).to(self.cells.device)
        return [(self.cells[part], self.symbols[part]) for part in order.split(self.batch_size)]

    def loss(self, model: LatinSquareTransformer, batch: tuple[torch.Tensor, ...]) -> torch.Tensor:
        """Return the cross-entropy of the answers."""
        cells, symbols = batch
        return functional.cross_entropy(model(cells).float(), symbols)

    def validate(self, model: LatinSquareTransformer) -> None:
        """Hold nothing out: the last epoch is the result."""


def _tensors(puzzles: Puzzles, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Cells of each puzzle row by row, and the index of its solution."""
    cells = torch.from_numpy(puzzles.cells.reshape(len(puzzles), -1).astype(np.int64))
    return cells.to(device), torch.from_numpy(puzzles.solutions.astype(np.int64) - 1).to(device)


@dataclass(frozen=True, kw_only=True, eq=False)
class LatinSquareFit:
    """A trained network and how well it does.

    Parameters
    ----------
    settings : FitSettings
        Every option as resolved.
    network : LatinSquareTransformer
        In evaluation mode.
    initial : ndarray, shape (cell, width or blocks * width), or None
        The positional encoding at the start; None if nothing is added to the tokens.
    metrics : DataFrame
        ``epoch, core_seconds, split, complexity, accuracy, n``; complexity "all" is all of them.
    attention : ndarray of float32, shape (block, head, cell, cell)
        Mean over the unlike puzzles.
    """

    settings: FitSettings
    network: LatinSquareTransformer
    initial: np.ndarray | None
    metrics: pd.DataFrame
    attention: np.ndarray

    @property
    def positional_encoding(self) -> np.ndarray | None:
        """What was learned, in the shape of `initial`; None likewise."""
        return _vectors(self.network)


def fit_lst(
    splits: PuzzleSplits,
    settings: FitSettings,
    *,
    evaluate_every: int = 5,
    folder: Path | None = None,
    progress: Callable[[dict[str, Any]], None] | None = None,
) -> LatinSquareFit:
    """Train one network on puzzles, to the last epoch.

    Parameters
    ----------
    splits : PuzzleSplits
    settings : FitSettings
        See :func:`lst_settings`; `inject` says nothing to an encoding that adds no vectors.
    evaluate_every : int
        Epochs between two judgements of the puzzles not trained on; the last epoch always is one.
    folder : Path or None
        Where the checkpoint is kept, to be gone on from.
    progress : callable or None
        Called with ``epoch, seconds, train`` after every epoch.

    Raises
    ------
    InputError
        If the encoding needs what a grid of cells lacks, or the device is not there.
    """
    check_whole("evaluate_every", evaluate_every, 1)
    settings = resolve_machine(settings)
    warn_of_few_steps((settings.epochs or 0) * -(-len(splits.train) // settings.batch_size))
    network = new_lst_network(settings, size=splits.train.size)
    initial = _vectors(network)
    device = torch.device(settings.device)
    network.to(device)
    rows = _rows_so_far(folder)

    def evaluate(now: dict[str, Any]) -> None:
        epoch = now["epoch"]
        is_last = epoch == settings.epochs
        if is_last or epoch % evaluate_every == 0:
            judged = splits.named() if is_last else splits.named(trained_on=False)
            found = [
                {"epoch": epoch, "core_seconds": now["seconds"], "split": name, **row}
                for name, puzzles in judged.items()
                for row in accuracies(network, puzzles)
            ]
            # A resumed fit may come to an epoch again.
            rows[:] = [row for row in rows if row["epoch"] < epoch] + found
            if folder is not None:
                write_table(pd.DataFrame(rows, columns=COLUMNS), folder / METRICS)
        if progress is not None:
            progress(now)

    task = LatinSquareTask(splits.train, settings, device)
    train(network, task, settings, folder=folder, progress=evaluate)
    network.to("cpu").eval()
    return LatinSquareFit(
        settings=settings,
        network=network,
        initial=initial,
        metrics=pd.DataFrame(rows, columns=COLUMNS),
        attention=_mean_attention(network, splits.unlike),
    )


def new_lst_network(settings: FitSettings, *, size: int) -> LatinSquareTransformer:
    """Build the untrained network of a size of puzzles.

    Parameters
    ----------
    settings : FitSettings
    size : int

    Raises
    ------
    InputError
        If the encoding needs what a grid of cells lacks.
    """

    def encoding() -> PositionalEncoding:
        return make_encoding(
            settings.encoding,
            n_regions=size**2,
            width=settings.width,
            heads=settings.heads,
            n_blocks=settings.layers,
            sigma=settings.sigma,
            distribution=settings.distribution,
            rank=settings.rank,
            grid=(size, size),
        )

    encodings = [encoding()]
    if settings.inject == "every-block" and encodings[0]() is not None:
        encodings += [encoding() for _ in range(settings.layers - 1)]
    # PyTorch's layers draw a start of their own, which must not move the global generator.
    with torch.random.fork_rng(devices=[]):
        return LatinSquareTransformer(
            size=size,
            width=settings.width,
            layers=settings.layers,
            heads=settings.heads,
            encodings=encodings,
            generator=torch.Generator().manual_seed(settings.seed),
        )


@torch.no_grad()
def accuracies(network: LatinSquareTransformer, puzzles: Puzzles) -> list[dict[str, Any]]:
    """Return the share of puzzles solved, by complexity and of all.

    Parameters
    ----------
    network : LatinSquareTransformer
    puzzles : Puzzles

    Returns
    -------
    list of dict
        ``complexity, accuracy, n``.
    """
    network.eval()
    cells, symbols = _tensors(puzzles, next(network.parameters()).device)
    answers = torch.cat([network(part).argmax(dim=1) for part in cells.split(PUZZLES_AT_ONCE)])
    is_right = (answers == symbols).cpu().numpy()
    rows: list[dict[str, Any]] = [
        {"complexity": str(level), "accuracy": is_right[puzzles.complexity == level].mean()}
        for level in np.unique(puzzles.complexity)
    ]
    counts = [int((puzzles.complexity == int(row["complexity"])).sum()) for row in rows]
    rows.append({"complexity": "all", "accuracy": is_right.mean()})
    return [row | {"n": n} for row, n in zip(rows, [*counts, len(puzzles)], strict=True)]


@torch.no_grad()
def _mean_attention(network: LatinSquareTransformer, puzzles: Puzzles) -> np.ndarray:
    cells, _ = _tensors(puzzles, torch.device("cpu"))
    return network.attention_maps(cells).mean(dim=1).numpy()


def _vectors(network: LatinSquareTransformer) -> np.ndarray | None:
    vectors = network.eval().positional_encoding()
    return None if vectors is None else vectors.detach().cpu().numpy().copy()


def _rows_so_far(folder: Path | None) -> list[dict[str, Any]]:
    """Judgements of a fit that is gone on with."""
    if folder is None or not (folder / METRICS).is_file():
        return []
    try:
        table = read_table(folder / METRICS).astype({"complexity": str})[COLUMNS]
    except (ValueError, KeyError):
        msg = f"{folder / METRICS}: damaged; delete {folder}, and the same command fits it anew."
        raise InputError(msg) from None
    return [{str(key): value for key, value in row.items()} for row in table.to_dict("records")]
