"""Every option of a fit, once: its default, its check and its meaning."""

import json
import math
import numbers
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from neuro_pe.errors import InputError

__all__ = ["ENCODINGS", "FitSettings", "kind_of", "option_name", "uses_sigma"]

# The encodings of the package; `neuro_pe.encodings.register` adds a user's own.
ENCODINGS = [
    "learn",
    "random",
    "nope",
    "1d-fixed",
    "2d-fixed",
    "3d-fixed",
    "rope",
    "rope-2d",
    "rope-3d",
    "relative",
    "relative-causal",
    "coordinates",
    "fourier",
    "laplacian",
    "gradient",
    "randomized",
    "pearl",
    "seqpe",
    "seqpe-3d",
    "alibi",
    "alibi-3d",
    "t5",
    "t5-3d",
    "cope",
    "dape",
]
_BUILT_IN = tuple(ENCODINGS)
_WITH_SIGMA = ("learn", "random")
# Encodings that are added to tokens, so that a fit leaves their table.
WITH_VECTORS = (
    "learn",
    "random",
    "1d-fixed",
    "2d-fixed",
    "3d-fixed",
    "coordinates",
    "fourier",
    "laplacian",
    "gradient",
    "randomized",
    "pearl",
    "seqpe",
    "seqpe-3d",
)
DISTRIBUTIONS = ("normal", "uniform")
INJECTIONS = ("input", "every-block")
DESIGNS = ("cross-attention", "bert")
NORMS = ("pre", "post")
MASK_PATTERNS = ("uniform", "network", "hemisphere")
OPTIMIZERS = ("muon", "adamw")
SCHEDULES = ("cosine", "constant")
DEVICES = ("auto", "cpu", "cuda", "mps")
PRECISIONS = ("auto", "float32", "bfloat16")

Check = tuple[Callable[[Any], bool], str]

POSITIVE: Check = (lambda value: value > 0, "a number over 0")
NOT_NEGATIVE: Check = (lambda value: value >= 0, "a number of 0 or more")
WHOLE: Check = (lambda value: value >= 0, "a whole number of 0 or more")
# Torch's generator keeps the lowest 32 bits: a larger seed would repeat a smaller one.
SEED: Check = (lambda value: 0 <= value < 2**32, "a whole number from 0 to 4294967295")
AT_LEAST_ONE: Check = (lambda value: value >= 1, "a whole number of 1 or more")
UP_TO_ONE: Check = (lambda value: 0 < value <= 1, "a number over 0 and up to 1")
SHARE: Check = (lambda value: 0 < value < 1, "a number between 0 and 1")


def _one_of(values: Sequence[str]) -> Check:
    return (lambda value: value in values, "one of " + ", ".join(values))


def _option(default: Any, check: Check | None, text: str, **more: Any) -> Any:
    return field(default=default, metadata={"check": check, "help": text, **more})


