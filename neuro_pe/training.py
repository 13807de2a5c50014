"""The one training loop: optimizers, schedule, early stopping, checkpoints, resume."""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn

from neuro_pe.errors import InputError
from neuro_pe.model_folder import read_checkpoint, write_checkpoint
from neuro_pe.settings import FitSettings

__all__ = [
    "History",
    "Task",
    "faster_precision",
    "learning_rate_factor",
    "make_optimizers",
    "train",
]

WARM_UP = 0.1  # share of the training
ADAMW_DECAY = 0.01  # input and output layers, at most; encodings, norms and biases have none
SECONDS_BETWEEN_CHECKPOINTS = 5.0


class Batches(Protocol):
    """The batches of one epoch; their number is known before they are made."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Any]: ...


class Task(Protocol):
    """What is learned: the loop knows nothing else about it.

    A batch is a tuple of tensors with one row an example.
    """

    def batches(self, generator: torch.Generator) -> Batches:
        """Return the batches of one epoch."""
        ...

    def loss(self, model: Any, batch: Any) -> torch.Tensor:
        """Return the loss of a batch, to be minimized."""
        ...

    def validate(self, model: Any) -> float | None:
        """Return the validation error, or None when nothing is held out."""
        ...


@dataclass
class History:
    """How a training went.

    Parameters
    ----------
    rows : list of dict
        ``epoch, seconds, train, validation``; seconds are core-seconds of the process since the
        start of the fit, all sessions of a resumed fit together.
    best_epoch : int
        Epoch whose weights were kept.
    """

    rows: list[dict[str, Any]] = field(default_factory=list)
    best_epoch: int = 0

    def best_validation(self) -> float:
        """Return the lowest validation error so far."""
        errors = [row["validation"] for row in self.rows if row["validation"] is not None]
        return min(errors, default=math.inf)


def train(
    model: nn.Module,
    task: Task,
    settings: FitSettings,
    *,
    folder: Path | None = None,
    progress: Callable[[dict[str, Any]], None] | None = None,
) -> History:
    """Train a model in place; at the end it has the weights of its best epoch.

    Randomness comes from the seed and the epoch alone, so a fit that was stopped and resumed
    goes on to the same numbers.

    Parameters
    ----------
    model : Module
        On its device; offers ``block_matrices()`` and ``resample(generator)``.
    task : Task
    settings : FitSettings
        With the number of epochs resolved.
    folder : Path or None
        Where the checkpoint is kept; one that stands there is gone on from.
    progress : callable or None
        Called with the history's newest row after every epoch.

    Raises
    ------
    InputError
        If the loss stops being a finite number.
    """
    epochs = settings.epochs
    if epochs is None:
        msg = "epochs: found None; expected a number, see neuro_pe.fitting.resolve_settings."
        raise ValueError(msg)
    optimizers = make_optimizers(model, settings)
    history, best = History(), _copy(model)
    done_seconds = 0.0
    if folder is not None and (saved := read_checkpoint(folder)) is not None:
        try:
            history, best = _restore(saved, model, optimizers)
        except (ValueError, TypeError, KeyError, IndexError, RuntimeError):
            msg = f"{folder}: its checkpoint is not one of this fit; delete the folder, fit again."
            raise InputError(msg) from None
        done_seconds = history.rows[-1]["seconds"]
    started, last_saved = time.process_time(), time.monotonic()
    for epoch in range(len(history.rows) + 1, epochs + 1):
        if history.rows and epoch - 1 - history.best_epoch >= settings.patience:
            break
        loss = _train_epoch(model, task, settings, optimizers, epoch, epochs)
        previous = history.best_validation()
        validation = task.validate(model)
        seconds = done_seconds + time.process_time() - started
        row = {"epoch": epoch, "seconds": seconds, "train": loss, "validation": validation}
        history.rows.append(row)
        if validation is None or validation < previous:
            history.best_epoch, best = epoch, _copy(model)
        if progress is not None:
            progress(row)
        if folder is not None and time.monotonic() - last_saved > SECONDS_BETWEEN_CHECKPOINTS:
            _save(folder, model, best, optimizers, history)
            last_saved = time.monotonic()
    model.load_state_dict(best)
    return history


def make_optimizers(model: Any, settings: FitSettings) -> list[torch.optim.Optimizer]:
    """Return AdamW for everything, or Muon for the blocks' matrices and AdamW for the rest.

    Encodings, norms and biases have no weight decay.

    Notes
    -----
    Muon: Jordan et al. (2024); the step is scaled to AdamW's root mean square (Liu et al. 2025,
    arXiv 2502.16982), so its learning rate is of AdamW's size.
    """
    matrices = model.block_matrices()
    inside = {id(parameter) for parameter in matrices}
    plain: list[nn.Parameter] = []
    decayed: list[nn.Parameter] = []
    encodings: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad or id(parameter) in inside:
            continue
        if name.startswith("encodings."):
            encodings.append(parameter)
        else:
            (decayed if parameter.ndim == 2 else plain).append(parameter)
    groups = [
        {"params": plain, "weight_decay": 0.0, "peak": settings.lr},
        {
            "params": decayed,
            "weight_decay": min(ADAMW_DECAY, settings.weight_decay),
            "peak": settings.lr,
        },
        {"params": encodings, "weight_decay": 0.0, "peak": settings.encoding_lr},
    ]
    if settings.optimizer == "adamw":
        groups.append(
            {"params": matrices, "weight_decay": settings.weight_decay, "peak": settings.lr}
        )
        return [torch.optim.AdamW(groups, fused=True)]
    muon = torch.optim.Muon(
        [{"params": matrices, "peak": settings.muon_lr}],
        lr=settings.muon_lr,
        weight_decay=settings.weight_decay,
        adjust_lr_fn="match_rms_adamw",
    )
    return [torch.optim.AdamW(groups, fused=True), muon]


def learning_rate_factor(progress: float) -> float:
    """Return the share of the peak learning rate at a share of the training.

    Linear warm-up over the first tenth, then half a cosine to zero.

    Examples
    --------
    >>> from neuro_pe.training import learning_rate_factor
    >>> learning_rate_factor(0.05), learning_rate_factor(0.1)
    (0.5, 1.0)
    """
    if progress < WARM_UP:
        return progress / WARM_UP
    return (1 + math.cos(math.pi * (progress - WARM_UP) / (1 - WARM_UP))) / 2


def faster_precision(device: str) -> str:
    """Return the number format in which matrix products are faster on this machine.

    The processor's instructions decide, not a stopwatch: on a busy machine chance would, and the
    same seed would no longer give the same numbers.

    Parameters
    ----------
    device : {"cpu", "cuda", "mps"}

    Returns
    -------
    {"float32", "bfloat16"}
        bfloat16 if the device multiplies it in hardware: AVX-512 BF16 or AMX, or an NVIDIA GPU of
        compute capability 8 or more.
    """
    has_bfloat16 = False
    if device == "cpu":
        # Older versions of PyTorch cannot tell.
        instructions: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
        has_bfloat16 = any(instructions.get(name) for name in ("avx512_bf16", "amx_bf16"))
    elif device == "cuda":
        has_bfloat16 = torch.cuda.get_device_capability() >= (8, 0)
    return "bfloat16" if has_bfloat16 else "float32"


def _train_epoch(
    model: Any,
    task: Task,
    settings: FitSettings,
    optimizers: list[torch.optim.Optimizer],
    epoch: int,
    epochs: int,
) -> float:
    generator = torch.Generator().manual_seed(settings.seed * 1_000_003 + epoch)
    device = next(model.parameters()).device.type
    half = settings.precision == "bfloat16"
    model.train()
    batches = task.batches(generator)
    total = 0.0
    for step, batch in enumerate(batches):
        # The first step moves too: progress counts the step that is being taken.
        factor = 1.0
        if settings.schedule == "cosine":
            factor = learning_rate_factor((epoch - 1 + (step + 1) / len(batches)) / epochs)
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["peak"] * factor
            optimizer.zero_grad()
        model.resample(generator)
        for part in zip(*(each.chunk(settings.accumulate) for each in batch), strict=True):
            with torch.autocast(device, dtype=torch.bfloat16, enabled=half):
                loss = task.loss(model, part) * (len(part[0]) / len(batch[0]))
            loss.backward()
            total += loss.item()
        for optimizer in optimizers:
            optimizer.step()
    if not math.isfinite(total):
        msg = f"training diverged in epoch {epoch}; lower --lr or --muon-lr, or use float32."
        raise InputError(msg)
    return total / len(batches)


def _copy(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def _named_state(
    optimizers: list[torch.optim.Optimizer],
) -> Iterator[tuple[str, torch.Tensor]]:
    for number, optimizer in enumerate(optimizers):
        for parameter, values in optimizer.state_dict()["state"].items():
            for key, value in values.items():
                yield f"optimizer.{number}.{parameter}.{key}", torch.as_tensor(value)


def _save(
    folder: Path,
    model: nn.Module,
    best: dict[str, torch.Tensor],
    optimizers: list[torch.optim.Optimizer],
    history: History,
) -> None:
    tensors = {f"model.{name}": value for name, value in model.state_dict().items()}
    tensors |= {f"best.{name}": value for name, value in best.items()}
    tensors |= dict(_named_state(optimizers))
    write_checkpoint(folder, tensors, {"rows": history.rows, "best_epoch": history.best_epoch})


def _restore(
    saved: tuple[dict[str, torch.Tensor], dict[str, Any]],
    model: nn.Module,
    optimizers: list[torch.optim.Optimizer],
) -> tuple[History, dict[str, torch.Tensor]]:
    tensors, state = saved
    parts: dict[str, dict[str, torch.Tensor]] = {"model": {}, "best": {}, "optimizer": {}}
    for name, value in tensors.items():
        part, rest = name.split(".", 1)
        parts[part][rest] = value
    model.load_state_dict(parts["model"])
    for number, optimizer in enumerate(optimizers):
        content = optimizer.state_dict()
        restored: dict[int, dict[str, torch.Tensor]] = {}
        for name, value in parts["optimizer"].items():
            owner, parameter, key = name.split(".", 2)
            if int(owner) == number:
                restored.setdefault(int(parameter), {})[key] = value
        optimizer.load_state_dict({**content, "state": restored})
    device = next(model.parameters()).device
    best = {name: value.to(device) for name, value in parts["best"].items()}
    return History(rows=state["rows"], best_epoch=state["best_epoch"]), best
