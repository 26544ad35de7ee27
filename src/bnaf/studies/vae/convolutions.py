r"""Convolutions of 5 x 5 pixels that keep the size of images, by the kernels where these serve.

They take 64 products for 16 outputs where the plain way takes 400 (Winograd's minimal filtering);
what they round differs, by about 1e-5 of the largest number. They have first derivatives alone: a
second one raises. Python transforms the weights, by the matrix G with rows

.. math:: s_k \, (1, p_k, p_k^2, p_k^3, p_k^4)

for the points :math:`p_k` = 0, 1, -1, 2, -2, 1/2, -1/2, and (0, 0, 0, 0, 1) for infinity: what the
products at these points multiply is :math:`G w G^\top`.
"""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from bnaf.block import kernels

KERNEL, PADDING = 5, 2
VECTOR = 8  # channels that the kernels take at once
POINTS = (0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5)
SCALES = (1.0, -2 / 9, -2 / 9, 1 / 90, 1 / 90, 32 / 45, 32 / 45)

Images = Float[Tensor, "_ _ _ _"]  # rows, channels, height and width
Weights = Float[Tensor, "outputs inputs 5 5"]


class SameConv2d(nn.Conv2d):
    """Convolution of 5 x 5 pixels that keeps the size of images.

    Args:
        inputs: Channels it sees.
        outputs: Channels it makes.
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, KERNEL, 1, PADDING)

    def forward(self, input: Images) -> Images:
        assert self.bias is not None
        return convolve(input, self.weight, self.bias)


def convolve(x: Images, weight: Weights, bias: Float[Tensor, " outputs"]) -> Images:
    """Return images of the same size, their pixels beyond the edge being zero."""
    if not (kernels.serve(x, weight, bias) and _fit(x, weight, bias)):
        return F.conv2d(x, weight, bias, padding=PADDING)
    y: Tensor = _Convolution.apply(x.permute(0, 2, 3, 1), _at_points(weight), bias)  # type: ignore[no-untyped-call]
    return y.permute(0, 3, 1, 2)


def _fit(x: Tensor, weight: Weights, bias: Tensor) -> bool:
    """Tell whether the kernels take images and weights as they are."""
    single = weight.dtype == x.dtype == bias.dtype == torch.float32
    vectors = weight.shape[0] % VECTOR == weight.shape[1] % VECTOR == 0
    rounded = torch.is_autocast_enabled("cpu")
    return single and vectors and not rounded and x.numel() > 0


def _at_points(weight: Weights) -> Float[Tensor, "64 inputs outputs"]:
    """Return weights at all pairs of points."""
    outputs, inputs = weight.shape[:2]
    points = torch.tensor(POINTS, dtype=torch.float64).unsqueeze(1)
    rows = torch.tensor(SCALES, dtype=torch.float64).unsqueeze(1) * points ** torch.arange(KERNEL)
    infinity = torch.eye(KERNEL, dtype=torch.float64)[-1:]
    matrix = torch.cat([rows, infinity]).to(weight)
    found = torch.kron(matrix, matrix) @ weight.permute(2, 3, 1, 0).reshape(KERNEL**2, -1)
    return found.view(-1, inputs, outputs)


class _Convolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        x = x.contiguous()
        ctx.save_for_backward(x, weight)
        y: Tensor = torch.ops.bnaf.convolve.default(x, weight, bias.contiguous())
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        grad = grad.contiguous()
        of_x, of_weight = torch.ops.bnaf.convolve_backward.default(x, weight, grad)
        return of_x, of_weight, grad.sum((0, 1, 2))
