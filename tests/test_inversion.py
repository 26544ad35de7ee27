"""The numerical inverse: accuracy, range and gradient."""

import pytest
import torch
from cases import DENSITY, ONTO, SAMPLING

from bnaf import BNAF, InversionError

BOTH = [name for name in DENSITY if name in ONTO and name not in ("banded", "leaky_relu")]


@pytest.mark.parametrize("name", [name for name in DENSITY if name in ONTO])
def test_base_draws_out_to_twelve_are_reached(case):
    transform = case.flow(case.context).transform
    z = torch.linspace(-12, 12, 41, dtype=torch.float64).unsqueeze(1).expand(41, 3)
    assert ((transform(transform.inv(z)) - z).abs() <= 1e-10 * z.abs().clamp(min=1)).all()


@pytest.mark.parametrize("name", BOTH)
def test_gradients_of_samples_agree_with_finite_differences(case):
    flow = case.flow
    z = case.rows(2).requires_grad_()
    inputs = [z, *(() if case.context is None else (case.context.requires_grad_(),))]
    parameters = list(flow.parameters())
    inputs += parameters[:: max(1, len(parameters) // 2)]

    def samples(z, *rest):
        return flow(case.context).transform.inv.call_and_ladj(z)

    assert torch.autograd.gradcheck(samples, inputs, rtol=1e-6, atol=1e-6, fast_mode=True)


@pytest.mark.parametrize("name", ["bnaf", "paper"])
def test_second_derivatives_of_samples_raise(case):
    transform = case.flow(case.context).transform
    z = transform(case.rows(2)).detach().requires_grad_()
    x = transform.inv(z)
    with pytest.raises(InversionError, match="differentiated once"):
        torch.autograd.grad(x.square().sum(), z, create_graph=True)


@pytest.mark.parametrize("name", [name for name in SAMPLING if name in ONTO])
def test_log_prob_of_the_sampling_direction_has_gradients(case):
    x = case.flow(case.context).sample((3,)).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: case.flow(case.context).log_prob(x), x, atol=1e-5)


def test_outside_its_range_the_sampling_direction_has_no_density():
    flow = BNAF.paper(2, transforms=1, width=4, direction="sampling").double()
    x = torch.tensor([[0.0, 1e6], [-1e6, 0.0]], dtype=torch.float64)
    inside = flow().sample((3,))
    log_prob = flow().log_prob(torch.cat([x, inside]).requires_grad_())
    assert (log_prob[:2] == -torch.inf).all()
    assert log_prob[2:].isfinite().all()
    (grad,) = torch.autograd.grad(log_prob[2:].sum(), flow.networks.bias)
    assert grad.isfinite().all()


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_targets_that_are_not_finite_are_refused(value):
    z = torch.zeros(3, 2)
    z[1, 0] = value
    with pytest.raises(InversionError, match="1 of 3 rows"):
        BNAF(2)().transform.inv(z)


@pytest.mark.parametrize("activation", ["leaky_tanh", "leaky_relu"])
@pytest.mark.parametrize("gain", [-4.0, 4.0])
def test_steep_and_flat_networks_are_inverted(activation, gain):
    flow = BNAF(3, activation=activation, residual=None, transforms=1, width=6).double()
    with torch.no_grad():
        for layer in flow.networks.layers:
            layer.log_gain.fill_(gain)
    transform = flow().transform
    x = torch.randn(200, 3, dtype=torch.float64)
    z = transform(x)
    found = transform.inv(z)
    assert ((transform(found) - z).abs() <= 1e-10 * z.abs().clamp(min=1)).all()


def test_a_flow_learns_by_reverse_kl_through_its_own_inverse():
    flow = BNAF(2, transforms=1, width=6).double()
    target = torch.distributions.MultivariateNormal(
        torch.tensor([1.0, -1.0]).double(), torch.tensor([[1.0, 0.6], [0.6, 0.8]]).double()
    )
    optimiser = torch.optim.Adam(flow.parameters(), 0.03)
    losses = []
    for _ in range(120):
        x, log_prob = flow().rsample_and_log_prob((100,))
        loss = (log_prob - target.log_prob(x)).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[0] > 0.5
    assert sum(losses[-10:]) / 10 < 0.1


def test_many_rows_are_inverted_in_parts(monkeypatch):
    flow = BNAF(2, 1)
    context = torch.randn(50, 1)
    z = torch.randn(50, 2)
    with torch.no_grad():
        whole = flow(context).transform.inv(z)
        monkeypatch.setattr("bnaf.autoregressive.INVERSION_ELEMENTS", 500)
        parts = flow(context).transform.inv(z)
    torch.testing.assert_close(whole, parts)


def test_no_graph_is_kept_without_gradients():
    law = BNAF(2)()
    with torch.no_grad():
        assert law.transform.inv(torch.zeros(2, 2)).grad_fn is None
    assert law.sample((2,)).grad_fn is None
    assert law.rsample((2,)).grad_fn is not None


@pytest.mark.parametrize("name", SAMPLING)
def test_gradients_of_log_prob_follow_from_the_closed_form_side(case):
    law = case.flow(case.context)
    forward = law.transform.forward
    x = law.sample((3,)).requires_grad_()
    (ours,) = torch.autograd.grad(law.log_prob(x).sum(), x)
    for row, z in zip(ours, forward.invert(x.detach()).x.detach(), strict=True):
        grad_z = torch.func.jacrev(lambda z: law.base.log_prob(z) - forward.call_and_ladj(z)[1])(z)
        exact = torch.linalg.solve(torch.func.jacrev(forward)(z).T, grad_z)
        torch.testing.assert_close(row, exact.detach(), rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("derivative", [torch.func.jacfwd, torch.func.jacrev])
def test_the_inverse_refuses_what_it_cannot_differentiate(derivative):
    transform = BNAF(2)().transform
    with pytest.raises(InversionError, match=r"not by torch\.func or forward mode"):
        derivative(transform.inv)(torch.zeros(2))
