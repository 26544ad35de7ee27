"""The compiled kernels compute what plain torch does, and never more than they were given."""

import subprocess
import sys
import threading

import pytest
import torch
from cases import randomise

from bnaf import BNAF, ShapeError
from bnaf.block import kernels

pytestmark = pytest.mark.skipif(
    not kernels.available(),
    reason="the kernels are not compiled: python -m bnaf.block.kernels says why",
)
LARGE = {"transforms": 2, "width": 220}  # more weights than are trained in parts


CONTEXTS = ["biases", "amortised"]
BATCHES = {  # of rows, and of their contexts
    "its own": ((401,), (401,)),
    "one for all": ((401,), (1,)),
    "one without batch": ((401,), ()),
    "many rows each": ((3, 67), (67,)),
    "some rows each": ((3, 67), (3, 1)),
    "one row for all": ((1,), (67,)),
}


def results(flow, x, context=None):
    """Values, log-determinants and the gradients of everything."""
    x = x.clone().requires_grad_()
    given = [] if context is None else [context.clone().requires_grad_()]
    y, log_det = flow(*given).transform.call_and_ladj(x)
    scale = torch.linspace(1, 2, log_det.numel(), dtype=x.dtype).view_as(log_det)
    loss = (scale * log_det).mean() + (scale.unsqueeze(-1) * y.sin()).mean()
    grads = torch.autograd.grad(loss, [x, *given, *flow.parameters()])
    return [y.detach(), log_det.detach(), *grads]


def conditional(context, batches, **settings):
    """A conditional flow with parameters of order one, rows and contexts."""
    flow = BNAF(3, 2, context=context, **{"width": 5, **settings}).double()
    randomise(flow, 0.5)
    rows, contexts = BATCHES[batches]
    x = torch.randn(*rows, 3, dtype=torch.float64)
    return flow, x, torch.randn(*contexts, 2, dtype=torch.float64)


def assert_same(ours, plain, tolerance=1e-9):
    for one, other in zip(ours, plain, strict=True):
        assert (one - other).norm() <= tolerance * other.norm().clamp(min=1e-3)


@pytest.mark.parametrize("rows", [1, 63, 64, 401, 1000])
@pytest.mark.parametrize("settings", [{}, {"activation": "tanh"}, LARGE], ids=repr)
def test_training_is_that_of_plain_torch(rows, settings):
    flow = BNAF(3, **settings).double()
    randomise(flow, 0.5)
    x = torch.randn(rows, 3, dtype=torch.float64)
    ours = results(flow, x)
    with kernels.disabled():
        plain = results(flow, x)
    assert_same(ours, plain)


SHAPES = [
    {},
    {"activation": "tanh"},
    {"activation": "leaky_relu", "permutation": "random"},
    {"hidden_layers": 0},
    {"hidden_layers": 3, "width": (2, 5, 3), "residual": "normal"},
    LARGE,
]


@pytest.mark.parametrize("settings", SHAPES, ids=repr)
@pytest.mark.parametrize("context", CONTEXTS)
def test_training_with_contexts_is_that_of_plain_torch(context, settings):
    flow, x, given = conditional(context, "its own", **settings)
    ours = results(flow, x, given)
    with kernels.disabled():
        assert_same(ours, results(flow, x, given))


@pytest.mark.parametrize("batches", BATCHES)
@pytest.mark.parametrize("context", CONTEXTS)
def test_rows_may_share_contexts_in_any_way(context, batches):
    flow, x, given = conditional(context, batches)
    ours = results(flow, x, given)
    with kernels.disabled():
        assert_same(ours, results(flow, x, given))


def unwatched(flow, x, context):
    """Values, log-determinants and pre-images where no gradient is kept."""
    with torch.no_grad():
        transform = flow(context).transform
        y, log_det = transform.call_and_ladj(x)
        return [y, log_det, transform.inv(y)]


