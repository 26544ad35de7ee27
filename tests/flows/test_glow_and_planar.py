"""What is particular to the comparison flows; what they share is tested with all flows."""

import math

import pytest
import torch
from cases import build
from hypothesis import given
from hypothesis import strategies as st
from torch.func import grad, jacfwd, jacrev, vmap

import bnaf
from bnaf import InversionError, SettingsError, ShapeError
from bnaf.flows.glow import Glow
from bnaf.flows.planar import Planar, PlanarTransform, Plane, constrain, solve_along
from bnaf.laws.affine import ScaleTransform


def test_glow_starts_as_a_rotation():
    flow = Glow(4, transforms=5).double()
    x = torch.randn(20, 4, dtype=torch.float64)
    z, log_det = flow().transform.call_and_ladj(x)
    # the rotations are drawn in float32
    torch.testing.assert_close(z.norm(dim=1), x.norm(dim=1), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(log_det, torch.zeros_like(log_det), rtol=0, atol=1e-4)


@pytest.mark.parametrize("context_features", [0, 2])
def test_glow_is_initialised_from_a_batch(context_features):
    flow = Glow(3, context_features, transforms=4, width=8).double()
    rows = 5 * torch.randn(500, 3, dtype=torch.float64) - 7
    context = torch.randn(500, 2, dtype=torch.float64) if context_features else None
    flow.start_from(rows, context)
    for part in flow(context).transform.parts:
        rows = part(rows)
        if isinstance(part, ScaleTransform) and part.log_scale.dim() == 1:
            torch.testing.assert_close(rows.mean(0), torch.zeros(3).double())
            torch.testing.assert_close(rows.std(0), torch.ones(3).double())


def test_a_constant_column_is_initialised_too():
    flow = Glow(2, transforms=2)
    flow.start_from(torch.tensor([[1.0, 2.0], [3.0, 2.0], [0.0, 2.0]]))
    assert all(parameter.isfinite().all() for parameter in flow.parameters())


def test_a_hundred_layers_of_glow_are_inverted():
    flow = Glow(2, transforms=100, width=8)
    x = torch.randn(50, 2)
    transform = flow().transform
    torch.testing.assert_close(transform.inv(transform(x)), x, rtol=1e-4, atol=1e-4)


def test_the_permutation_of_glow_is_part_of_its_state():
    state = Glow(5, transforms=3).state_dict()
    assert {"orders", "signs"} <= set(state)
    assert sorted(state["orders"][0].tolist()) == [0, 1, 2, 3, 4]


def test_glow_counts_its_weights():
    # per step: actnorm 2·3, mixing 3·3, network (1·8 + 8) + (8·8 + 8) + (8·4 + 4)
    assert Glow(3, transforms=2, width=8).parameter_count == 2 * (6 + 9 + 16 + 72 + 36)
    assert Planar(2, transforms=32).parameter_count == 32 * 5


@pytest.mark.parametrize("name", ["glow", "planar", "planar_context_network"])
def test_every_derivative_of_the_inverse_is_right(case):
    transform = case.flow(case.context).transform
    z = case.rows(2).requires_grad_()
    assert torch.autograd.gradcheck(transform.inv.call_and_ladj, z)
    assert torch.autograd.gradgradcheck(transform.inv.call_and_ladj, z)

    def inverse(z):
        return transform.invert(z).rows

    z = z.detach()
    each = torch.stack([jacrev(inverse)(row) for row in z])
    torch.testing.assert_close(vmap(jacrev(inverse))(z), each)
    torch.testing.assert_close(vmap(jacfwd(inverse))(z), each)


@given(
    target=st.floats(-1e6, 1e6),
    log_room=st.floats(-30, 12),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_the_root_along_the_normal_is_exact(target, log_room, dtype):
    target = torch.tensor([target], dtype=dtype)
    room = torch.tensor([log_room], dtype=dtype).exp()
    root = solve_along(target, room)
    value = root + (room - 1) * root.tanh()
    size = root.abs() + (room - 1).abs() * root.tanh().abs() + target.abs()
    assert ((value - target).abs() <= 16 * torch.finfo(dtype).eps * size).all()


def test_roots_of_many_rows_do_not_disturb_each_other():
    target = torch.randn(200, dtype=torch.float64) * 10
    room = (4 * torch.randn(200, dtype=torch.float64)).exp()
    together = solve_along(target, room)
    apart = torch.cat(
        [solve_along(t, r) for t, r in zip(target.split(1), room.split(1), strict=True)]
    )
    torch.testing.assert_close(together, apart)
    assert solve_along(target[:0], room[:0]).shape == (0,)


def test_roots_of_numbers_that_are_not_finite_are_refused():
    with pytest.raises(InversionError, match="1 of 2 rows were not inverted"):
        solve_along(torch.zeros(2), torch.tensor([1.0, torch.nan]))


def planar(u, w, bias):
    u_hat, room = constrain(u, w)
    return PlanarTransform(Plane(u_hat, w, torch.tensor(bias).double(), room))


@given(st.floats(-50, 50), st.floats(-50, 50), st.floats(-5, 5), st.floats(-5, 5))
def test_planar_transforms_are_bijections_whatever_their_numbers(u1, u2, w1, w2):
    u, w = torch.tensor([u1, u2]).double(), torch.tensor([w1, w2]).double()
    transform = planar(u, w, 0.3)
    torch.testing.assert_close((w * transform.plane.u_hat).sum() + 1, transform.plane.room)
    x = torch.randn(20, 2).double()
    y, log_det = transform.call_and_ladj(x)
    assert log_det.isfinite().all()
    found = transform.inv(y)
    rounding = 1e-11 * (1 + transform.plane.u_hat.norm())
    assert ((transform(found) - y).abs() <= rounding).all()


def test_a_planar_transform_without_push_is_the_identity():
    w = torch.randn(3).double()
    transform = planar(torch.zeros(3).double(), w, 0.0)
    x = torch.randn(5, 3).double()
    torch.testing.assert_close(transform(x), x)
    still = planar(w, torch.zeros(3).double(), 1.0)
    assert still(x).isfinite().all()
    assert torch.equal(still.call_and_ladj(x)[1], torch.zeros(5).double())


@pytest.mark.parametrize(("name", "largest"), [("glow", 30.0), ("planar", 1000.0)])
def test_extreme_parameters_give_finite_numbers(name, conditional, largest):
    case = build(name, conditional)
    flow = case.flow.float()
    with torch.no_grad():
        for key, parameter in flow.named_parameters():
            if not key.startswith("log_"):
                parameter.uniform_(-largest, largest)
    context = case.context.float() if conditional else None
    x = (100 * torch.randn(50, 3)).requires_grad_()
    y, log_det = flow(context).transform.call_and_ladj(x)
    assert y.isfinite().all()
    assert log_det.isfinite().all()
    grads = torch.autograd.grad(log_det.sum(), [x, *flow.parameters()], allow_unused=True)
    assert all(found is None or found.isfinite().all() for found in grads)


@pytest.mark.parametrize("flow", [Glow(2), Planar(2, transforms=4)], ids=["glow", "planar"])
def test_targets_that_are_not_finite_are_refused(flow):
    z = torch.tensor([[0.0, 0.0], [torch.inf, 0.0], [0.0, torch.nan]])
    with pytest.raises(InversionError, match="2 of 3 rows"):
        flow().transform.inv(z)
    assert flow().onto
    assert flow.missing_mass() == (0.0, 0.0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Glow(0), "features must be a whole number of at least 1, got 0"),
        (lambda: Glow(2, transforms=0), "transforms must be .* got 0"),
        (lambda: Glow(2, width=0), "width must be .* got 0"),
        (lambda: Glow(2, direction="both"), "direction must be one of 'density', 'sampling'"),
        (lambda: Planar(2, -1), "context_features must be .* at least 0, got -1"),
        (lambda: Planar(2, direction="both"), "direction must be one of 'density', 'sampling'"),
        (lambda: Planar(2, context_layers=-1), "context_layers must be .* got -1"),
    ],
)
def test_settings_are_checked(call, message):
    with pytest.raises(SettingsError, match=message):
        call()


