"""Densities of points and masses of intervals through a stack of networks in one order."""

from contextlib import nullcontext

import mpmath
import numpy as np
import pytest
import torch
from cases import randomise

from bnaf import BNAF, ShapeError
from bnaf.block import kernels
from bnaf.block.activations import LeakyReLU, LeakyTanh, Tanh
from bnaf.errors import SettingsError
from bnaf.laws.cells import Cells

SHAPES = [
    {},
    {"activation": "tanh"},
    {"activation": "leaky_relu", "residual": "normal"},
    {"hidden_layers": 0},
    {"hidden_layers": 3, "width": (2, 5, 3), "residual": None},
]
CONTEXTS = [None, "biases", "amortised"]


def build(context=None, rows=7, features=3, **settings):
    """A flow in one order with weights of order one, and contexts if it takes some."""
    given = 0 if context is None else 2
    settings = {"width": 4, "transforms": 2, "context": context or "biases", **settings}
    flow = BNAF(features, given, permutation=None, **settings).double()
    randomise(flow)
    return flow, torch.randn(rows, 2, dtype=torch.float64) if given else None


def draw_cells(rows=7, features=3, dtype=torch.float64):
    """Cells of all kinds: points, intervals, half-infinite ones, and some that are not known."""
    middle = torch.randn(rows, features, dtype=dtype)
    below, above = torch.rand(2, rows, features, dtype=dtype)
    kind = torch.arange(rows * features).view(rows, features) % 6
    middle = torch.where(kind == 5, torch.nan, middle)
    below = torch.where(kind == 3, torch.inf, torch.where(kind % 3 == 1, 0.0, below))
    above = torch.where(kind == 2, torch.inf, torch.where(kind % 4 == 1, 0.0, above))
    return Cells.of(middle, below, above)


@pytest.fixture(params=["kernels", "plain"], autouse=True)
def mode(request):
    """Each property holds of the kernels and of plain torch."""
    if request.param == "kernels" and not kernels.available():
        pytest.skip("the kernels are not compiled: python -m bnaf.block.kernels says why")
    with kernels.disabled() if request.param == "plain" else nullcontext():
        yield request.param


@pytest.mark.parametrize("settings", SHAPES, ids=repr)
@pytest.mark.parametrize("context", CONTEXTS)
def test_shares_of_points_add_up_to_the_log_density(context, settings):
    flow, given = build(context, **settings)
    law = flow(given)
    x = torch.randn(7, 3, dtype=torch.float64)
    shares = law.transform.log_shares(Cells.points(x))
    torch.testing.assert_close(shares.sum(-1), law.log_prob(x))


@pytest.mark.parametrize("settings", SHAPES, ids=repr)
@pytest.mark.parametrize("feature", [0, 2])
def test_masses_of_cells_that_cover_the_line_add_up_to_one(feature, settings):
    flow, given = build("biases", rows=1, **settings)
    ends = torch.linspace(-4, 4, 13, dtype=torch.float64)
    low, high = torch.cat([ends[:1], ends]), torch.cat([ends, ends[-1:]])
    cells = Cells.points(torch.randn(1, 3, dtype=torch.float64).repeat(14, 1))
    cells.middle[:, feature] = (low + high) / 2
    cells.below[:, feature], cells.above[:, feature] = (high - low) / 2, (high - low) / 2
    cells.below[0, feature] = cells.above[-1, feature] = torch.inf
    shares = flow(given).transform.log_shares(cells)[:, feature]
    torch.testing.assert_close(shares.exp().sum().item(), 1.0, rtol=0, atol=1e-10)


@pytest.mark.parametrize("settings", SHAPES[:2], ids=repr)
def test_the_mass_of_an_interval_is_the_integral_of_densities(settings):
    flow, given = build("biases", rows=1, **settings)
    transform = flow(given).transform
    row = torch.randn(1, 3, dtype=torch.float64)
    nodes, weights = map(torch.from_numpy, np.polynomial.legendre.leggauss(60))
    points = row.repeat(60, 1)
    points[:, 1] += 0.1 + 0.7 * nodes  # from 0.6 below to 0.8 above
    densities = transform.log_shares(Cells.points(points))[:, 1].exp()
    cells = Cells.points(row)
    cells.below[0, 1], cells.above[0, 1] = 0.6, 0.8
    mass = transform.log_shares(cells)[0, 1].exp()
    torch.testing.assert_close(mass, 0.7 * (weights * densities).sum(), rtol=1e-9, atol=0)


def test_no_cell_feels_a_later_one_nor_its_own_interval_those_after():
    flow, given = build("biases")
    transform = flow(given).transform
    cells, others = draw_cells(), draw_cells()
    first = transform.log_shares(cells)
    parts = [torch.cat([a[:, :2], b[:, 2:]], 1) for a, b in zip(cells, others, strict=True)]
    torch.testing.assert_close(transform.log_shares(Cells(*parts))[:, :2], first[:, :2])
    wider = cells._replace(below=cells.below.clone())
    wider.below[:, 0] += 1.0
    torch.testing.assert_close(transform.log_shares(wider)[:, 1:], first[:, 1:])


def test_cells_that_are_not_known_have_no_share_and_count_as_zero():
    flow, given = build("biases")
    transform = flow(given).transform
    x = torch.randn(7, 3, dtype=torch.float64)
    unknown, zero = x.clone(), x.clone()
    unknown[:, 1], zero[:, 1] = torch.nan, 0.0
    shares = transform.log_shares(Cells.points(unknown))
    assert (shares[:, 1] == 0).all()
    torch.testing.assert_close(shares[:, 2], transform.log_shares(Cells.points(zero))[:, 2])