@pytest.mark.parametrize("settings", SHAPES[:-1], ids=repr)
@pytest.mark.parametrize("batches", BATCHES)
@pytest.mark.parametrize("context", CONTEXTS)
def test_scores_and_pre_images_with_contexts_are_those_of_plain_torch(context, batches, settings):
    flow, x, given = conditional(context, batches, **settings)
    ours = unwatched(flow, x, given)
    with kernels.disabled():
        plain = unwatched(flow, x, given)
    assert_same(ours, plain, 1e-8)
    x = x.expand_as(ours[0])
    assert (ours[2] - x).norm() <= 1e-6 * x.norm()


@pytest.mark.parametrize("batches", BATCHES)
@pytest.mark.parametrize("context", CONTEXTS)
def test_gradients_of_samples_with_contexts_are_those_of_plain_torch(context, batches):
    flow, z, given = conditional(context, batches)

    def gradients():
        leaf = given.clone().requires_grad_()
        x = flow(leaf).transform.inv(z)
        return torch.autograd.grad(x.sin().sum(), [leaf, *flow.parameters()])

    ours = gradients()
    with kernels.disabled():
        assert_same(ours, gradients(), 1e-7)


@pytest.mark.parametrize("check", [torch.autograd.gradcheck, torch.autograd.gradgradcheck])
@pytest.mark.parametrize("context", CONTEXTS)
def test_every_gradient_with_contexts_passes_gradcheck(context, check):
    flow, x, given = conditional(context, "its own", transforms=2, width=3, context_width=4)
    names = [name for name, _ in flow.named_parameters()]

    def evaluate(x, given, *weights):
        state = dict(zip(names, weights, strict=True))
        law = torch.func.functional_call(flow, state, (given,))
        return law.transform.call_and_ladj(x)

    inputs = [x[:3], given[:3], *(weight.detach() for weight in flow.parameters())]
    inputs = [tensor.clone().requires_grad_() for tensor in inputs]
    assert check(evaluate, inputs, fast_mode=True)


@pytest.mark.parametrize("context", CONTEXTS)
def test_stacks_in_parts_take_contexts(context):
    flow, _, _ = conditional(context, "its own", **LARGE)
    x, given = (torch.randn(1000, columns, dtype=torch.float64) for columns in (3, 2))
    ours = results(flow, x, given)
    with kernels.disabled():
        assert_same(ours, results(flow, x, given))


@pytest.mark.parametrize("batches", BATCHES)
@pytest.mark.parametrize("context", CONTEXTS)
def test_float32_agrees_with_float64_given_contexts(context, batches):
    flow, x, given = conditional(context, batches)
    exact = results(flow, x, given)
    rough = results(flow.float(), x.float(), given.float())
    assert_same([one.double() for one in rough], exact, 1e-3)


@pytest.mark.parametrize("settings", [{}, {"activation": "tanh"}, LARGE], ids=repr)
def test_float32_agrees_with_float64(settings):
    flow = BNAF(3, **settings)
    x = torch.randn(300, 3)
    rough = results(flow, x)
    exact = results(flow.double(), x.double())
    for one, other in zip(rough, exact, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-3, atol=1e-3)


def test_buffers_of_another_layout_are_not_mixed_up():
    x = torch.randn(50, 21, dtype=torch.float64)
    for _ in range(2):
        for width in ([40, 20], [20, 40]):  # as many weights, elsewhere
            flow = BNAF(21, transforms=1, width=width).double()
            randomise(flow, 0.5)
            ours = flow().log_prob(x)
            with kernels.disabled():
                torch.testing.assert_close(ours, flow().log_prob(x))
            ours.sum().backward()


def test_scores_do_not_depend_on_how_many_rows_come_at_once():
    law = BNAF(3).double()()
    x = torch.randn(1000, 3, dtype=torch.float64)
    with torch.no_grad():
        one_by_one = torch.stack([law.log_prob(row) for row in x[:20]])
        torch.testing.assert_close(law.log_prob(x)[:20], one_by_one)


