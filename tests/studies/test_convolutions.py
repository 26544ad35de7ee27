"""Convolutions and gates by the kernels: the numbers of torch's own."""

import pytest
import torch
import torch.nn.functional as F

from bnaf.block import kernels
from bnaf.studies.vae.convolutions import Conv5, TransposedConv5, convolve, convolve_transposed
from bnaf.studies.vae.gates import gate

needs_kernels = pytest.mark.skipif(not kernels.available(), reason="kernels are not compiled")
SHAPES = [
    (3, 8, 16, 28, 20),
    (17, 16, 8, 7, 7),
    (1, 8, 8, 1, 1),
    (5, 24, 40, 9, 14),
    (50, 8, 8, 4, 3),
    (50, 8, 16, 2, 6),
]


def draw(images, inputs, outputs, height, width, transposed=False):
    x = torch.randn(images, inputs, height, width)
    channels = (inputs, outputs) if transposed else (outputs, inputs)
    weight, bias = torch.randn(*channels, 5, 5), torch.randn(outputs)
    return x.requires_grad_(), weight.requires_grad_(), bias.requires_grad_()


def is_close(found, expected):
    return (found - expected).abs().max() <= 1e-4 * expected.abs().max()


def assert_agree(found, expected, leaves):
    """Compare values, and gradients with respect to leaves."""
    assert found.shape == expected.shape
    assert is_close(found, expected)
    grad = torch.randn_like(expected)
    of_expected = torch.autograd.grad(expected, leaves, grad)
    of_found = torch.autograd.grad(found, leaves, grad.float())
    assert all(map(is_close, of_found, of_expected))


def by_kernels(y):
    """Tell whether one of our functions is what made a tensor, but for views of it."""
    node = y.grad_fn
    while node.name().startswith(("Permute", "View")):
        node = node.next_functions[0][0]
    return node.name() in ("_ConvolutionBackward", "_GateBackward")


@pytest.fixture(params=[1, 3])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield
    torch.set_num_threads(before)


@needs_kernels
@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_convolutions_are_those_of_torch(shape, stride, layout):
    *channels, height, width = shape
    leaves = draw(*channels, height * stride, width * stride)
    found = convolve(leaves[0].contiguous(memory_format=layout), *leaves[1:], stride)
    assert by_kernels(found)
    expected = F.conv2d(*(leaf.double() for leaf in leaves), stride, padding=2)
    assert_agree(found, expected, leaves)


@needs_kernels
@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_transposed_convolutions_are_those_of_torch(shape, stride, layout):
    leaves = draw(*shape, transposed=True)
    found = convolve_transposed(leaves[0].contiguous(memory_format=layout), *leaves[1:], stride)
    assert by_kernels(found)
    parts = (leaf.double() for leaf in leaves)
    assert_agree(found, F.conv_transpose2d(*parts, stride, 2, stride - 1), leaves)


@needs_kernels
@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("shape", [(3, 2, 5, 4), (1, 6, 1, 1), (9, 34, 20, 28)], ids=str)
def test_gates_are_those_of_torch(shape):
    both = (30 * torch.randn(shape)).contiguous(memory_format=torch.channels_last)
    both.requires_grad_()
    found = gate(both)
    assert by_kernels(found)
    assert_agree(found, F.glu(both.double(), 1), [both])


@needs_kernels
def test_gates_far_open_and_far_shut_stay_finite():
    both = torch.tensor([[2.0, 2.0, -200.0, 200.0]]).view(1, 4, 1, 1).requires_grad_()
    gated = gate(both)
    assert gated.flatten().tolist() == pytest.approx([0.0, 2.0], abs=1e-30)
    (grad,) = torch.autograd.grad(gated.sum(), both)
    assert grad.flatten().tolist() == pytest.approx([0.0, 1.0, 0.0, 0.0], abs=1e-30)


@needs_kernels
def test_the_kernels_are_what_computes():
    x, weight, bias = draw(3, 8, 16, 9, 9)
    assert by_kernels(convolve(x, weight, bias))
    with kernels.disabled():
        assert not by_kernels(convolve(x, weight, bias))


