"""Objectives of other modules than flows, with draws and settings of their own, and optimisers."""

import copy
import os
import signal
from functools import partial

import pytest
import torch
from fits import banana, same_start, small_flow, weights_of
from torch import nn

from bnaf import BNAF, BnafError, SettingsError, TrainingSettings, fit
from bnaf.block import kernels
from bnaf.training import ArrayRows, Batch, MaximumLikelihood, Objective, ReverseKL

QUICK = TrainingSettings(steps=12)


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2)


class Noisy(Objective):
    """Evidence bound of a toy: an encoder, a draw and rows with a mask of empty cells."""

    draws = True

    def __init__(self, module: nn.Module, flow: nn.Module, scale: float = 1.0) -> None:
        super().__init__()
        self.module, self.flow, self.scale = module, flow, scale
        self.seen: list[torch.Tensor] = []

    @property
    def trained(self):
        return self.module

    @property
    def settings(self):
        return {"scale": self.scale}

    def losses(self, batch: Batch):
        filled = torch.where(batch.more["empty"], 0.0, batch.rows)
        mean = self.module.linear(filled)
        z = mean + self.scale * torch.randn_like(mean)
        self.seen.append(z.detach())
        return -self.flow().log_prob(z) + z.square().sum(-1)


def masked_rows(seed=0):
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(60, 3, generator=generator)
    empty = torch.rand(60, 3, generator=generator) < 0.2
    return ArrayRows(rows, batch=20, more={"empty": empty})


def test_any_module_is_trained_by_an_objective_that_has_it():
    encoder, flow = Encoder(), small_flow()
    before = encoder.linear.weight.detach().clone(), weights_of(flow)
    fit(encoder, masked_rows(), objective=Noisy(encoder, flow), settings=QUICK, progress=False)
    assert not torch.equal(encoder.linear.weight, before[0])
    assert not torch.equal(weights_of(flow), before[1])


def test_a_module_that_is_no_flow_needs_an_objective():
    with pytest.raises(SettingsError, match="objective must be given for a Encoder"):
        fit(Encoder(), torch.zeros(5, 3))


def test_draws_are_those_of_the_run_and_leave_torchs_generator_alone():
    seen = []
    for start in (1, 2):
        torch.manual_seed(0)
        encoder, flow = Encoder(), small_flow()
        torch.manual_seed(start)
        before = torch.get_rng_state()
        objective = Noisy(encoder, flow)
        fit(encoder, masked_rows(), objective=objective, settings=QUICK, progress=False)
        assert torch.equal(torch.get_rng_state(), before)
        seen.append(torch.cat(objective.seen))
    assert torch.equal(*seen)


def test_settings_of_an_objective_tell_runs_apart(tmp_path):
    encoder, flow = Encoder(), small_flow()
    kept = {"settings": QUICK, "progress": False, "checkpoint": tmp_path / "run.ckpt"}
    fit(encoder, masked_rows(), objective=Noisy(encoder, flow), **kept)
    with pytest.raises(SettingsError, match=r"objective\.scale is 1\.0 there and 2\.0 here"):
        fit(encoder, masked_rows(), objective=Noisy(encoder, flow, 2.0), **kept)


OPTIMISERS = {
    "adamax": partial(torch.optim.Adamax, lr=0.01),
    "sgd": partial(torch.optim.SGD, lr=0.01, momentum=0.9),
    "adam": partial(torch.optim.Adam, lr=0.01),
}


@pytest.mark.parametrize("name", OPTIMISERS)
def test_an_optimiser_is_an_argument(name):
    flow, rows = small_flow(), banana(300)
    settings = TrainingSettings(steps=60, learning_rate=0.01, average=None)
    before = MaximumLikelihood(flow)(Batch(rows)).item()
    fit(flow, rows, optimiser=OPTIMISERS[name], settings=settings, progress=False)
    assert MaximumLikelihood(flow)(Batch(rows)).item() < before


@pytest.mark.parametrize("name", OPTIMISERS)
def test_a_run_of_any_optimiser_goes_on_where_it_stood(name, tmp_path):
    class Pressed(MaximumLikelihood):
        calls = 0

        def losses(self, batch):
            self.calls += self.training
            if self.calls == 7:
                self.calls += 1
                os.kill(os.getpid(), signal.SIGINT)
            return super().losses(batch)

    one, two = same_start(small_flow, 2)
    how = {"settings": TrainingSettings(steps=20, batch=50), "progress": False}
    how["optimiser"] = OPTIMISERS[name]
    fit(one, banana(100), objective=MaximumLikelihood(one), **how)
    how["checkpoint"] = tmp_path / "run.ckpt"
    assert fit(two, banana(100), objective=Pressed(two), **how).reason == "interrupted"
    pressed = Pressed(two)
    pressed.calls = 100
    assert fit(two, banana(100), objective=pressed, **how).steps == 20
    torch.testing.assert_close(weights_of(two), weights_of(one))