def test_gradients_reach_rows_that_are_not_contiguous():
    flow = BNAF(3).double()
    wide = torch.randn(5, 6, dtype=torch.float64)
    x = wide[:, ::2].requires_grad_()
    (first,) = torch.autograd.grad(flow().log_prob(x).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    whole = x.detach().contiguous().requires_grad_()
    (again,) = torch.autograd.grad(flow().log_prob(whole).sum(), whole, create_graph=True)
    torch.testing.assert_close(second, torch.autograd.grad(again.sum(), whole)[0])


def test_a_frozen_piecewise_linear_flow_has_second_derivatives():
    law = BNAF(2, activation="leaky_relu").double().requires_grad_(False)()
    x = torch.randn(2, dtype=torch.float64)
    found = torch.autograd.functional.hessian(law.log_prob, x)
    torch.testing.assert_close(found, torch.func.hessian(law.log_prob)(x))


def test_jacobians_may_be_computed_in_batches():
    transform = BNAF(3).double()().transform
    x = torch.randn(3, dtype=torch.float64)
    slow = torch.autograd.functional.jacobian(transform, x)
    fast = torch.autograd.functional.jacobian(transform, x, vectorize=True)
    torch.testing.assert_close(fast, slow)


@pytest.mark.parametrize("call", ["__call__", "inv"])
@pytest.mark.parametrize("columns", [2, 7])
def test_rows_of_the_wrong_width_never_reach_the_kernels(call, columns):
    transform = BNAF(6)().transform
    function = transform if call == "__call__" else transform.inv
    with pytest.raises(ShapeError, match=f"expects 6 features .* got shape \\(5, {columns}\\)"):
        function(torch.zeros(5, columns))


def stack_arguments(dtype=torch.float64, context=None):
    """Return arguments of the kernels of a stack of three networks, and rows for it."""
    settings = {} if context is None else {"context": context, "context_features": 2}
    flow = BNAF(4, transforms=3, width=5, hidden_layers=2, **settings).to(dtype)
    given = [] if context is None else [torch.randn(6, 2, dtype=dtype)]
    with torch.no_grad():
        networks = flow(*given).transform.networks
    weights, gates, contexts = networks.numbers
    parts = [*(part.detach() for part in weights), gates.detach(), networks.orders.clone()]
    if contexts is not None:
        empty = torch.empty(0, dtype=dtype)
        given = [empty if part is None else part.contiguous() for part in contexts]
        given.append(torch.empty(0, dtype=torch.long))
    return torch.randn(6, 4, dtype=dtype), parts, list(networks.blocks), [2, 2, 2], 1, 0.01, given


def change_order(entry):
    def change(rows, parts, *rest):
        parts[5][1, 2] = entry
        return rows, parts, *rest

    return change


def replace_part(index, function):
    def change(rows, parts, *rest):
        parts[index] = function(parts[index])
        return rows, parts, *rest

    return change


WRONG_ARGUMENTS = {
    "rows of too few columns": lambda x, *rest: (x[:, :3].contiguous(), *rest),
    "rows that are not contiguous": lambda x, *rest: (x.t().contiguous().t(), *rest),
    "rows of another type": lambda x, *rest: (x.float(), *rest),
    "whole rows": lambda x, *rest: (x.long(), *rest),
    "rows without batch": lambda x, *rest: (x[0], *rest),
    "no rows": lambda x, *rest: (x[:0], *rest),
    "a part too few": lambda x, parts, *rest: (x, parts[:5], *rest),
    "matrices too small": replace_part(0, lambda part: part[:, :-1].contiguous()),
    "matrices of fewer networks": replace_part(0, lambda part: part[:2]),
    "biases too small": replace_part(1, lambda part: part[:, 1:].contiguous()),
    "averages too small": replace_part(2, lambda part: part[:, 1:].contiguous()),
    "matrices of another type": replace_part(0, torch.Tensor.float),
    "slopes of more features": replace_part(3, lambda part: part.repeat(1, 2)),
    "slopes without batch": replace_part(3, lambda part: part[0]),
    "gates too few": replace_part(4, lambda part: part[:2]),
    "gates of another shape": replace_part(4, lambda part: part.unsqueeze(1)),
    "orders of another type": replace_part(5, torch.Tensor.int),
    "orders too few": replace_part(5, lambda part: part[:1]),
    "an order below": change_order(-1),
    "an order beyond": change_order(4),
    "an order far beyond": change_order(2**61),
    "an order twice": change_order(3),
    "blocks of other sizes": lambda x, parts, blocks, *rest: (x, parts, [1, 5, 4, 1], *rest),
    "a block of nothing": lambda x, parts, blocks, *rest: (x, parts, [1, 0, 5, 1], *rest),
    "a huge block": lambda x, parts, blocks, *rest: (x, parts, [1, 2**40, 5, 1], *rest),
    "a negative block": lambda x, parts, blocks, *rest: (x, parts, [1, -5, 5, 1], *rest),
    "no blocks": lambda x, parts, blocks, *rest: (x, parts, [], *rest),
    "blocks that begin wide": lambda x, parts, blocks, *rest: (x, parts, [5, 5, 1], *rest),
    "residuals too few": lambda x, parts, blocks, kinds, *rest: (x, parts, blocks, [2], *rest),
    "a residual unheard of": lambda x, parts, blocks, kinds, *rest: (
        *(x, parts, blocks, [2, 2, 3]),
        *rest,
    ),
    "an activation unheard of": lambda *all_but: (*all_but[:4], 3, 0.01, []),
    "a leak without end": lambda *all_but: (*all_but[:5], float("nan"), []),
}


@pytest.mark.parametrize("name", WRONG_ARGUMENTS)
def test_kernels_refuse_whatever_does_not_fit_together(name):
    arguments = WRONG_ARGUMENTS[name](*stack_arguments())
    for keep in (False, True):
        with pytest.raises(ValueError, match="bnaf kernels"):
            torch.ops.bnaf.forward.default(*arguments, keep)
    with pytest.raises(ValueError, match="bnaf kernels"):
        torch.ops.bnaf.inverse.default(*arguments)
    grads = arguments[0], torch.zeros(6, dtype=torch.float64)
    with pytest.raises(ValueError, match="bnaf kernels"):
        torch.ops.bnaf.backward.default([], *arguments[1:], *grads)


def replace_context(index, function):
    def change(contexts):
        contexts[index] = function(contexts[index])
        return contexts

    return change


WRONG_CONTEXTS = {
    "a tensor too few": lambda contexts: contexts[:3],
    "biases of fewer contexts": replace_context(0, lambda part: part[..., 1:].contiguous()),
    "biases of fewer units": replace_context(0, lambda part: part[:, 1:].contiguous()),
    "biases of fewer networks": replace_context(0, lambda part: part[1:]),
    "biases of another type": replace_context(0, torch.Tensor.float),
    "biases not contiguous": replace_context(0, lambda part: part.mT.contiguous().mT),
    "no biases": replace_context(0, lambda part: part[..., :0]),
    "row scales alone": replace_context(2, lambda part: part[..., :0]),
    "column scales alone": replace_context(1, lambda part: part[..., :0]),
    "column scales of fewer units": replace_context(2, lambda part: part[:, 1:].contiguous()),
    "an index too short": replace_context(3, lambda part: torch.zeros(5, dtype=torch.long)),
    "an index of another type": replace_context(3, lambda part: torch.zeros(6)),
    "an index below": replace_context(3, lambda part: torch.full((6,), -1)),
    "an index beyond": replace_context(3, lambda part: torch.full((6,), 6)),
}


@pytest.mark.parametrize("name", WRONG_CONTEXTS)
def test_kernels_refuse_contexts_that_do_not_fit(name):
    x, *arguments, contexts = stack_arguments(context="amortised")
    y, log_det, kept = torch.ops.bnaf.forward.default(x, *arguments, contexts, True)
    contexts = WRONG_CONTEXTS[name](list(contexts))
    for keep in (False, True):
        with pytest.raises(ValueError, match="bnaf kernels"):
            torch.ops.bnaf.forward.default(x, *arguments, contexts, keep)
    with pytest.raises(ValueError, match="bnaf kernels"):
        torch.ops.bnaf.inverse.default(x, *arguments, contexts)
    with pytest.raises(ValueError, match="bnaf kernels"):
        torch.ops.bnaf.backward.default(kept, *arguments, contexts, y, log_det)


def test_the_gradient_refuses_what_no_forward_pass_kept():
    x, *arguments = stack_arguments()
    y, log_det, kept = torch.ops.bnaf.forward.default(x, *arguments, True)
    assert len(torch.ops.bnaf.backward.default(kept, *arguments, y, log_det)) == 6
    fewer = [part[..., :-1].contiguous() for part in kept]
    for wrong in ([], kept[:-1], kept * 2, fewer, [part.float() for part in kept]):
        with pytest.raises(ValueError, match="bnaf kernels"):
            torch.ops.bnaf.backward.default(wrong, *arguments, y, log_det)
    with pytest.raises(ValueError, match="bnaf kernels"):
        torch.ops.bnaf.backward.default(kept, *arguments, y, log_det[:-1])


def test_normalisation_refuses_whatever_does_not_fit_together():
    networks = BNAF(4, width=5).double().networks
    weight, gain, blocks = networks.weight.detach(), networks.log_gain.detach(), networks.blocks
    results = torch.ops.bnaf.normalise.default(weight, gain, blocks, 4)
    grads = [results[0], results[1], results[3]]
    torch.ops.bnaf.normalise_backward.default(weight, gain, blocks, 4, results, grads)
    wrong = [
        (weight[:, 1:].contiguous(), gain, blocks, 4),
        (weight, gain[:, 1:].contiguous(), blocks, 4),
        (weight, gain[:1], blocks, 4),
        (weight, gain.float(), blocks, 4),
        (weight[0], gain[0], blocks, 4),
        (weight, gain, blocks, 5),
        (weight, gain, blocks, -4),
        (weight, gain, blocks, 2**40),
        (weight, gain, [1, 5, 1], 4),
        (weight, gain, [], 4),
    ]
    for arguments in wrong:
        with pytest.raises(ValueError, match="bnaf kernels"):
            torch.ops.bnaf.normalise.default(*arguments)
        with pytest.raises(ValueError, match="bnaf kernels"):
            torch.ops.bnaf.normalise_backward.default(*arguments, results, grads)
    for others in ((results[:3], grads), (results, grads[:2]), (results[::-1], grads)):
        with pytest.raises(ValueError, match="bnaf kernels"):
            torch.ops.bnaf.normalise_backward.default(weight, gain, blocks, 4, *others)


def test_a_lesser_processor_has_a_library_of_its_own(monkeypatch):
    monkeypatch.delenv("BNAF_MARCH", raising=False)
    paths = [kernels.library_path()]
    for march in ("x86-64-v2", "x86-64-v3"):
        monkeypatch.setenv("BNAF_MARCH", march)
        paths.append(kernels.library_path())
    assert len(set(paths)) == 3


def test_a_machine_without_compiler_is_told(tmp_path):
    code = "import bnaf.block.kernels as n\ntry: n.build()\nexcept n.BuildError as e: print(e)"
    environment = {"PATH": "", "BNAF_CACHE": str(tmp_path), "HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert "need a C++ compiler" in done.stdout
    assert not list(tmp_path.glob("kernels*"))


def test_kernels_are_left_unused_in_one_thread_alone():
    inside, leave = threading.Event(), threading.Event()
    found = []

    def work():
        with kernels.disabled():
            inside.set()
            leave.wait()
            found.append(kernels.serve(torch.ones(1)))
        found.append(kernels.serve(torch.ones(1)))

    thread = threading.Thread(target=work)
    thread.start()
    inside.wait()
    with kernels.disabled():  # ends after the other has begun, and before it ends
        found.append(kernels.serve(torch.ones(1)))
    found.append(kernels.serve(torch.ones(1)))
    leave.set()
    thread.join()
    assert found == [False, True, False, True]