def test_rows_and_contexts_are_checked():
    with pytest.raises(ShapeError, match="at least 2 rows, got shape"):
        Glow(2).start_from(torch.zeros(1, 2))
    with pytest.raises(ShapeError, match="expects a context of 3 features"):
        Planar(2, 3)()
    with pytest.raises(TypeError, match="depth"):
        Planar(2, depth=3)


@pytest.mark.parametrize("kind", [Glow, Planar])
def test_the_score_of_a_row_by_torch_func(kind):
    law = kind(2, transforms=4)()
    x = torch.randn(3, 2)
    scores = vmap(grad(law.log_prob))(x)
    x.requires_grad_()
    torch.testing.assert_close(scores, torch.autograd.grad(law.log_prob(x).sum(), x)[0])


@pytest.mark.parametrize("kind", [Glow, Planar])
@pytest.mark.parametrize("direction", ["density", "sampling"])
def test_both_directions_learn_a_shifted_normal_law(kind, direction):
    flow = kind(2, transforms=4, direction=direction)
    target = torch.distributions.MultivariateNormal(
        torch.tensor([0.5, -0.5]), torch.tensor([[1.0, 0.5], [0.5, 0.7]])
    )
    optimiser = torch.optim.Adam(flow.parameters(), 0.02)
    losses = []
    for _ in range(120):
        if direction == "density":
            x = target.sample((200,))
            loss = (target.log_prob(x) - flow().log_prob(x)).mean()
        else:
            x, log_prob = flow().rsample_and_log_prob((200,))
            loss = (log_prob - target.log_prob(x)).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert sum(losses[-20:]) < 0.5 * sum(losses[:20])


def test_comparison_flows_are_flows():
    assert issubclass(Glow, bnaf.Flow)
    assert issubclass(Planar, bnaf.Flow)
    assert math.isfinite(Planar(1)().log_prob(torch.zeros(1)).item())
