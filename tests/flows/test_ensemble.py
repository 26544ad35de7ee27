"""Ensembles: the mean of densities, as one flow."""

import math

import pytest
import torch
from cases import randomise

import bnaf
from bnaf import SettingsError
from bnaf.flows.ensemble import Ensemble
from bnaf.laws.normal import normal_cdf

SIZES = {"transforms": 2, "width": 4, "hidden_layers": 1}


@pytest.fixture
def ensemble():
    flow = Ensemble(1, 2, members=3, settings=SIZES | {"context_width": 5}).double().eval()
    randomise(flow, 0.5)
    return flow


@pytest.fixture
def context():
    return torch.randn(40, 2, dtype=torch.float64)


def test_the_density_is_the_mean_of_those_of_its_members(ensemble, context):
    x = 2 * torch.randn(40, 1, dtype=torch.float64)
    each = torch.stack([flow(context).log_prob(x) for flow in ensemble.parts])
    expected = each.logsumexp(0) - math.log(3)
    torch.testing.assert_close(ensemble(context).log_prob(x), expected)


def test_noise_is_the_normal_score_of_the_mean_probability(ensemble, context):
    x = torch.randn(40, 1, dtype=torch.float64)
    each = torch.stack([flow(context).base_noise(x) for flow in ensemble.parts])
    expected = torch.special.ndtri(normal_cdf(each).mean(0))
    torch.testing.assert_close(ensemble(context).base_noise(x), expected)


def test_samples_are_the_pre_images_of_their_noise(ensemble, context):
    z = 3 * torch.randn(5, 40, 1, dtype=torch.float64)
    transform = ensemble(context).transform
    torch.testing.assert_close(transform(transform.inv(z)), z)


def test_the_log_det_is_that_of_autograd(ensemble, context):
    x = torch.randn(40, 1, dtype=torch.float64, requires_grad=True)
    z, log_det = ensemble(context).transform.call_and_ladj(x)
    (slope,) = torch.autograd.grad(z.sum(), x)
    torch.testing.assert_close(log_det.exp(), slope.squeeze(1))


def test_gradients_of_samples_are_those_of_finite_differences(ensemble, context):
    z = torch.randn(4, 1, dtype=torch.float64, requires_grad=True)
    given = context[:4].requires_grad_()
    assert torch.autograd.gradcheck(lambda z, c: ensemble(c).transform.inv(z), (z, given))


def test_a_row_trains_all_members_but_that_of_its_fold(ensemble, context):
    x, fold = torch.randn(40, 1, dtype=torch.float64), torch.arange(40) % 3
    for training in (True, False):
        ensemble.train(training)
        loss = ensemble.losses(x[fold == 1], context[fold == 1], fold[fold == 1]).sum()
        ensemble.zero_grad()
        loss.backward()
        reached = [flow.networks.weight.grad is not None for flow in ensemble.parts]
        moved = [
            got and bool(flow.networks.weight.grad.abs().sum() > 0)
            for got, flow in zip(reached, ensemble.parts, strict=True)
        ]
        assert moved == ([True, False, True] if training else [False, True, False])


def test_ensembles_come_back_from_files(ensemble, context, tmp_path):
    bnaf.save(ensemble, tmp_path / "flow.safetensors")
    again = bnaf.load(tmp_path / "flow.safetensors")
    x = torch.randn(40, 1, dtype=torch.float64)
    assert torch.equal(again(context).log_prob(x), ensemble(context).log_prob(x))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"features": 2}, "one column, got features=2"),
        ({"flow": "ensemble"}, "must be a transform, and no ensemble"),
        ({"members": 0}, "members must be"),
    ],
)
def test_what_no_ensemble_can_be_is_refused(settings, message):
    with pytest.raises(SettingsError, match=message):
        Ensemble(**settings)