@needs_kernels
@pytest.mark.parametrize(
    "compute",
    [
        lambda x: convolve(x, torch.ones(8, 8, 5, 5), torch.ones(8)),
        lambda x: convolve_transposed(x, torch.ones(8, 8, 5, 5), torch.ones(8), 2),
        lambda x: gate(x.contiguous(memory_format=torch.channels_last)),
    ],
    ids=["convolve", "convolve_transposed", "gate"],
)
def test_a_second_derivative_raises(compute):
    x = torch.randn(3, 8, 6, 6, requires_grad=True)
    (grad,) = torch.autograd.grad(compute(x).square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        grad.sum().backward()


@pytest.mark.parametrize(
    ("shape", "dtype", "stride"),
    [
        ((3, 8, 7, 5), torch.float64, 1),
        ((3, 1, 7, 5), torch.float32, 1),
        ((0, 8, 7, 5), torch.float32, 1),
        ((3, 8, 7, 6), torch.float32, 2),
        ((3, 8, 6, 7), torch.float32, 2),
        ((3, 8, 9, 9), torch.float32, 3),
    ],
    ids=str,
)
def test_what_kernels_do_not_serve_is_torch_s(shape, dtype, stride):
    layer = Conv5(shape[1], 16, stride).to(dtype)
    x = torch.randn(shape, dtype=dtype)
    assert torch.equal(layer(x), F.conv2d(x, layer.weight, layer.bias, stride, 2))


@pytest.mark.parametrize(
    ("channels", "dtype", "stride"),
    [(8, torch.float64, 2), (1, torch.float32, 2), (8, torch.float32, 3)],
)
def test_what_kernels_do_not_serve_is_torch_s_transposed(channels, dtype, stride):
    layer = TransposedConv5(channels, 16, stride).to(dtype)
    x = torch.randn(3, channels, 4, 5, dtype=dtype)
    parts = x, layer.weight, layer.bias
    assert torch.equal(layer(x), F.conv_transpose2d(*parts, stride, 2, stride - 1))


@pytest.mark.parametrize("layer", [Conv5(8, 16), Conv5(8, 16, 2), TransposedConv5(8, 16, 2)])
def test_mixed_precision_is_torch_s(layer):
    with torch.autocast("cpu", torch.bfloat16):
        assert layer(torch.randn(3, 8, 4, 6)).dtype == torch.bfloat16


def shape_of(wrong):
    return str({name: getattr(part, "shape", part) for name, part in wrong.items()})


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
        {"stride": 2},
        {"stride": 0},
        {"stride": -1},
    ],
    ids=shape_of,
)
def test_the_kernels_refuse_what_does_not_fit_together(wrong):
    parts = {"x": torch.zeros(2, 9, 9, 8), "weight": torch.zeros(64, 8, 16)}
    parts |= {"bias": torch.zeros(16), "grad": torch.zeros(2, 9, 9, 16), "stride": 1} | wrong
    x, weight, bias, grad, stride = parts.values()
    if "grad" not in wrong:
        with pytest.raises(ValueError, match="bnaf kernels"):
            torch.ops.bnaf.convolve(x, weight, bias, stride)
    if "bias" not in wrong:
        with pytest.raises(ValueError, match="bnaf kernels"):
            torch.ops.bnaf.convolve_backward(x, weight, grad, stride)


@needs_kernels
@pytest.mark.parametrize(
    "wrong",
    [
        {"x": torch.zeros(2, 7, 9, 8)},
        {"x": torch.zeros(2, 7, 9)},
        {"weight": torch.zeros(36, 24, 16)},
        {"weight": torch.zeros(64, 32, 16)},
        {"bias": torch.zeros(16)},
        {"grad": torch.zeros(2, 14, 17, 8)},
        {"stride": 1},
    ],
    ids=shape_of,
)
def test_the_kernels_refuse_what_does_not_fit_together_transposed(wrong):
    parts = {"x": torch.zeros(2, 7, 9, 16), "weight": torch.zeros(36, 32, 16)}
    parts |= {"bias": torch.zeros(8), "grad": torch.zeros(2, 14, 18, 8), "stride": 2} | wrong
    x, weight, bias, grad, stride = parts.values()
    if "grad" not in wrong:
        with pytest.raises(ValueError, match="bnaf kernels"):
            torch.ops.bnaf.convolve_transposed(x, weight, bias, stride)
    if "bias" not in wrong:
        with pytest.raises(ValueError, match="bnaf kernels"):
            torch.ops.bnaf.convolve_transposed_backward(x, weight, grad, stride)


@needs_kernels
@pytest.mark.parametrize(
    ("both", "grad"),
    [
        (torch.zeros(3, 5), torch.zeros(3, 2)),
        (torch.zeros(3, 2, 4), torch.zeros(3, 2, 2)),
        (torch.zeros(3, 4, dtype=torch.float64), torch.zeros(3, 2)),
        (torch.zeros(4, 3).T, torch.zeros(3, 2)),
        (torch.zeros(3, 4), torch.zeros(3, 4)),
    ],
)
def test_the_kernels_refuse_gates_that_do_not_fit(both, grad):
    with pytest.raises(ValueError, match="bnaf kernels"):
        torch.ops.bnaf.gate_backward(both, grad)
    if grad.shape != both.shape:
        with pytest.raises(ValueError, match="bnaf kernels"):
            torch.ops.bnaf.gate(both)


def test_gates_of_other_layouts_are_torch_s():
    both = torch.randn(3, 4, 5, 2)
    assert torch.equal(gate(both), F.glu(both, 1))
    assert torch.equal(gate(both.double()), F.glu(both.double(), 1))
