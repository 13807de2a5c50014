import math

import pytest
import torch
from torch import nn

from neuro_pe import training
from neuro_pe.errors import InputError
from neuro_pe.settings import FitSettings
from neuro_pe.training import learning_rate_factor, make_optimizers, train


class Line(nn.Module):
    """A linear map with a part for each optimizer."""

    def __init__(self):
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.inner = nn.Parameter(torch.randn(4, 4, generator=generator))
        self.outer = nn.Parameter(torch.randn(4, 1, generator=generator))
        self.bias = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        return x @ self.inner @ self.outer + self.bias

    def block_matrices(self):
        return [self.inner]

    def resample(self, generator):
        """Nothing here is drawn anew."""


class Regression:
    """Learn a line; the validation error can be scripted."""

    def __init__(self, script=None):
        self.weights = torch.tensor([[1.0], [-2.0], [0.5], [0.0]])
        self.script = list(script) if script else None
        self.seen = []

    def batches(self, generator):
        x = torch.randn(4, 16, 4, generator=generator)
        self.seen.append(x)
        return [(each,) for each in x]

    def loss(self, model, batch):
        (batch,) = batch
        return (model(batch) - (batch @ self.weights + 1)).square().mean()

    def validate(self, model):
        if self.script is not None:
            return self.script[len(self.seen) - 1]
        x = torch.randn(200, 4, generator=torch.Generator().manual_seed(99))
        return self.loss(model, (x,)).item()


def settings(**options):
    return FitSettings(**({"epochs": 30, "lr": 0.05, "muon_lr": 0.05} | options))


@pytest.mark.parametrize("optimizer", ["muon", "adamw"])
def test_the_loop_learns(optimizer):
    task, model = Regression(), Line()
    before = task.validate(model)
    history = train(model, task, settings(optimizer=optimizer))
    assert task.validate(model) < 0.02 * before
    assert history.best_validation() == pytest.approx(task.validate(model))


def test_the_same_seed_gives_the_same_numbers_and_another_does_not():
    results = []
    for seed in (3, 3, 4):
        model = Line()
        train(model, Regression(), settings(seed=seed, epochs=3))
        results.append(model.outer.detach())
    assert torch.equal(results[0], results[1])
    assert not torch.equal(results[0], results[2])


def test_early_stopping_keeps_the_best_weights():
    task, model = Regression([5, 4, 3, 6, 7, 8, 1, 1]), Line()
    weights = []
    history = train(
        model,
        task,
        settings(epochs=8, patience=3),
        progress=lambda row: weights.append(model.inner.detach().clone()),
    )
    assert (len(history.rows), history.best_epoch) == (6, 3)
    assert torch.equal(model.inner, weights[2])


def test_without_validation_the_last_weights_stay():
    class Blind(Regression):
        def validate(self, model):
            return None

    history = train(Line(), Blind(), settings(epochs=5, patience=1))
    assert (len(history.rows), history.best_epoch) == (5, 5)


@pytest.mark.parametrize("optimizer", ["muon", "adamw"])
def test_a_resumed_fit_goes_on_to_the_same_numbers(tmp_path, monkeypatch, optimizer):
    monkeypatch.setattr(training, "SECONDS_BETWEEN_CHECKPOINTS", -1)
    options = settings(epochs=6, optimizer=optimizer)
    whole = Line()
    undisturbed = train(whole, Regression(), options)

    def stop(row):
        if row["epoch"] == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(Line(), Regression(), options, folder=tmp_path, progress=stop)
    resumed = Line()
    task = Regression()
    history = train(resumed, task, options, folder=tmp_path)
    assert len(task.seen) == 3  # epoch 4 was interrupted before its checkpoint
    for name, value in whole.state_dict().items():
        assert torch.equal(resumed.state_dict()[name], value), name
    for old, new in zip(undisturbed.rows, history.rows, strict=True):
        assert (old["train"], old["validation"]) == (new["train"], new["validation"])
    seconds = [row["seconds"] for row in history.rows]
    assert seconds == sorted(seconds)


def test_encodings_norms_and_biases_have_no_decay():
    class WithEncoding(Line):
        def __init__(self):
            super().__init__()
            self.encodings = nn.Embedding(3, 4)

    model = WithEncoding()
    adamw, muon = make_optimizers(model, settings(weight_decay=0.3))
    decay = {
        id(parameter): group["weight_decay"]
        for optimizer in (adamw, muon)
        for group in optimizer.param_groups
        for parameter in group["params"]
    }
    assert decay[id(model.inner)] == 0.3
    assert decay[id(model.outer)] == training.ADAMW_DECAY
    assert decay[id(model.bias)] == decay[id(model.encodings.weight)] == 0


@pytest.mark.parametrize("parts", [2, 5, 16])
def test_a_batch_in_parts_gives_the_same_model(parts):
    whole, split = Line(), Line()
    train(whole, Regression(), settings(epochs=3))
    train(split, Regression(), settings(epochs=3, accumulate=parts))
    for name, value in whole.state_dict().items():
        torch.testing.assert_close(split.state_dict()[name], value, atol=1e-4, rtol=1e-4)


def test_the_processor_decides_the_number_format(monkeypatch):
    known = {"avx512_bf16": False, "amx_bf16": True}
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: known, raising=False)
    assert training.faster_precision("cpu") == "bfloat16"
    known["amx_bf16"] = False
    assert training.faster_precision("cpu") == "float32"
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (7, 5))
    assert training.faster_precision("cuda") == "float32"


def test_frozen_parameters_stay():
    model = Line()
    model.outer.requires_grad_(False)
    start = model.outer.detach().clone()
    train(model, Regression(), settings(epochs=2))
    assert torch.equal(model.outer, start)


def test_the_schedule_warms_up_and_ends_at_zero():
    factors = [learning_rate_factor(step / 1000) for step in range(1, 1001)]
    assert max(factors) == pytest.approx(1)
    assert factors.index(max(factors)) == 99
    assert factors[-1] == pytest.approx(0, abs=1e-12)
    assert learning_rate_factor(0.55) == pytest.approx((1 + math.cos(math.pi / 2)) / 2)


def test_a_diverging_fit_says_so():
    class Diverging(Regression):
        def loss(self, model, batch):
            return super().loss(model, batch) * math.inf

    with pytest.raises(InputError, match="diverged in epoch 1; lower --lr"):
        train(Line(), Diverging(), settings())
