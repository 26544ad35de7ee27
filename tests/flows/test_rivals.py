"""What is particular to the rivals; what they share is tested with all flows."""

import pytest
import torch
from cases import FEATURES, build
from torch.func import jacrev, vmap

from bnaf import InversionError, SettingsError
from bnaf.flows.ffjord import FFJORD
from bnaf.flows.made import MADE, MADEMoG
from bnaf.flows.maf import MAF
from bnaf.flows.naf import NAF
from bnaf.flows.nsf import NSF
from bnaf.flows.tan import TAN
from bnaf.flows.trade import TraDE
from bnaf.laws.autoregressive import AutoregressiveTransform
from bnaf.laws.transforms import ComposeTransform

AUTOREGRESSIVE = ["made", "made_mog", "maf", "nsf", "naf_ddsf", "tan", "tan_linear", "trade"]
SOLVED = [*AUTOREGRESSIVE, "ffjord"]


@pytest.mark.parametrize("name", AUTOREGRESSIVE)
def test_numbers_depend_on_the_features_before_alone(case):
    transform = case.flow(case.context).transform
    parts = transform.parts if isinstance(transform, ComposeTransform) else [transform]
    for part in parts:
        if isinstance(part, AutoregressiveTransform):
            sensitivity = jacrev(part.predict)(case.rows()).abs().amax(1)
            assert torch.equal(sensitivity.triu(), torch.zeros_like(sensitivity))
            assert (sensitivity[FEATURES - 1, : FEATURES - 1] > 0).all()


@pytest.mark.parametrize("name", SOLVED)
@pytest.mark.parametrize("conditional", [False])
def test_second_derivatives_of_samples_raise(case):
    transform = case.flow(case.context).transform
    z = case.rows(2).requires_grad_()
    with pytest.raises(InversionError, match="differentiated once"):
        torch.autograd.grad(transform.inv(z).square().sum(), z, create_graph=True)


@pytest.mark.parametrize("name", ["made_mog", "ffjord"])
@pytest.mark.parametrize("conditional", [False])
def test_inverses_refuse_what_they_cannot_differentiate(case):
    with pytest.raises(InversionError, match=r"not by torch\.func or forward mode"):
        jacrev(case.flow().transform.inv)(case.rows())


@pytest.mark.parametrize("name", ["maf", "made_mog", "ffjord", "nsf_coupling"])
def test_targets_that_are_not_finite_are_refused(name):
    z = torch.zeros(3, FEATURES, dtype=torch.float64)
    z[1, 0], z[2, 2] = torch.inf, torch.nan
    with pytest.raises(InversionError, match="2 of 3 rows"):
        build(name, False).flow().transform.inv(z)


@pytest.mark.parametrize("context_features", [0, 2])
def test_the_divergence_is_that_of_autograd(context_features):
    flow = FFJORD(4, context_features, steps=1, width=5).double()
    with torch.no_grad():
        for parameter in flow.parameters():
            parameter.normal_()
    context = torch.randn(context_features, dtype=torch.float64) if context_features else None
    x = torch.randn(6, 4, dtype=torch.float64)
    for velocity in flow(context).transform.parts[0].velocities:
        jacobian = vmap(jacrev(lambda row, velocity=velocity: velocity.at(row, trace=False)[0]))(x)
        trace = jacobian.diagonal(dim1=-2, dim2=-1).sum(-1)
        torch.testing.assert_close(velocity.at(x, trace=True)[1], trace)


def test_steps_along_a_velocity_converge_with_fourth_order():
    torch.manual_seed(1)
    flow = build("ffjord", False).flow
    x = torch.randn(20, FEATURES, dtype=torch.float64)

    def log_prob(steps):
        flow.steps = steps
        return flow().log_prob(x).detach()

    exact = log_prob(64)
    errors = [(log_prob(steps) - exact).abs().max() for steps in (2, 4, 8)]
    assert errors[1] < errors[0] / 8
    assert errors[2] < errors[1] / 8


@pytest.mark.parametrize("steps", [4, 8, 16])
def test_steps_along_a_velocity_are_enough_however_large_its_weights(steps):
    torch.manual_seed(0)
    flow = FFJORD(2, steps=steps, width=16).double()
    with torch.no_grad():
        for weight in flow.velocities[0].weights:
            weight.normal_(std=100)
        x = 2 * torch.randn(200, 2, dtype=torch.float64)
        found = flow().log_prob(x)
        flow.steps = 256
        assert (found - flow().log_prob(x)).abs().max() < 0.05


def test_rivals_count_the_weights_that_act():
    # 4 units read one feature, 4 units two; outputs read 0, 4 and 8 units, two for each feature
    assert MADE(3, hidden_layers=1, width=8).parameter_count == (4 + 8 + 8) + 2 * (0 + 4 + 8 + 3)
    one, two = (NAF(3, transforms=count, width=8).parameter_count for count in (5, 10))
    assert two == 2 * one


@pytest.mark.parametrize(
    "flow",
    [MADE(1), MADEMoG(1), MAF(1), MAF(1, mixing="reverse"), NSF(1), NAF(1, sigmoid_layers=1)],
    ids=["made", "made_mog", "maf", "maf_reversed", "nsf", "naf_dsf"],
)
def test_one_feature_without_context_needs_no_network(flow):
    law = flow()
    x = torch.linspace(-3, 3, 5).unsqueeze(1)
    torch.testing.assert_close(law.transform.inv(law.transform(x)), x, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: TraDE(2, width=10, heads=4), r"width must be a multiple of heads \(4\), got 10"),
        (lambda: TAN(2, conditioner="deep"), "conditioner must be one of 'recurrent', 'linear'"),
        (lambda: MAF(2, mixing="random"), "mixing must be one of 'linear', 'reverse'"),
        (lambda: NSF(2, bins=1), "bins must be a whole number of at least 2, got 1"),
        (lambda: NSF(2, bound=0.0), "bound must be a positive finite number, got 0"),
        (lambda: MADEMoG(2, components=0), "components must be .* got 0"),
        (lambda: FFJORD(2, steps=0), "steps must be .* got 0"),
        (lambda: NAF(2, sigmoid_layers=0), "sigmoid_layers must be .* got 0"),
    ],
)
def test_settings_are_checked(call, message):
    with pytest.raises(SettingsError, match=message):
        call()
