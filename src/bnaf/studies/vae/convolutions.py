r"""Convolutions of 5 x 5 pixels, by the kernels where these serve.

They take 64 products for 16 outputs where the plain way takes 400 (Winograd's minimal filtering),
and 144 with a stride of 2; what they round differs, by about 1e-5 of the largest number. They have
first derivatives alone: a second one raises. Python transforms the weights, by the matrix G with
rows

.. math:: s_k \, (1, p_k, p_k^2, \ldots)

for points :math:`p_k`, and (0, ..., 0, 1) for infinity: what the products at these points multiply
is :math:`G w G^\top`. With a stride of 2 images are taken for ones of half the height and width,
whose pixels have four times the channels: w is 3 x 3 of these, with zeros in a sixth line and
column.
"""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from bnaf.block import kernels

KERNEL, PADDING = 5, 2
VECTOR = 8  # channels that the kernels take at once

Images = Float[Tensor, "_ _ _ _"]  # rows, channels, height and width
Weights = Float[Tensor, "_ _ 5 5"]  # channels of the smaller images, of the larger ones


class Points(NamedTuple):
    """Where the products of a minimal filter are taken, beside infinity, and their scales."""

    points: tuple[float, ...]
    scales: tuple[float, ...]


POINTS = {  # by stride
    1: Points(
        (0, 1, -1, 2, -2, 1 / 2, -1 / 2), (1, -2 / 9, -2 / 9, 1 / 90, 1 / 90, 32 / 45, 32 / 45)
    ),
    2: Points((0, 1, -1, 2, -2), (1 / 4, -1 / 6, -1 / 6, 1 / 24, 1 / 24)),
}


class Conv5(nn.Conv2d):
    """Convolution of 5 x 5 pixels.

    Args:
        inputs: Channels it sees.
        outputs: Channels it makes.
        stride: What it shrinks images by.
    """

    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__(inputs, outputs, KERNEL, stride, PADDING)

    def forward(self, input: Images) -> Images:
        assert self.bias is not None
        return convolve(input, self.weight, self.bias, self.stride[0])


class TransposedConv5(nn.ConvTranspose2d):
    """Transposed convolution of 5 x 5 pixels.

    Args:
        inputs: Channels it sees.
        outputs: Channels it makes.
        stride: What it grows images by.
    """

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__(inputs, outputs, KERNEL, stride, PADDING, stride - 1)

    def forward(self, input: Images) -> Images:  # type: ignore[override]
        assert self.bias is not None
        return convolve_transposed(input, self.weight, self.bias, self.stride[0])


def convolve(x: Images, weight: Weights, bias: Float[Tensor, " _"], stride: int = 1) -> Images:
    """Return images a stride smaller; pixels beyond the edge are zero."""
    divided = x.shape[-2] % stride == x.shape[-1] % stride == 0
    if not (divided and _fit(x, weight, bias, stride)):
        return F.conv2d(x, weight, bias, stride, PADDING)
    return _by_kernels(x, weight, bias, stride, transposed=False)


def convolve_transposed(
    x: Images, weight: Weights, bias: Float[Tensor, " _"], stride: int
) -> Images:
    """Return images a stride larger: the transpose of the linear map that :func:`convolve` is."""
    if not _fit(x, weight, bias, stride):
        return F.conv_transpose2d(x, weight, bias, stride, PADDING, stride - 1)
    return _by_kernels(x, weight, bias, stride, transposed=True)


def _fit(x: Tensor, weight: Weights, bias: Tensor, stride: int) -> bool:
    """Tell whether the kernels take images and weights as they are."""
    single = weight.dtype == x.dtype == bias.dtype == torch.float32
    vectors = weight.shape[0] % VECTOR == weight.shape[1] % VECTOR == 0
    rounded = torch.is_autocast_enabled("cpu")
    known = stride in POINTS and single and vectors and not rounded and x.numel() > 0
    return known and kernels.serve(x, weight, bias)


def _by_kernels(
    x: Images, weight: Weights, bias: Tensor, stride: int, *, transposed: bool
) -> Images:
    points = _at_points(weight, stride)
    y: Tensor = _Convolution.apply(x.permute(0, 2, 3, 1), points, bias, stride, transposed)  # type: ignore[no-untyped-call]
    return y.permute(0, 3, 1, 2)


def _at_points(weight: Weights, stride: int) -> Float[Tensor, "points larger smaller"]:
    """Return weights at all pairs of points, by the channels of the images as they are taken."""
    smaller, larger = weight.shape[:2]
    size = -(-KERNEL // stride)
    spare = size * stride - KERNEL
    padded = F.pad(weight, (0, spare, 0, spare)).view(smaller, larger, size, stride, size, stride)
    taken = padded.permute(2, 4, 3, 5, 1, 0).reshape(size**2, -1)
    points, scales = (torch.tensor(row, dtype=torch.float64) for row in POINTS[stride])
    rows = scales.unsqueeze(1) * points.unsqueeze(1) ** torch.arange(size)
    matrix = torch.cat([rows, torch.eye(size, dtype=torch.float64)[-1:]]).to(weight)
    found = torch.kron(matrix, matrix) @ taken
    return found.view(-1, stride**2 * larger, smaller)


class _Convolution(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, stride: int, transposed: bool
    ) -> Tensor:
        ops = torch.ops.bnaf
        x = x.contiguous()
        ctx.save_for_backward(x, weight)
        ctx.stride, ctx.transposed = stride, transposed
        forward = (ops.convolve_transposed if transposed else ops.convolve).default
        y: Tensor = forward(x, weight, bias.contiguous(), stride)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        ops = torch.ops.bnaf
        x, weight = ctx.saved_tensors
        grad = grad.contiguous()
        back = ops.convolve_transposed_backward if ctx.transposed else ops.convolve_backward
        of_x, of_weight = back.default(x, weight, grad, ctx.stride)
        return of_x, of_weight, grad.sum((0, 1, 2)), None, None