def test_an_optimiser_that_must_wait_skips_undefined_steps_too():
    class Spiked(MaximumLikelihood):
        calls = 0

        def losses(self, batch):
            self.calls += 1
            return super().losses(batch) * (torch.nan if self.calls == 3 else 1.0)

    flow = small_flow()
    record = fit(
        flow,
        banana(100),
        objective=Spiked(flow),
        optimiser=OPTIMISERS["sgd"],
        settings=TrainingSettings(steps=12, learning_rate=0.001),
        progress=False,
    )
    assert record.skipped == 1
    assert weights_of(flow).isfinite().all()


def test_groups_of_parameters_keep_the_proportion_of_their_rates():
    rates = []

    class Watched(torch.optim.SGD):
        def step(self, closure=None):
            rates.append([group["lr"] for group in self.param_groups])
            return super().step(closure)

    def split(parameters):
        first, *others = parameters
        return Watched([{"params": [first]}, {"params": others, "lr": 0.02}], lr=0.1)

    settings = TrainingSettings(steps=10, learning_rate=0.1)
    fit(small_flow(), banana(100), optimiser=split, settings=settings, progress=False)
    assert len({first for first, _ in rates}) > 2
    assert all(second == pytest.approx(0.2 * first) for first, second in rates)


class Embedded(nn.Module):
    """A flow whose context is what a network makes of data."""

    learning_rate = 0.05

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Sequential(nn.Linear(6, 8), nn.SiLU(), nn.Linear(8, 3))
        self.flow = BNAF(2, 3, transforms=2, width=4)

    def forward(self, x):
        return self.flow(self.embedding(x))


class EmbeddedLikelihood(Objective):
    def __init__(self, posterior):
        super().__init__()
        self.posterior = posterior

    @property
    def trained(self):
        return self.posterior

    def losses(self, batch):
        return -self.posterior(batch.context).log_prob(batch.rows)

    def rates(self):
        return super().rates() | {"embedding": (0.1, [*self.posterior.embedding.parameters()])}


def test_an_embedding_has_the_gradients_of_plain_torch():
    module = Embedded().double()
    x, given = (torch.randn(50, columns, dtype=torch.float64) for columns in (2, 6))

    def gradients():
        return torch.autograd.grad(module(given).log_prob(x).mean(), [*module.parameters()])

    ours = gradients()
    with kernels.disabled():
        for one, other in zip(ours, gradients(), strict=True):
            torch.testing.assert_close(one, other)


def test_an_embedding_trains_with_its_flow_at_a_rate_of_its_own():
    module, given = Embedded(), torch.randn(200, 6)
    rows = given[:, :2] + 0.1 * torch.randn(200, 2)
    start = copy.deepcopy(module)
    with torch.no_grad():
        before = -module(given).log_prob(rows).mean()
    record = fit(
        module,
        rows,
        context=given,
        objective=EmbeddedLikelihood(module),
        settings=TrainingSettings(steps=60, schedule="constant", warm_up=0),
        progress=False,
    )
    moved = zip(module.embedding.parameters(), start.embedding.parameters(), strict=True)
    assert all((one != other).any() for one, other in moved)
    assert record.loss < before - 0.5
    assert record.rates["embedding"] == pytest.approx(0.005)


def test_another_optimiser_is_another_run(tmp_path):
    flow, kept = small_flow(), {"progress": False, "checkpoint": tmp_path / "run.ckpt"}
    fit(flow, banana(50), settings=QUICK, **kept)
    with pytest.raises(BnafError, match="optimiser is None there and 'SGD' here"):
        fit(flow, banana(50), settings=QUICK, optimiser=OPTIMISERS["sgd"], **kept)


@pytest.mark.parametrize("direction", ["density", "sampling"])
def test_path_gradients_vanish_where_the_flow_is_right(direction):
    flow = BNAF(2, transforms=2, width=3, direction=direction).double()
    truth = copy.deepcopy(flow).requires_grad_(False)()
    rows = torch.randn(8, 2, dtype=torch.float64)
    norms = []
    for path in (False, True):
        objective = ReverseKL(flow, lambda x: -truth.log_prob(x), path_gradients=path)
        flow.zero_grad()
        losses = objective.losses(Batch(rows))
        torch.testing.assert_close(losses, torch.zeros_like(losses), atol=1e-9, rtol=0)
        losses.mean().backward()
        norms.append(sum(weight.grad.norm() for weight in flow.parameters()))
    assert norms[1] < 1e-6 < norms[0]


def test_path_gradients_are_those_of_the_mean():
    """Over all of the base, which a fine grid stands for."""
    flow = BNAF(1, transforms=1, width=2, direction="sampling").double()
    rows = torch.linspace(-6, 6, 4001, dtype=torch.float64).unsqueeze(1)
    weights = (-0.5 * rows.square()).exp()[:, 0]
    found = []
    for path in (False, True):
        objective = ReverseKL(flow, lambda x: x.square().sum(-1), path_gradients=path)
        losses = objective.losses(Batch(rows))
        loss = (weights * losses).sum() / weights.sum()
        found.append(torch.autograd.grad(loss, list(flow.parameters()), allow_unused=True))
    for whole, path in zip(*found, strict=True):
        torch.testing.assert_close(whole, path, atol=1e-4, rtol=1e-4)