@dataclass(frozen=True, kw_only=True)
class FitSettings:
    """All options of one fit of a masked-region model.

    The estimator's parameters and the options of ``neuro-pe train`` come from these fields; the
    meaning of each stands in its ``help`` (``neuro-pe train --help`` prints them).

    Raises
    ------
    InputError
        If a value is of the wrong kind or out of its range; the line names the option.

    Examples
    --------
    >>> from neuro_pe.settings import FitSettings
    >>> FitSettings(sigma=0.2).sigma
    0.2
    >>> FitSettings(mask_ratio=1.5)
    Traceback (most recent call last):
    neuro_pe.errors.InputError: mask_ratio: found 1.5; expected a number between 0 and 1.
    """

    encoding: str = _option("learn", _one_of(ENCODINGS), "Positional encoding.", choices=ENCODINGS)
    sigma: float = _option(
        0.1, POSITIVE, "Standard deviation that a learned or random encoding starts from."
    )
    distribution: str = _option(
        "normal",
        _one_of(DISTRIBUTIONS),
        "Distribution that a learned or random encoding starts from.",
        choices=DISTRIBUTIONS,
    )
    rank: int | None = _option(
        None,
        AT_LEAST_ONE,
        "Rank of the start of a learned or random encoding.  [default: full]",
    )
    inject: str = _option(
        "input",
        _one_of(INJECTIONS),
        "Add the encoding at the input, or one of its own in every block.",
        choices=INJECTIONS,
    )
    mask_ratio: float = _option(0.9, SHARE, "Share of regions hidden in training.")
    mask_ratio_min: float | None = _option(
        None,
        SHARE,
        "Draw the share for each batch, from this to the mask ratio.  [default: it is fixed]",
    )
    target_ratio: float = _option(
        0.3,
        UP_TO_ONE,
        "Share of all regions that a training step reconstructs, drawn from the hidden ones; the "
        "other hidden ones cost nothing.",
    )
    mask_pattern: str = _option(
        "uniform",
        _one_of(MASK_PATTERNS),
        "What is hidden in training: regions at random, whole networks or a hemisphere, as far as "
        "the mask ratio allows.",
        choices=MASK_PATTERNS,
    )
    test_mask_ratio: float = _option(0.9, SHARE, "Share of regions hidden in validation and test.")
    window: int = _option(20, AT_LEAST_ONE, "Length of a window, in TRs.")
    stride: int | None = _option(
        None,
        AT_LEAST_ONE,
        "TRs from one window to the next.  [default: the window, so that they adjoin]",
    )
    layers: int = _option(2, AT_LEAST_ONE, "Encoder layers over the visible regions.")
    heads: int = _option(8, AT_LEAST_ONE, "Attention heads.")
    width: int = _option(128, AT_LEAST_ONE, "Width of a token.")
    design: str = _option(
        "cross-attention",
        _one_of(DESIGNS),
        "Encode visible regions and let hidden ones ask, or encode all regions together.",
        choices=DESIGNS,
    )
    norm: str = _option(
        "pre", _one_of(NORMS), "LayerNorm before or after each part of a block.", choices=NORMS
    )
    readout_gain: float = _option(
        1.0, POSITIVE, "Multiplies the start of the last layer: small is rich, large is lazy."
    )
    epochs: int | None = _option(
        None,
        AT_LEAST_ONE,
        "Passes through the training runs, at most.  [default: as many as make 2500 steps]",
    )
    patience: int = _option(
        10, AT_LEAST_ONE, "Stop after this many epochs without a better validation error."
    )
    optimizer: str = _option(
        "muon",
        _one_of(OPTIMIZERS),
        "Optimizer of the blocks' weight matrices.",
        choices=OPTIMIZERS,
    )
    lr: float = _option(2e-3, POSITIVE, "Peak learning rate of AdamW.")
    encoding_lr: float = _option(6e-3, POSITIVE, "Peak learning rate of the encoding (AdamW).")
    muon_lr: float = _option(3e-3, POSITIVE, "Peak learning rate of Muon.")
    schedule: str = _option(
        "cosine",
        _one_of(SCHEDULES),
        "Learning rates over the training: warm-up, then half a cosine to zero; or constant.",
        choices=SCHEDULES,
    )
    weight_decay: float = _option(
        0.05,
        NOT_NEGATIVE,
        "Weight decay of the blocks' matrices; 0 turns it off in the first and last layer too.",
    )
    batch_size: int = _option(32, AT_LEAST_ONE, "Windows a training step.")
    accumulate: int = _option(
        1, AT_LEAST_ONE, "Parts that a batch is computed in, one after the other, to save memory."
    )
    precision: str = _option(
        "auto",
        _one_of(PRECISIONS),
        "Number format of the matrix products in training; auto takes what is faster here.",
        choices=PRECISIONS,
    )
    device: str = _option(
        "auto",
        _one_of(DEVICES),
        "Where to train; auto takes a GPU if there is one.",
        choices=DEVICES,
    )
    seed: int = _option(0, SEED, "Seed of the weights, windows and masks.")

    def __post_init__(self) -> None:
        for option in fields(self):
            value = getattr(self, option.name)
            if value is None and option.default is None:
                continue
            kind: Any = kind_of(option)
            # Whole numbers where a fraction may stand, and NumPy's numbers (of a grid search).
            number = {int: numbers.Integral, float: numbers.Real}.get(kind)
            if number and isinstance(value, number) and not isinstance(value, bool):
                value = kind(value)
                object.__setattr__(self, option.name, value)
            check: Check = option.metadata["check"]
            of_kind = isinstance(value, kind) and not isinstance(value, bool)
            finite = kind is not float or (of_kind and math.isfinite(value))
            if not (of_kind and finite and check[0](value)):
                msg = f"{option.name}: found {value!r}; expected {check[1]}."
                raise InputError(msg)
        if self.mask_ratio_min is not None and self.mask_ratio_min >= self.mask_ratio:
            msg = (
                f"mask_ratio_min: found {self.mask_ratio_min}; expected a share under the mask "
                f"ratio, {self.mask_ratio}."
            )
            raise InputError(msg)
        if self.width % self.heads:
            msg = (
                f"heads: found {self.heads}, which does not divide the width {self.width}; "
                "expected a divisor."
            )
            raise InputError(msg)

    @property
    def name(self) -> str:
        """Name of the model folder: what was asked, seed last."""
        parts = [f"encoding-{self.encoding}"]
        if uses_sigma(self.encoding):
            parts.append(f"sigma-{self.sigma:g}")
        return "_".join([*parts, f"mask-{self.mask_ratio:g}", f"seed-{self.seed}"])

    def to_json(self) -> str:
        """Return the settings as a JSON object."""
        return json.dumps(asdict(self), indent=2)

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> "FitSettings":
        """Build settings from a mapping (a parsed ``settings.json``), naming unknown options."""
        known = {option.name for option in fields(cls)}
        unknown = sorted(set(values) - known)
        if unknown:
            msg = (
                f"settings: unknown option {unknown[0]!r}; written by a newer version of "
                "neuro_pe? Update it to read this."
            )
            raise InputError(msg)
        return cls(**values)


def uses_sigma(encoding: str) -> bool:
    """Whether sigma means something to an encoding; a user's own may do what it likes with it."""
    return encoding in _WITH_SIGMA or encoding not in _BUILT_IN


def kind_of(option: Any) -> type:
    """Return the type of a field's values; None, where it is the default, stands beside it."""
    if option.default is not None:
        return type(option.default)
    return float if "float" in str(option.type) else int


def option_name(name: str) -> str:
    """Return how the command line spells a setting (``mask_ratio`` is ``--mask-ratio``)."""
    return "--" + name.replace("_", "-")
