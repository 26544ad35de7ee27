"""The compiled shares of cells are those of plain torch, and the kernels refuse what is wrong."""

import pytest
import torch
from cases import randomise

from bnaf import BNAF
from bnaf.block import kernels
from bnaf.laws.cells import Cells

pytestmark = pytest.mark.skipif(
    not kernels.available(),
    reason="the kernels are not compiled: python -m bnaf.block.kernels says why",
)
SHAPES = [
    {},
    {"activation": "tanh"},
    {"activation": "leaky_relu", "residual": "normal"},
    {"hidden_layers": 0},
    {"hidden_layers": 3, "width": (2, 5, 3), "residual": None},
    {"transforms": 2, "width": 150},  # more weights than are trained in parts
]


def build(context, **settings):
    """A flow in one order of one feature for each kind of column, and 401 contexts."""
    given = 2 if context else 0
    flow = BNAF(4, given, permutation=None, **{"width": 5, **settings}).double()
    randomise(flow, 0.5)
    return flow, [torch.randn(401, 2, dtype=torch.float64)] if given else []


def draw_cells(scale=1.0):
    """A column each of points, intervals, nothing known, and all of these with open ends."""
    middle = torch.randn(401, 4, dtype=torch.float64)
    below, above = scale * torch.rand(2, 401, 4, dtype=torch.float64)
    below[:, 0] = above[:, 0] = 0
    middle[:, 2] = torch.nan
    kind = torch.arange(401) % 6
    middle[kind == 0, 3] = torch.nan
    below[kind == 1, 3], above[kind == 2, 3] = torch.inf, torch.inf
    below[(kind == 3) | (kind == 4), 3], above[(kind == 3) | (kind == 5), 3] = 0, 0
    return Cells.of(middle, below, above)


def results(flow, given, cells):
    """Shares and the gradients of everything."""
    leaves = [part.clone().requires_grad_() for part in (*cells[:3], *given)]
    shares = flow(*leaves[3:]).transform.log_shares(Cells(*leaves[:3], cells.known))
    scale = torch.linspace(1, 2, shares.numel(), dtype=shares.dtype).view_as(shares)
    loss = (scale * shares.clamp(min=-50).sin() + shares).sum()
    parameters = list(flow.parameters())
    grads = torch.autograd.grad(loss, [*leaves, *parameters], allow_unused=True)
    leaves += parameters
    known = zip(grads, leaves, strict=True)
    return [
        shares.detach(),
        *(torch.zeros_like(leaf) if grad is None else grad for grad, leaf in known),
    ]


def assert_same(ours, plain, tolerance=1e-9):
    for one, other in zip(ours, plain, strict=True):
        one, other = one.nan_to_num(), other.nan_to_num()  # open ends have no gradient
        assert (one - other).norm() <= tolerance * other.norm().clamp(min=1e-3)


@pytest.mark.parametrize("settings", SHAPES, ids=repr)
@pytest.mark.parametrize("context", [False, True], ids=["alone", "context"])
def test_shares_and_all_gradients_are_those_of_plain_torch(context, settings):
    flow, given = build(context, **settings)
    cells = draw_cells()
    ours = results(flow, given, cells)
    with torch.no_grad():
        unwatched = flow(*given).transform.log_shares(cells)
    with kernels.disabled():
        assert_same([*ours, unwatched], [*(plain := results(flow, given, cells)), plain[0]])


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e3])
def test_shares_in_float32_are_those_of_plain_torch_in_float64(scale):
    flow, given = build(True)
    cells = draw_cells(scale)
    with kernels.disabled():
        exact = results(flow, given, cells)
    cells = Cells(*(part.float() for part in cells[:3]), cells.known)
    rough = results(flow.float(), [part.float() for part in given], cells)
    assert_same([part.double() for part in rough], exact, 1e-3)


