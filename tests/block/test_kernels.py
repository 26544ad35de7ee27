"""The compiled kernels compute what plain torch does, and never more than they were given."""

import subprocess
import sys

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


def results(flow, x):
    """Values, log-determinants and the gradients of everything."""
    x = x.clone().requires_grad_()
    y, log_det = flow().transform.call_and_ladj(x)
    scale = torch.linspace(1, 2, len(x), dtype=x.dtype)
    loss = (scale * log_det).mean() + (scale.unsqueeze(1) * y.sin()).mean()
    grads = torch.autograd.grad(loss, [x, *flow.parameters()])
    return [y.detach(), log_det.detach(), *grads]


@pytest.mark.parametrize("rows", [1, 63, 64, 401, 1000])
@pytest.mark.parametrize("settings", [{}, {"activation": "tanh"}, LARGE], ids=repr)
def test_training_is_that_of_plain_torch(rows, settings):
    flow = BNAF(3, **settings).double()
    randomise(flow, 0.5)
    x = torch.randn(rows, 3, dtype=torch.float64)
    ours = results(flow, x)
    with kernels.disabled():
        plain = results(flow, x)
    for one, other in zip(ours, plain, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-10)


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


def test_a_machine_without_compiler_is_told(tmp_path):
    code = "import bnaf.block.kernels as n\ntry: n.build()\nexcept n.BuildError as e: print(e)"
    environment = {"PATH": "", "BNAF_CACHE": str(tmp_path), "HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert "need a C++ compiler" in done.stdout
    assert not list(tmp_path.glob("kernels*"))
