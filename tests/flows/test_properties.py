"""One property per test, over all flows."""

import copy

import pytest
import torch
from cases import (
    BNAF_FLOWS,
    DENSITY,
    FEATURES,
    FLOWS,
    ONTO,
    SAMPLING,
    SMOOTH,
    build,
    closed_form,
    idle_weights,
)
from torch.func import grad, hessian, jacfwd, jacrev, vmap

from bnaf.laws.transforms import PermutationTransform

every_flow = pytest.mark.parametrize("name", FLOWS)
density_flows = pytest.mark.parametrize("name", DENSITY)
sampling_flows = pytest.mark.parametrize("name", SAMPLING)


@every_flow
def test_log_det_is_that_of_the_autograd_jacobian(case):
    transform = closed_form(case.flow(case.context))
    x = case.rows(5)
    jacobian = vmap(jacrev(transform))(x)
    _, log_det = transform.call_and_ladj(x)
    # autograd loses digits where tanh saturates
    expected = torch.linalg.slogdet(jacobian).logabsdet
    torch.testing.assert_close(log_det, expected, rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize("name", BNAF_FLOWS)
def test_one_transform_has_a_triangular_jacobian_with_positive_diagonal(case):
    law = case.flow(case.context)
    x = case.rows()
    parts = closed_form(law).parts
    while any(hasattr(part, "parts") for part in parts):
        parts = [one for part in parts for one in getattr(part, "parts", [part])]
    for part in parts:
        if isinstance(part, PermutationTransform):
            continue
        jacobian = jacrev(part)(x)
        assert torch.equal(jacobian.triu(1), torch.zeros_like(jacobian))
        assert (jacobian.diagonal() > 0).all()


@density_flows
@pytest.mark.parametrize("batch", [(), (1,), (2, 5), (0,)])
def test_batch_shapes_are_kept(case, batch):
    law = case.flow(case.context)
    x = case.rows(*batch)
    log_prob = law.log_prob(x)
    assert log_prob.shape == batch
    assert law.transform(x).shape == (*batch, FEATURES)


@density_flows
def test_a_batch_is_its_rows(case):
    law = case.flow(case.context)
    x = case.rows(2, 3)
    rows = torch.stack([law.log_prob(row) for row in x.flatten(0, 1)])
    torch.testing.assert_close(law.log_prob(x).flatten(), rows)


@density_flows
@pytest.mark.parametrize("conditional", [True])
@pytest.mark.parametrize(
    ("context_batch", "row_batch"),
    [((4,), (4,)), ((4,), ()), ((1,), (5,)), ((2, 1), (3,)), ((3,), (2, 3))],
)
def test_context_broadcasts_against_rows(case, context_batch, row_batch):
    context = torch.randn(*context_batch, 2, dtype=torch.float64)
    x = case.rows(*row_batch)
    batch = torch.broadcast_shapes(context_batch, row_batch)
    log_prob = case.flow(context).log_prob(x)
    assert log_prob.shape == batch
    each = [
        case.flow(one).log_prob(row)
        for one, row in zip(
            context.expand(*batch, 2).reshape(-1, 2),
            x.expand(*batch, FEATURES).reshape(-1, FEATURES),
            strict=True,
        )
    ]
    torch.testing.assert_close(log_prob.flatten(), torch.stack(each))


@every_flow
@pytest.mark.parametrize("features", [1, FEATURES])
def test_every_output_feels_the_context(name, features):
    case = build(name, True, features)

    def outputs(context):
        return closed_form(case.flow(context))(x)

    x = case.rows()
    sensitivity = jacrev(outputs)(case.context)
    assert (sensitivity.abs().amax(1) > 1e-8).all()


@every_flow
def test_one_feature(name, conditional):
    case = build(name, conditional, features=1)
    transform = closed_form(case.flow(case.context))
    x = case.rows(6)
    y, log_det = transform.call_and_ladj(x)
    assert y.shape == (6, 1)
    slope = vmap(jacrev(transform))(x).flatten()
    torch.testing.assert_close(log_det.exp(), slope.abs())


@every_flow
def test_float32_follows_float64(case):
    single = copy.deepcopy(case.flow).float()
    context = case.context.float() if case.context is not None else None
    x = case.rows(20)
    y, log_det = closed_form(single(context)).call_and_ladj(x.float())
    exact, exact_log_det = closed_form(case.flow(case.context)).call_and_ladj(x)
    assert y.dtype == log_det.dtype == torch.float32
    torch.testing.assert_close(y.double(), exact, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(log_det.double(), exact_log_det, rtol=1e-4, atol=1e-4)


@every_flow
def test_device_is_kept(case):
    flow = case.flow.to("meta")
    context = case.context.to("meta") if case.context is not None else None
    y, log_det = closed_form(flow(context)).call_and_ladj(case.rows(4).to("meta"))
    assert y.device.type == log_det.device.type == "meta"


@every_flow
def test_gradient_reaches_every_weight_that_acts(case):
    flow = case.flow
    y, log_det = closed_form(flow(case.context)).call_and_ladj(case.rows(30))
    (y.sum() + log_det.sum()).backward()
    acting = sum(int((parameter.grad != 0).sum()) for parameter in flow.parameters())
    assert acting >= flow.parameter_count - idle_weights(flow)


@every_flow
def test_state_dict_round_trip(name, case, conditional):
    other = build(name, conditional).flow
    other.load_state_dict(case.flow.state_dict())
    x = case.rows(4)
    expected = closed_form(case.flow(case.context)).call_and_ladj(x)
    assert all(
        torch.equal(a, b)
        for a, b in zip(closed_form(other(case.context)).call_and_ladj(x), expected, strict=True)
    )


@every_flow
def test_a_copy_is_equal_and_apart(case):
    twin = copy.deepcopy(case.flow)
    x = case.rows(4)
    before = closed_form(case.flow(case.context))(x)
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.add_(1.0)
    assert torch.equal(closed_form(case.flow(case.context))(x), before)


@every_flow
def test_settings_make_the_same_flow(case):
    twin = type(case.flow)(**case.flow.settings).double()
    assert twin.settings == case.flow.settings
    twin.load_state_dict(case.flow.state_dict())
    x = case.rows(4)
    assert torch.equal(closed_form(twin(case.context))(x), closed_form(case.flow(case.context))(x))


@every_flow
def test_repr_names_every_setting(case):
    shown = repr(case.flow)
    assert shown.startswith(type(case.flow).__name__)
    assert all(f"{key}={value!r}" in shown for key, value in case.flow.settings.items())


@every_flow
def test_hand_written_gradient_is_that_of_autograd(case):
    x = case.rows(4).requires_grad_()
    inputs = [x, *case.flow.parameters()]

    def gradients(create_graph):
        y, log_det = closed_form(case.flow(case.context)).call_and_ladj(x)
        loss = (y.sin() * log_det.unsqueeze(-1).cos()).sum()
        return torch.autograd.grad(loss, inputs, create_graph=create_graph, allow_unused=True)

    for ours, torchs in zip(gradients(False), gradients(True), strict=True):
        torch.testing.assert_close(ours, torchs)


@pytest.mark.parametrize("name", SMOOTH)
def test_first_and_second_derivatives_pass_gradcheck(case):
    x = case.rows(2).requires_grad_()

    def both(x):
        return case.flow(case.context).transform.call_and_ladj(x)

    assert torch.autograd.gradcheck(both, x)
    assert torch.autograd.gradgradcheck(both, x)


@pytest.mark.parametrize("name", SMOOTH)
def test_hessians_of_log_prob_agree(case):
    law = case.flow(case.context)
    x = case.rows()
    forward_over_reverse = hessian(law.log_prob)(x)
    reverse_over_reverse = torch.autograd.functional.hessian(law.log_prob, x)
    torch.testing.assert_close(forward_over_reverse, reverse_over_reverse)


@pytest.mark.parametrize("name", ["bnaf", "plain_residual", "unequal_widths", "paper"])
@pytest.mark.parametrize("conditional", [False])
def test_hessian_at_zero_with_zero_biases_is_right(case):
    with torch.no_grad():
        for layer in case.flow.networks.layers:
            layer.bias.zero_()
    law = case.flow(case.context)
    step = 1e-5
    x = torch.zeros(FEATURES, dtype=torch.float64)
    shift = torch.zeros_like(x)
    shift[0] = step
    slope = grad(law.log_prob)
    numeric = (slope(x + shift) - slope(x - shift))[0] / (2 * step)
    # a difference of slopes is off by the square of its step, times what may be large
    torch.testing.assert_close(hessian(law.log_prob)(x)[0, 0], numeric, rtol=1e-4, atol=1e-4)


@density_flows
def test_vmap_over_rows(case):
    law = case.flow(case.context)
    x = case.rows(5)
    torch.testing.assert_close(vmap(law.log_prob)(x), law.log_prob(x))


@density_flows
def test_non_finite_rows_do_not_touch_others(case):
    law = case.flow(case.context)
    x = case.rows(4)
    spoilt = x.clone()
    spoilt[1, 0], spoilt[2, 2] = torch.nan, torch.inf
    log_prob = law.log_prob(spoilt)
    torch.testing.assert_close(log_prob[[0, 3]], law.log_prob(x)[[0, 3]])
    assert (log_prob[[1, 2]] == -torch.inf).all()
    log_prob[[0, 3]].sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in case.flow.parameters())


@pytest.mark.parametrize("name", [name for name in ONTO if name in DENSITY])
def test_inverse_undoes_the_transform(case):
    transform = case.flow(case.context).transform
    z = 4 * case.rows(200)
    x = transform.inv(z)
    assert ((transform(x) - z).abs() <= 1e-10 * z.abs().clamp(min=1)).all()


@every_flow
def test_inverse_in_float32(case):
    law = case.flow.float()(case.context.float() if case.context is not None else None)
    transform = closed_form(law)
    z = transform(case.rows(100, dtype=torch.float32))
    # where tanh saturates, float32 puts some outputs on the very ends of the range
    x, _, inside = transform.invert(z)
    assert inside.float().mean() > 0.5
    x, z = x[inside], z[inside]
    # what rounding x to float32 alone does to z
    rounding = 16 * 6e-8 * (vmap(jacrev(transform))(x).abs() @ x.abs().unsqueeze(-1)).squeeze(-1)
    assert ((transform(x) - z).abs() <= 2e-5 * z.abs().clamp(min=1) + rounding).all()


@sampling_flows
@pytest.mark.parametrize("sample", [(), (3,), (2, 3)])
def test_samples_carry_their_log_density(case, sample):
    law = case.flow(case.context)
    x, log_prob = law.rsample_and_log_prob(sample)
    assert x.shape == (*sample, FEATURES)
    torch.testing.assert_close(law.log_prob(x), log_prob, rtol=1e-7, atol=1e-7)


@every_flow
def test_sample_shape_and_context_batch(name):
    case = build(name, True)
    law = case.flow(torch.randn(4, 2, dtype=torch.float64))
    if not law.onto:
        pytest.skip("not onto: some draws have no pre-image")
    assert law.sample((5,)).shape == (5, 4, FEATURES)
    assert law.sample((0,)).shape == (0, 4, FEATURES)
    assert not law.sample((5,)).requires_grad


@every_flow
def test_expand_adds_batch_dimensions(case):
    law = case.flow(case.context).expand((2, 5))
    assert law.batch_shape == (2, 5)
    assert law.event_shape == (FEATURES,)
    if law.direction == "density":
        assert law.log_prob(case.rows()).shape == (2, 5)


@pytest.mark.parametrize("name", ["bnaf", "paper"])
def test_forward_mode_twice_is_reverse_mode_twice_at_zero(case):
    with torch.no_grad():
        for parameter in case.flow.parameters():
            parameter.requires_grad_(False)
        for layer in case.flow.networks.layers:
            if layer.bias is not None:
                layer.bias.zero_()
    log_prob = case.flow(case.context).log_prob
    x = torch.zeros(FEATURES, dtype=torch.float64)
    torch.testing.assert_close(jacfwd(jacfwd(log_prob))(x), jacrev(jacrev(log_prob))(x))
