"""Flows as density estimators of sbi, trained by its own trainers."""

import copy
import pickle

import pytest
import torch
from torch import nn

pytest.importorskip("sbi", reason="sbi is not installed: make test-integrations")

from sbi.inference import NLE, NPE
from sbi.utils import BoxUniform

from bnaf import SettingsError, ShapeError
from bnaf.integrations.sbi import likelihood_flow, posterior_flow

pytestmark = pytest.mark.filterwarnings("ignore:Maximum number of epochs:UserWarning")
SMALL = {"width": 4, "transforms": 2, "context_width": 8}
THETA, X = 2, 3


def simulations(count=300):
    theta = 3 * torch.rand(count, THETA) - 1
    noise = 0.1 * torch.randn(count, X)
    return theta, torch.cat([theta, theta.sum(1, keepdim=True)], 1) * 5 + 40 + noise


def posterior(**settings):
    return posterior_flow(settings=SMALL, **settings)(*simulations())


@pytest.mark.parametrize(
    ("rows", "conditions", "expected"),
    [
        ((1, 5), (5,), (1, 5)),
        ((7, 5), (5,), (7, 5)),
        ((7, 5), (1,), (7, 5)),
        ((7, 1), (5,), (7, 5)),
        ((5,), (5,), (1, 5)),
        ((7, 5), (7, 5), (7, 5)),
        ((7, 1), (1,), (7, 1)),
    ],
)
def test_log_densities_have_the_shapes_of_sbi(rows, conditions, expected):
    estimator = posterior().eval()
    found = estimator.log_prob(torch.zeros(*rows, THETA), torch.zeros(*conditions, X))
    assert found.shape == expected


def test_losses_are_minus_log_densities():
    estimator, (theta, x) = posterior().eval(), simulations(6)
    assert estimator.loss(theta, x).shape == (6,)
    torch.testing.assert_close(estimator.loss(theta, x), -estimator.log_prob(theta, x)[0])


@pytest.mark.parametrize("shape", [(), (4,), (2, 3)])
def test_draws_have_the_shapes_of_sbi(shape):
    estimator, x = posterior().eval(), simulations(5)[1]
    assert estimator.sample(shape, x).shape == (*shape, 5, THETA)
    rows, log_prob = estimator.sample_and_log_prob(shape, x)
    assert rows.shape == (*shape, 5, THETA)
    assert log_prob.shape == (*shape, 5)


def test_draws_come_with_their_log_densities():
    estimator, x = posterior().double().eval(), simulations(5)[1].double()
    rows, log_prob = estimator.sample_and_log_prob((4,), x)
    torch.testing.assert_close(estimator.log_prob(rows, x), log_prob)


def test_the_density_integrates_to_one_in_the_units_of_parameters():
    estimator, x = posterior().double().eval(), simulations(1)[1].double()
    axis = torch.linspace(-60, 60, 1200, dtype=torch.float64)
    rows = torch.cartesian_prod(axis, axis).unsqueeze(1)
    mass = estimator.log_prob(rows, x).exp().sum() * (axis[1] - axis[0]) ** 2
    torch.testing.assert_close(mass, torch.ones_like(mass), atol=1e-3, rtol=0)


@pytest.mark.parametrize("how", ["independent", "structured", "none", None])
def test_units_of_data_do_not_matter_unless_they_are_kept(how):
    theta, x = simulations()
    losses = []
    for scale in (1.0, 1000.0):
        torch.manual_seed(0)
        build = posterior_flow(z_score_x=how, settings=SMALL)
        losses.append(build(theta, scale * x).eval().loss(theta, scale * x))
    alike = torch.allclose(*losses, atol=1e-3)
    assert alike == (how in ("independent", "structured"))


def test_constant_columns_of_data_are_finite():
    theta, x = simulations()
    x[:, 0] = 3.0
    assert posterior_flow(settings=SMALL)(theta, x).loss(theta, x).isfinite().all()


def test_an_embedding_sees_data_of_any_shape_and_learns():
    theta, x = simulations()
    images = x.unsqueeze(1).expand(-1, 4, -1)
    network = nn.Sequential(nn.Flatten(), nn.Linear(4 * X, 5))
    estimator = posterior_flow(settings=SMALL, embedding_net=network)(theta, images)
    assert estimator.condition_shape == (4, X)
    estimator.loss(theta, images).mean().backward()
    learning = [name for name, weight in estimator.named_parameters() if weight.grad is not None]
    assert any("embedding" in name for name in learning)
    assert estimator.embedding_net(images).shape == (300, 5)


