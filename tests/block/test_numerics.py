"""Finite numbers where weights and inputs are extreme."""

from contextlib import nullcontext

import pytest
import torch
from cases import BASELINES, build, randomise
from hypothesis import given
from hypothesis import strategies as st

from bnaf import BNAF
from bnaf.block import kernels
from bnaf.block.activations import LeakyReLU, LeakyTanh, Tanh
from bnaf.block.tensors import diagonal_blocks, log_row_norm, with_diagonal_blocks

EXTREMES = [("leaky_tanh", 100.0), ("leaky_relu", 100.0), ("tanh", 30.0)]


@pytest.mark.parametrize(("activation", "largest"), EXTREMES)
@pytest.mark.parametrize("residual", ["gated", None])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("mode", ["kernels", "plain", "twice"])
def test_extreme_weights_and_inputs_give_finite_numbers(activation, largest, residual, seed, mode):
    torch.manual_seed(seed)
    flow = BNAF(4, activation=activation, residual=residual, width=8, transforms=2)
    with torch.no_grad():
        for layer in flow.networks.layers:
            layer.weight.uniform_(-largest, largest)
            layer.weight[torch.rand_like(layer.weight) < 0.3] = largest
            layer.weight[torch.rand_like(layer.weight) < 0.3] = -largest
    x = 1e4 * (2 * torch.rand(50, 4) - 1)
    x[:10] *= 1e-4
    x.requires_grad_()
    with kernels.disabled() if mode == "plain" else nullcontext():
        y, log_det = flow().transform.call_and_ladj(x)
        assert y.isfinite().all()
        assert log_det.isfinite().all()
        loss = y.mean() + log_det.mean()
        inputs = [x, *flow.parameters()]
        twice = mode == "twice"
        grads = torch.autograd.grad(loss, inputs, create_graph=twice, allow_unused=True)
    assert all(grad is None or grad.isfinite().all() for grad in grads)


