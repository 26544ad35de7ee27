"""Gates of images, by the kernels where these serve: torch is slow where channels come last."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from bnaf.block import kernels
from bnaf.studies.vae.convolutions import Images


def gate(both: Images) -> Images:
    r"""Return the first half of the channels, each times the sigmoid of one of the other half.

    .. math:: a \odot \sigma(b)

    Kernels compute images whose channels come last; they have first derivatives alone.
    """
    last = both.is_contiguous(memory_format=torch.channels_last)
    if not (last and both.dtype == torch.float32 and both.numel() and kernels.serve(both)):
        return F.glu(both, 1)
    rows, channels, height, width = both.shape
    gated: Tensor = _Gate.apply(both.permute(0, 2, 3, 1).reshape(-1, channels))  # type: ignore[no-untyped-call]
    return gated.view(rows, height, width, -1).permute(0, 3, 1, 2)


class _Gate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, both: Tensor) -> Tensor:
        both = both.contiguous()
        ctx.save_for_backward(both)
        gated: Tensor = torch.ops.bnaf.gate.default(both)
        return gated

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (both,) = ctx.saved_tensors
        of_both: Tensor = torch.ops.bnaf.gate_backward.default(both, grad.contiguous())
        return of_both