@pytest.mark.parametrize("how", ["sideways", "transform_to_unconstrained"])
def test_unknown_ways_to_standardise_are_refused(how):
    with pytest.raises(SettingsError, match="z_score must be one of"):
        posterior_flow(z_score_x=how)


def test_wrong_shapes_are_refused():
    with pytest.raises(ShapeError, match=r"condition must have shape \(batch, 3\)"):
        posterior().log_prob(torch.zeros(1, 5, THETA), torch.zeros(5, X + 1))


def test_a_rate_of_sbi_moves_each_weight_by_the_rate_that_it_wants():
    estimator = posterior()
    flow = estimator.net.flow
    optimiser = torch.optim.Adam(estimator.parameters(), lr=5e-4, eps=1e-12)
    theta, x = simulations()
    before = {name: weight * estimator.units[name] for name, weight in raw(estimator).items()}
    estimator.loss(theta, x).mean().backward()
    optimiser.step()
    after = {name: weight * estimator.units[name] for name, weight in raw(estimator).items()}
    for name, rate in (("networks.weight", 0.05), ("conditioner.prediction.weight", 0.005)):
        moved = (after[f"flow.{name}"] - before[f"flow.{name}"]).abs()
        assert moved.max().item() == pytest.approx(rate, rel=1e-3)
    assert flow.learning_rate == 0.05


def raw(estimator):
    return {
        name.replace("/", "."): weight.detach().clone()
        for name, weight in estimator.trained.items()
    }


def test_it_is_judged_by_the_average_of_its_weights():
    estimator, (theta, x) = posterior(), simulations()
    optimiser = torch.optim.SGD(estimator.parameters(), lr=1e-4)
    name = "flow.networks.log_gain"
    seen = []
    for _ in range(3):
        seen.append(raw(estimator)[name] * estimator.units[name])
        optimiser.zero_grad()
        estimator.loss(theta, x).mean().backward()
        optimiser.step()
    estimator.eval()
    torch.testing.assert_close(estimator.net.flow.networks.log_gain, sum(seen) / 3)


def test_copies_and_pickles_are_the_same_density():
    estimator, (theta, x) = posterior().eval(), simulations(5)
    expected = estimator.log_prob(theta, x)
    for twin in (copy.deepcopy(estimator), pickle.loads(pickle.dumps(estimator))):
        torch.testing.assert_close(twin.log_prob(theta, x), expected)
    other = posterior().eval()
    other.load_state_dict(estimator.state_dict())
    torch.testing.assert_close(other.log_prob(theta, x), expected)


def test_sbi_trains_a_posterior_and_draws_from_it():
    prior = BoxUniform(-torch.ones(THETA), 2 * torch.ones(THETA))
    trainer = NPE(prior, density_estimator=posterior_flow(settings=SMALL))
    theta, x = simulations()
    trainer.append_simulations(theta, x)
    estimator = trainer.train(training_batch_size=30, max_num_epochs=25)
    drawn = trainer.build_posterior(estimator).sample((50,), x=x[:1], show_progress_bars=False)
    assert (drawn.mean(0) - theta[0]).abs().max() < 0.5


def test_sbi_trains_a_likelihood():
    prior = BoxUniform(-torch.ones(THETA), 2 * torch.ones(THETA))
    trainer = NLE(prior, density_estimator=likelihood_flow(settings=SMALL))
    theta, x = simulations()
    estimator = trainer.append_simulations(theta, x).train(max_num_epochs=3)
    assert estimator.input_shape == (X,)
    assert trainer.build_posterior(estimator).potential(theta[:4], x=x[:1]).shape == (4,)


def test_several_rounds_of_sbi_are_trained():
    prior = BoxUniform(-torch.ones(THETA), 2 * torch.ones(THETA))
    trainer = NPE(prior, density_estimator=posterior_flow(settings=SMALL))
    theta, x = simulations()
    first = trainer.append_simulations(theta, x).train(max_num_epochs=2)
    proposal = trainer.build_posterior(first).set_default_x(x[:1])
    second = trainer.append_simulations(theta, x, proposal=proposal).train(max_num_epochs=2)
    assert second.loss(theta, x).isfinite().all()