@pytest.mark.parametrize("gain", [3.0, 6.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_units_far_beyond_their_bends_are_those_of_plain_torch(dtype, gain):
    flow, _ = build(False)
    with torch.no_grad():
        flow.networks.log_gain += gain
    flow, cells = flow.to(dtype), draw_cells(10.0)
    cells = Cells(*(part.to(dtype) for part in cells[:3]), cells.known)
    ours = flow().transform.log_shares(cells)
    with kernels.disabled():
        plain = flow().transform.log_shares(cells)
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(ours, plain, rtol=1e4 * eps, atol=1e4 * eps)


def test_second_derivatives_are_those_of_plain_torch():
    flow, _ = build(False, transforms=1)
    cells = draw_cells()

    def second():
        middle = cells.middle[:5].clone().requires_grad_()
        parts = [middle, *(part[:5] for part in cells[1:])]
        shares = flow().transform.log_shares(Cells(*parts))
        (first,) = torch.autograd.grad(shares.sum(), middle, create_graph=True)
        return torch.autograd.grad(first.square().sum(), [middle, flow.networks.weight])

    ours = second()
    with kernels.disabled():
        assert_same(ours, second())


def arguments(context=None):
    """Arguments of the kernels of a stack of two networks: cells, and the rest."""
    settings = {"context": context or "biases", "transforms": 2, "width": 3}
    flow = BNAF(4, 2 if context else 0, permutation=None, **settings).double()
    given = [torch.randn(6, 2, dtype=torch.float64)] if context else []
    with torch.no_grad():
        networks = flow(*given).transform.networks
    weights, gates, contexts = networks.numbers
    none = torch.empty(0, dtype=torch.long)
    parts = [*(part.detach() for part in weights), gates.detach(), none]
    if contexts is not None:
        empty = torch.empty(0, dtype=torch.float64)
        given = [empty if part is None else part.contiguous() for part in contexts]
        given.append(none)
    cells = [*torch.rand(3, 6, 4, dtype=torch.float64), torch.ones(6, 4, dtype=torch.bool)]
    return cells, [parts, list(networks.blocks), [2, 2], 1, 0.01, given]


def replace(index, function):
    def change(cells, rest):
        cells[index] = function(cells[index])
        return cells, rest

    return change


def order(cells, rest):
    rest[0][5] = torch.arange(4).unsqueeze(0)
    return cells, rest


WRONG = {
    "middles of too few columns": replace(0, lambda part: part[:, :3].contiguous()),
    "no rows": lambda cells, rest: ([part[:0] for part in cells], rest),
    "distances of fewer rows": replace(1, lambda part: part[:5]),
    "distances of another type": replace(2, torch.Tensor.float),
    "distances that are not contiguous": replace(1, lambda part: part.t().contiguous().t()),
    "known as numbers": replace(3, torch.Tensor.double),
    "known of fewer rows": replace(3, lambda part: part[:5]),
    "features in another order": order,
    "blocks of other sizes": lambda cells, rest: (cells, [rest[0], [1, 9, 1], *rest[2:]]),
    "scales of contexts": lambda cells, rest: (cells, arguments("amortised")[1]),
}


@pytest.mark.parametrize("name", WRONG)
def test_kernels_refuse_cells_that_do_not_fit(name):
    cells, rest = WRONG[name](*arguments())
    for keep in (False, True):
        with pytest.raises(ValueError, match="bnaf kernels"):
            torch.ops.bnaf.shares.default(*cells, *rest, keep)


def test_the_gradient_refuses_what_no_pass_over_cells_kept():
    cells, rest = arguments("biases")
    shares, kept = torch.ops.bnaf.shares.default(*cells, *rest, True)
    assert len(torch.ops.bnaf.shares_backward.default(kept, *rest, shares)) == 9
    fewer = [part[..., :-1].contiguous() for part in kept]
    single = [part.float() for part in kept]
    for wrong in ([], kept[:-1], kept * 2, kept[::-1], fewer, single):
        with pytest.raises(ValueError, match="bnaf kernels"):
            torch.ops.bnaf.shares_backward.default(wrong, *rest, shares)
    for grad in (shares[:5], shares.float(), shares[0], shares.t()):
        with pytest.raises(ValueError, match="bnaf kernels"):
            torch.ops.bnaf.shares_backward.default(kept, *rest, grad)
