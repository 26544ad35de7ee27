"""Convolutions by the kernels: the numbers of torch's own."""

import pytest
import torch
import torch.nn.functional as F

from bnaf.block import kernels
from bnaf.studies.vae.convolutions import SameConv2d, convolve

needs_kernels = pytest.mark.skipif(not kernels.available(), reason="kernels are not compiled")
SHAPES = [
    (3, 8, 16, 28, 20),
    (17, 16, 8, 7, 7),
    (1, 8, 8, 1, 1),
    (5, 24, 40, 9, 14),
    (50, 8, 8, 4, 3),
]


def draw(images, inputs, outputs, height, width):
    x = torch.randn(images, inputs, height, width)
    weight, bias = torch.randn(outputs, inputs, 5, 5), torch.randn(outputs)
    return x.requires_grad_(), weight.requires_grad_(), bias.requires_grad_()


def is_close(found, expected):
    return (found - expected).abs().max() <= 1e-4 * expected.abs().max()


@pytest.fixture(params=[1, 3])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield
    torch.set_num_threads(before)


@needs_kernels
@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_values_and_gradients_are_those_of_torch(shape, layout):
    leaves = draw(*shape)
    x, weight, bias = (part.double() for part in leaves)
    expected = F.conv2d(x, weight, bias, padding=2)
    grad = torch.randn_like(expected)
    found = convolve(leaves[0].contiguous(memory_format=layout), *leaves[1:])
    assert is_close(found, expected)
    of_expected = torch.autograd.grad(expected, leaves, grad)
    of_found = torch.autograd.grad(found, leaves, grad.float())
    assert all(map(is_close, of_found, of_expected))


@needs_kernels
def test_the_kernels_are_what_computes():
    x, weight, bias = draw(3, 8, 16, 9, 9)
    assert "Convolution" in str(convolve(x, weight, bias).grad_fn.next_functions)
    with kernels.disabled():
        assert "Convolution" not in str(convolve(x, weight, bias).grad_fn.next_functions)


@needs_kernels
def test_a_second_derivative_raises():
    x, weight, bias = draw(3, 8, 16, 9, 9)
    (grad,) = torch.autograd.grad(convolve(x, weight, bias).square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        grad.sum().backward()


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        ((3, 8, 7, 5), torch.float64),
        ((3, 1, 7, 5), torch.float32),
        ((0, 8, 7, 5), torch.float32),
    ],
    ids=str,
)
def test_what_kernels_do_not_serve_is_torch_s(shape, dtype):
    layer = SameConv2d(shape[-3], 16).to(dtype)
    x = torch.randn(shape, dtype=dtype)
    assert torch.equal(layer(x), F.conv2d(x, layer.weight, layer.bias, padding=2))


def test_mixed_precision_is_torch_s():
    layer, x = SameConv2d(8, 16), torch.randn(3, 8, 7, 5)
    with torch.autocast("cpu", torch.bfloat16):
        assert layer(x).dtype == torch.bfloat16


@needs_kernels
@pytest.mark.parametrize(
    "wrong",
    [
        {"x": torch.zeros(2, 9, 9)},
        {"x": torch.zeros(0, 9, 9, 8)},
        {"x": torch.zeros(2, 9, 9, 16)},
        {"x": torch.zeros(2, 9, 9, 8, dtype=torch.float64)},
        {"x": torch.zeros(2, 8, 9, 9).permute(0, 2, 3, 1)},
        {"weight": torch.zeros(64, 8, 12)},
        {"weight": torch.zeros(63, 8, 16)},
        {"weight": torch.zeros(36, 16, 16)},
        {"weight": torch.zeros(8, 16)},
        {"bias": torch.zeros(8)},
        {"grad": torch.zeros(2, 9, 8, 16)},
    ],
    ids=lambda wrong: f"{[*wrong]} {[list(part.shape) for part in wrong.values()]}",
)
def test_the_kernels_refuse_what_does_not_fit_together(wrong):
    parts = {"x": torch.zeros(2, 9, 9, 8), "weight": torch.zeros(64, 8, 16)}
    parts |= {"bias": torch.zeros(16), "grad": torch.zeros(2, 9, 9, 16)} | wrong
    x, weight, bias, grad = parts.values()
    if "grad" not in wrong:
        with pytest.raises(ValueError, match="bnaf kernels"):
            torch.ops.bnaf.convolve(x, weight, bias)
    if "bias" not in wrong:
        with pytest.raises(ValueError, match="bnaf kernels"):
            torch.ops.bnaf.convolve_backward(x, weight, grad)
