"""The numerical inverse: accuracy, range and gradient."""

import copy
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from cases import DENSITY, ONTO, SAMPLING, randomise

from bnaf import BNAF, InversionError, RedrawWarning
from bnaf.block import engine, kernels
from bnaf.datasets.toy import draw_toy

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


@pytest.mark.parametrize("mechanism", ["biases", "amortised"])
def test_gradients_of_samples_reach_every_part_of_contexts(mechanism):
    settings = {"transforms": 2, "width": 3, "context_width": 4, "context": mechanism}
    flow = BNAF(3, 2, **settings).double()
    randomise(flow, 0.5)
    names = [name for name, _ in flow.named_parameters()]
    z, given = (torch.randn(4, columns, dtype=torch.float64) for columns in (3, 2))

    def samples(z, given, *weights):
        state = dict(zip(names, weights, strict=True))
        law = torch.func.functional_call(flow, state, (given,))
        return law.transform.inv.call_and_ladj(z)

    inputs = [z, given, *(weight.detach() for weight in flow.parameters())]
    inputs = [tensor.clone().requires_grad_() for tensor in inputs]
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


def test_many_rows_are_inverted_in_parts():
    transform = BNAF(2, 1)(torch.randn(50, 1)).transform
    z = torch.randn(50, 2)
    whole = engine.invert(transform.networks, z, ladj=True)
    parts = engine.invert(transform.networks, z, ladj=True, plain_elements=500)
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
    for row, z in zip(ours, forward.invert(x.detach()).rows.detach(), strict=True):
        grad_z = torch.func.jacrev(lambda z: law.base.log_prob(z) - forward.call_and_ladj(z)[1])(z)
        exact = torch.linalg.solve(torch.func.jacrev(forward)(z).T, grad_z)
        torch.testing.assert_close(row, exact.detach(), rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("derivative", [torch.func.jacfwd, torch.func.jacrev])
def test_the_inverse_refuses_what_it_cannot_differentiate(derivative):
    transform = BNAF(2)().transform
    with pytest.raises(InversionError, match=r"not by torch\.func or forward mode"):
        derivative(transform.inv)(torch.zeros(2))


@pytest.mark.parametrize("features", [1, 2, 20])
@pytest.mark.parametrize("mode", ["kernels", "plain"])
def test_a_fresh_flow_is_inverted(features, mode):
    with kernels.disabled() if mode == "plain" else nullcontext():
        transform = BNAF(features).double()().transform
        z = 4 * torch.randn(300, features, dtype=torch.float64)
        assert ((transform(transform.inv(z)) - z).abs() <= 1e-10 * z.abs().clamp(min=1)).all()


@pytest.fixture(scope="module")
def trained():
    """A flow after some steps on spirals, whose arms make it steep and flat by turns."""
    torch.manual_seed(0)
    flow = BNAF(2, transforms=2, width=16)
    optimiser = torch.optim.Adam(flow.parameters(), 0.03)
    for _ in range(600):
        loss = -flow().log_prob(draw_toy("2spirals", 256)).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert loss < 3.4
    return flow.requires_grad_(False)


@pytest.mark.parametrize("mode", ["kernels", "plain"])
def test_a_trained_flow_is_inverted(trained, mode):
    with kernels.disabled() if mode == "plain" else nullcontext():
        transform = copy.deepcopy(trained).double()().transform
        z = torch.randn(2000, 2, dtype=torch.float64)
        x = transform.inv(z)
        error = (transform(x) - z).abs()
        assert (error <= 1e-10 * z.abs().clamp(min=1)).all()
        # the error in x: one more Newton step, of the whole map, tells it
        jacobian = torch.func.vmap(torch.func.jacrev(transform))(x)
        off = torch.linalg.solve(jacobian, (transform(x) - z).unsqueeze(-1)).squeeze(-1)
        smallest = torch.linalg.svdvals(jacobian).amin(-1)
        assert (off.norm(dim=-1) <= 1e-10 * z.norm(dim=-1).clamp(min=1) / smallest).all()


@pytest.mark.parametrize("mode", ["kernels", "plain"])
def test_a_trained_flow_is_inverted_in_float32(trained, mode):
    with kernels.disabled() if mode == "plain" else nullcontext():
        transform = trained().transform
        z = torch.randn(2000, 2)
        x = transform.inv(z)
        # z cannot be met closer than the spacing of float32 around x allows
        jacobian = torch.func.vmap(torch.func.jacrev(transform))(x).abs()
        spacing = 8 * 6e-8 * (jacobian @ x.abs().unsqueeze(-1)).squeeze(-1)
        error = (transform(x) - z).abs()
        assert (error <= 2e-5 * z.abs().clamp(min=1) + spacing).all()
        assert (error <= 2e-5 * z.abs().clamp(min=1)).float().mean() > 0.9


@pytest.mark.parametrize("mode", ["kernels", "plain"])
def test_the_range_of_a_bounded_flow_is_exact(mode):
    with kernels.disabled() if mode == "plain" else nullcontext():
        torch.manual_seed(1)
        transform = BNAF.paper(1, transforms=1, width=8).double()().transform
        ends = transform(torch.tensor([[-1e6], [1e6]], dtype=torch.float64)).squeeze()
        width = ends[1] - ends[0]
        targets = torch.stack([ends[0] + 1e-6 * width, ends[1] - 1e-6 * width, *ends])
        outside = torch.stack([ends[0] - 1e-9 * width, ends[1] + 1e-9 * width])
        inside = transform.invert(torch.cat([targets, outside]).unsqueeze(1)).inside
        assert inside.tolist() == [True, True, False, False, False, False]


def test_a_draw_with_its_density_takes_one_inverse_and_one_forward_pass():
    if not kernels.available():
        pytest.skip("counted by the names of the kernels, which are not compiled")
    flow = BNAF(2, transforms=1)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        x, log_prob = flow().rsample_and_log_prob((10,))
        (x.sum() + log_prob.sum()).backward()
    counts = {event.key: event.count for event in profile.key_averages()}
    assert counts["bnaf::inverse"] == 1
    assert counts["bnaf::forward"] == 1


def test_a_million_samples_fit_into_little_memory():
    code = """
import torch
from pathlib import Path
from bnaf import BNAF
law = BNAF(2, width=6, transforms=1).requires_grad_(False)()
law.sample((1000,))
def peak():
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1024
before = peak()
law.sample((1_000_000,))
print(peak() - before)
"""
    if not Path("/proc/self/status").exists():
        pytest.skip("memory is read from /proc")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 200


def test_draws_are_redrawn_for_each_context():
    torch.manual_seed(0)
    flow = BNAF.paper(1, 2, transforms=1, width=4)
    with pytest.warns(RedrawWarning, match="were redrawn"):
        x = flow(torch.randn(3, 2)).sample((50,), outside="redraw")
    assert x.shape == (50, 3, 1)
    assert x.isfinite().all()
