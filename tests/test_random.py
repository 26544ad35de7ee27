"""Draws that are private: same seed, same numbers, and nobody else's are touched."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.nn.functional as F
from fits import banana, small_flow
from torch import nn

from bnaf import Model, TrainingSettings
from bnaf._random import Dropout, draw_normal, library_draws, private_draws
from bnaf.estimators import FlowDensity

WAYS = {
    "randn": lambda: torch.randn(5),
    "in_place": lambda: torch.empty(5).uniform_(),
    "alike": lambda: torch.randn_like(torch.ones(5, dtype=torch.float64)),
    "layer": lambda: nn.Linear(3, 2).weight.detach(),
    "drop_out": lambda: F.dropout(torch.ones(50)),
    "law": lambda: torch.distributions.StudentT(torch.tensor([3.0])).rsample((5,)),
    "choice": lambda: torch.distributions.Categorical(torch.ones(9)).sample((5,)),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_seed_gives_the_same_draws_and_leaves_torch_alone(way):
    before = torch.get_rng_state()
    found = []
    for seed in (1, 1, 2):
        with private_draws(seed):
            assert torch.equal(torch.get_rng_state(), before)
            found.append(WAYS[way]())
            assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


def test_private_draws_are_those_of_a_generator_of_that_seed():
    expected = torch.randn(7, generator=torch.Generator().manual_seed(3))
    with private_draws(3):
        assert torch.equal(torch.randn(7), expected)


def test_a_generator_that_is_given_is_the_one_used():
    own = torch.Generator().manual_seed(3)
    expected = torch.randn(7, generator=torch.Generator().manual_seed(3))
    with private_draws(1):
        assert torch.equal(torch.randn(7, generator=own), expected)


def test_dropout_keeps_its_share_and_its_mean():
    ones = torch.ones(10_000)
    with private_draws(0):
        kept = F.dropout(ones, 0.25)
        assert torch.equal(F.dropout(ones, 0.25, training=False), ones)
    assert set(kept.tolist()) == {0.0, (ones / 0.75)[0].item()}
    assert abs(kept.mean().item() - 1) < 0.03


@pytest.mark.parametrize(
    "draw", [lambda like: Dropout(0.25)(like), lambda like: draw_normal((7,), like)]
)
def test_what_the_library_draws_alone_are_the_numbers_of_all_draws(draw):
    like, before = torch.ones(50), torch.get_rng_state()
    with private_draws(3):
        expected = draw(like)
    with library_draws(3):
        assert torch.equal(draw(like), expected)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_innermost_draws_are_those_that_count():
    with private_draws(3):
        expected = draw_normal((7,), torch.ones(1))
    with library_draws(1), private_draws(3):
        assert torch.equal(draw_normal((7,), torch.ones(1)), expected)


def test_other_threads_draw_as_if_nobody_did():
    torch.manual_seed(4)
    expected = torch.randn(5)
    torch.manual_seed(4)
    with private_draws(0), ThreadPoolExecutor(1) as pool:
        torch.randn(3)
        assert torch.equal(pool.submit(torch.randn, 5).result(), expected)


def test_samples_of_one_seed_are_the_same_in_many_threads():
    model = Model(small_flow())
    expected = model.sample(20_000, seed=0)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: model.sample(20_000, seed=0), range(4)))
    assert all(torch.equal(rows, expected) for rows in found)


def test_fits_of_one_seed_are_the_same_in_many_threads():
    def fit(_):
        settings = TrainingSettings(steps=20)
        model = Model.fit(banana(50).double(), settings=settings, progress=False)
        return torch.cat([weight.flatten() for weight in model.flow.state_dict().values()])

    expected = fit(0)
    with ThreadPoolExecutor(4) as pool:
        assert all(torch.equal(weights, expected) for weights in pool.map(fit, range(4)))


def conditional_fit():
    """Rows drawn from a fit whose context network drops units out."""
    model = Model.fit(
        banana(40).double(),
        given=["x0"],
        members=1,
        flow_settings={"width": 3, "context_dropout": 0.5},
        settings=TrainingSettings(steps=5),
        progress=False,
    )
    return model.sample(4, torch.zeros(1), seed=0)


def estimated():
    """Rows drawn from an estimator."""
    density = FlowDensity(training=TrainingSettings(steps=2), random_state=0)
    return torch.from_numpy(density.fit(banana(40).numpy()).sample(4, random_state=0))


@pytest.mark.parametrize("deed", [conditional_fit, estimated])
def test_deeds_of_one_seed_are_the_same_in_threads_and_leave_torch_alone(deed):
    before = torch.get_rng_state()
    expected = deed()
    with ThreadPoolExecutor(2) as pool:
        found = [running.result() for running in [pool.submit(deed) for _ in range(2)]]
    assert all(torch.equal(rows, expected) for rows in found)
    assert torch.equal(torch.get_rng_state(), before)