def evaluate_with(flow, given, cells):
    """Shares as a function of middles, finite widths, contexts and weights; and those."""
    names = [name for name, _ in flow.named_parameters()]
    finite = [part.isfinite() & (part > 0) for part in cells[1:3]]

    def evaluate(middle, below, above, *rest):
        ends = zip((below, above), cells[1:3], finite, strict=True)
        widths = [torch.where(has, width, old) for width, old, has in ends]
        contexts, weights = (rest[:1], rest[1:]) if given is not None else ((), rest)
        state = dict(zip(names, weights, strict=True))
        law = torch.func.functional_call(flow, state, contexts)
        return law.transform.log_shares(
            cells._replace(middle=middle, below=widths[0], above=widths[1])
        )

    widths = [torch.where(has, part, 0.7) for part, has in zip(cells[1:3], finite, strict=True)]
    contexts = [] if given is None else [given]
    inputs = [cells.middle, *widths, *contexts, *flow.parameters()]
    return evaluate, [part.detach().clone().requires_grad_() for part in inputs]


@pytest.mark.parametrize("context", CONTEXTS)
def test_every_gradient_of_shares_passes_gradcheck(context):
    flow, given = build(context)
    evaluate, inputs = evaluate_with(flow, given, draw_cells())
    assert torch.autograd.gradcheck(evaluate, inputs, fast_mode=True)


def test_second_derivatives_of_shares_pass_gradcheck():
    flow, _ = build(features=2, width=2, hidden_layers=1, transforms=1)
    evaluate, inputs = evaluate_with(flow, None, draw_cells(3, 2))
    assert torch.autograd.gradgradcheck(evaluate, inputs, fast_mode=True)


@pytest.mark.parametrize("activation", [Tanh(), LeakyTanh(), LeakyReLU()], ids=repr)
@pytest.mark.parametrize("side", [-1, 1])
def test_rises_are_differences_of_values_that_keep_their_digits(activation, side):
    h = 4 * torch.randn(100, 1, 1)
    width = torch.logspace(-7, 2, 100).view(100, 1, 1)
    found = activation.rise(h, width, side).flatten().tolist()
    leak = getattr(activation, "leak", 0.0)
    with mpmath.workdps(60):
        for start, step, rise in zip(h.flatten(), width.flatten(), found, strict=True):
            ends = [mpmath.mpf(start.item()), mpmath.mpf(start.item()) + side * step.item()]
            if isinstance(activation, LeakyReLU):
                low, high = (end if end > 0 else leak * end for end in ends)
            else:
                low, high = (mpmath.tanh(end) + leak * end for end in ends)
            assert rise == pytest.approx(float(side * (high - low)), rel=1e-5)


def test_shares_in_float32_are_those_of_float64():
    flow, _ = build()
    cells = draw_cells(200)
    cells.below[::2] *= 1e-6
    cells.above[::2] *= 1e-6
    exact = flow().transform.log_shares(cells)
    rough = [part.float() for part in cells[:3]]
    found = flow.float()().transform.log_shares(Cells(*rough, cells.known))
    torch.testing.assert_close(found.double(), exact, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("batch", [(), (1,), (2, 5)])
def test_cells_may_come_in_any_batch_and_contexts_broadcast(batch):
    flow, given = build("biases", rows=5)
    middle = torch.randn(*batch, 3, dtype=torch.float64)
    cells = Cells.of(middle, torch.ones_like(middle), torch.ones_like(middle))
    shares = flow(given).transform.log_shares(cells)
    assert shares.shape == (*torch.broadcast_shapes(batch, (5,)), 3)
    rows = [part.expand(*shares.shape).reshape(-1, 3) for part in cells]
    context = given.expand(*shares.shape[:-1], 2).reshape(-1, 2)
    one_by_one = flow(context).transform.log_shares(Cells(*rows))
    torch.testing.assert_close(shares.reshape(-1, 3), one_by_one)


def test_a_flow_that_changes_the_order_says_how_to_build_it():
    law = BNAF(3)()
    with pytest.raises(SettingsError, match="permutation=None"):
        law.transform.log_shares(Cells.points(torch.zeros(2, 3)))


def test_cells_of_the_wrong_width_are_refused():
    law = BNAF(3, permutation=None)()
    with pytest.raises(ShapeError, match=r"expects 3 features .* middle"):
        law.transform.log_shares(Cells.points(torch.zeros(2, 4)))


@pytest.mark.parametrize("residual", ["gated", None])
@pytest.mark.parametrize("activation", ["leaky_tanh", "leaky_relu", "tanh"])
def test_extreme_weights_and_cells_give_finite_shares_and_gradients(activation, residual):
    settings = {"activation": activation, "residual": residual, "width": 8, "transforms": 2}
    flow = BNAF(4, permutation=None, **settings)
    with torch.no_grad():
        flow.networks.weight.uniform_(-30, 30)
        flow.networks.weight[torch.rand_like(flow.networks.weight) < 0.3] = 30.0
    middle = (1e4 * (2 * torch.rand(50, 4) - 1)).requires_grad_()
    width = torch.logspace(-7, 3, 50).unsqueeze(1).expand(50, 4)
    shares = flow().transform.log_shares(Cells.of(middle, width, width))
    assert shares.isfinite().all()
    grads = torch.autograd.grad(shares.mean(), [middle, *flow.parameters()])
    assert all(grad.isfinite().all() for grad in grads)


def test_transforms_of_torch_see_the_same_derivatives():
    flow, _ = build()
    cells = draw_cells(1)

    def total(middle):
        return flow().transform.log_shares(cells._replace(middle=middle)).sum()

    found = torch.func.grad(total)(cells.middle)
    middle = cells.middle.clone().requires_grad_()
    torch.testing.assert_close(found, torch.autograd.grad(total(middle), middle)[0])