@pytest.mark.parametrize("largest", [5.0, 100.0])
def test_extreme_weights_agree_with_float64(largest):
    flow = BNAF(4, width=8, transforms=1)
    with torch.no_grad():
        for layer in flow.networks.layers:
            layer.weight.uniform_(-largest, largest)
    x = torch.randn(50, 4)
    y, log_det = flow().transform.call_and_ladj(x)
    exact, exact_log_det = flow.double()().transform.call_and_ladj(x.double())
    torch.testing.assert_close(y.double(), exact, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(log_det.double(), exact_log_det, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "activation", [Tanh(), LeakyTanh(), LeakyReLU()], ids=lambda a: type(a).__name__
)
@given(h=st.floats(-300, 300).filter(lambda h: h != 0))
def test_log_derivatives_of_activations_are_exact(activation, h):
    h = torch.tensor(h, dtype=torch.float64, requires_grad=True)
    value, log_slope = activation(h)
    assert value == activation.value(h)
    (slope,) = torch.autograd.grad(value, h)
    torch.testing.assert_close(log_slope.exp(), slope, rtol=1e-9, atol=1e-12)
    if isinstance(activation, Tanh) and abs(h) > 30:
        exact = torch.log(torch.tensor(4.0, dtype=torch.float64)) - 2 * h.abs()
        torch.testing.assert_close(log_slope, exact)


@pytest.mark.parametrize(
    "activation", [Tanh(), LeakyTanh(), LeakyReLU()], ids=lambda a: type(a).__name__
)
def test_scaled_slopes_are_the_derivative(activation):
    h = 40 * torch.randn(3, 5, 7, dtype=torch.float64)
    for watched in (h, h.clone().requires_grad_()):
        _, slope, shift = activation.bend(watched)
        log_slope = slope.log() + (0 if shift is None else shift)
        torch.testing.assert_close(log_slope, activation(h)[1])


@given(st.integers(1, 4), st.integers(1, 3), st.integers(1, 3))
def test_diagonal_blocks_are_those_that_were_put_there(features, in_block, out_block):
    blocks = torch.randn(2, features, out_block, in_block, dtype=torch.float64)
    weight = torch.zeros(2, features * out_block, features * in_block, dtype=torch.float64)
    filled = with_diagonal_blocks(weight, blocks)
    assert torch.equal(diagonal_blocks(filled, features), blocks)
    assert (filled != 0).sum() == blocks.numel()


@given(st.floats(-300, 300), st.floats(0, 1e30))
def test_log_row_norm(value, square_sum):
    blocks = torch.full((1, 1, 2), value, dtype=torch.float64)
    ours = log_row_norm(blocks, torch.full((1, 1), square_sum, dtype=torch.float64))
    exact = 0.5 * (2 * torch.exp(2 * blocks[0, 0, 0]) + square_sum).log()
    torch.testing.assert_close(ours.squeeze(), exact)


@given(
    features=st.integers(1, 5),
    widths=st.lists(st.integers(1, 5), max_size=3),
    transforms=st.integers(1, 3),
    rows=st.integers(1, 4),
    seed=st.integers(0, 99),
)
def test_any_size_agrees_with_the_autograd_jacobian(features, widths, transforms, rows, seed):
    torch.manual_seed(seed)
    flow = BNAF(features, transforms=transforms, hidden_layers=len(widths), width=widths).double()
    x = torch.randn(rows, features, dtype=torch.float64)
    transform = flow().transform
    jacobian = torch.func.vmap(torch.func.jacrev(transform))(x)
    torch.testing.assert_close(
        transform.call_and_ladj(x)[1],
        torch.linalg.slogdet(jacobian).logabsdet,
        rtol=1e-6,
        atol=1e-8,
    )


def grid(points: int, reach: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Points and weights of a quadrature on the line, dense at zero and far out in the tails."""
    t = torch.linspace(-1, 1, points, dtype=torch.float64) * torch.asinh(
        torch.tensor(reach).double()
    )
    return t.sinh(), t.cosh() * (t[1] - t[0])


@pytest.mark.parametrize(
    "name", ["bnaf", "leaky_relu", "plain_residual", "random_order", *BASELINES]
)
def test_the_density_integrates_to_one_in_one_dimension(name, conditional):
    case = build(name, conditional, features=1)
    # the density of a LeakyReLU flow jumps
    x, weight = grid(10_001 if name in BASELINES else 1_600_001, 1e6)
    with torch.no_grad():
        density = case.flow(case.context).log_prob(x.unsqueeze(1)).exp()
    assert abs((density * weight).sum().item() - 1) < 1e-4


@pytest.mark.parametrize("name", ["bnaf", "plain_residual", "random_order", *BASELINES])
def test_the_density_integrates_to_one_in_two_dimensions(name, conditional):
    case = build(name, conditional, features=2)
    randomise(case.flow, 0.5)  # steeper ridges slip through the grid
    side = 301 if name in BASELINES else 1601
    t, weight = grid(side, 1e3)
    with torch.no_grad():
        law = case.flow(case.context)
        low, centre, high = law.sample((2000,)).quantile(
            torch.tensor([0.25, 0.5, 0.75]).double(), 0
        )
        spread = (high - low) / 2
        points = centre + spread * torch.cartesian_prod(t, t)
        density = torch.cat([law.log_prob(part).exp() for part in points.split(200_000)])
    mass = (density.view(side, side) * weight.unsqueeze(1) * weight).sum() * spread.prod()
    assert abs(mass.item() - 1) < 1e-2


def test_the_paper_flow_lacks_the_mass_that_it_says():
    torch.manual_seed(3)
    flow = BNAF.paper(1, transforms=1, width=8).double()
    with torch.no_grad():
        for layer in flow.networks.layers:
            layer.log_gain.zero_()
    x, weight = grid(200_001, 1e4)
    with torch.no_grad():
        mass = (flow().log_prob(x.unsqueeze(1)).exp() * weight).sum().item()
    missing = flow.missing_mass(100_000)
    assert missing.share > 0.01
    assert abs(1 - mass - missing.share) < 4 * missing.standard_error + 1e-6


def test_the_default_flow_misses_nothing():
    assert BNAF(3).missing_mass() == (0.0, 0.0)


def test_hand_written_gradients_of_plain_torch_pass_gradcheck():
    flow = BNAF(3, transforms=1, width=120, activation="tanh").double()  # cut into two bands
    randomise(flow, 0.5)
    x = torch.randn(2, 3, dtype=torch.float64)
    names, parameters = zip(*flow.named_parameters(), strict=True)

    def both(*parameters):
        law = torch.func.functional_call(flow, dict(zip(names, parameters, strict=True)), ())
        return law.transform.call_and_ladj(x)

    with kernels.disabled():
        assert torch.autograd.gradcheck(both, parameters, fast_mode=True)
        assert torch.autograd.gradgradcheck(both, parameters, fast_mode=True)
