r"""From raw weights to a normalised row band of a block-triangular weight.

With raw weights :math:`V` on the diagonal blocks, gain :math:`e^s` and :math:`q` the sum of
squares of a row below them,

.. math::
    \log c = s - \tfrac12 \log \Bigl( \sum_k e^{2 V_k} + q \Bigr), \qquad
    B = e^{V + \log c}, \qquad A = \operatorname{softmax}(V + r)

are the factor of a row, its diagonal blocks, and the same blocks rescaled by the log-slopes r of
the units below so that each row sums to one.
"""

from functools import partial
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from bnaf.ops import (
    LARGEST_EXPONENT,
    block_diagonal,
    diagonal_blocks,
    differentiable_gradient,
    differentiated_once,
    log_row_norm,
)

Units = Float[Tensor, "transforms features out_block"]
Blocks = Float[Tensor, "transforms features out_block in_block"]
Matrix = Float[Tensor, "transforms rows columns"]


class NormalisedBand(NamedTuple):
    """A row band, ready to multiply."""

    square: Matrix
    """Weights on the features of the band."""
    scale: Float[Tensor, "transforms rows 1"]
    """What multiplies the raw weights on the features before it."""
    averages: Blocks
    log_slope: Units
    """Log-slope of each unit, activations taken as identities."""


def normalise_band(
    near: Matrix,
    raw: Blocks,
    far_squares: Units,
    log_gain: Units,
    log_incoming: Float[Tensor, "transforms features in_block"],
    below: Float[Tensor, "rows columns"],
) -> NormalisedBand:
    """Return the normalised weights of a row band.

    Args:
        near: Raw weights on the features of the band.
        raw: Raw weights on its diagonal blocks.
        far_squares: Sum of squares of each row on the features before the band.
        log_gain: Learned log-gain of each row.
        log_incoming: Log-slope of each unit of the layer below.
        below: Mask of the entries of ``near`` below the diagonal blocks.
    """
    inputs = (near, raw, far_squares, log_gain, log_incoming)
    if differentiated_once(*inputs):
        return NormalisedBand(*_Normalisation.apply(below, *inputs))  # type: ignore[no-untyped-call]
    return _normalise(below, *inputs)


def _normalise(
    below: Tensor,
    near: Tensor,
    raw: Tensor,
    far_squares: Tensor,
    log_gain: Tensor,
    log_incoming: Tensor,
) -> NormalisedBand:
    """Normalise by operations that torch differentiates to any order."""
    near = near * below
    square_sum = near.square().sum(-1).view_as(far_squares) + far_squares
    log_scale = log_gain - log_row_norm(raw, square_sum)
    blocks = (raw + log_scale.unsqueeze(-1)).exp()
    scale = log_scale.clamp(max=LARGEST_EXPONENT).exp().flatten(1).unsqueeze(-1)
    incoming = raw + log_incoming.unsqueeze(-2)
    log_outgoing = incoming.logsumexp(-1)
    averages = (incoming - log_outgoing.unsqueeze(-1)).exp()
    square = near * scale + block_diagonal(blocks)
    return NormalisedBand(square, scale, averages, log_outgoing + log_scale)


class _Normalisation(torch.autograd.Function):
    """The same with its gradient written out, in fewer operations."""

    @staticmethod
    def forward(ctx: Any, below: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
        near, raw, far_squares, log_gain, log_incoming = inputs
        kept = near * below
        square_sum = kept.square().sum(-1).view_as(far_squares).add_(far_squares)
        log_norm = torch.logaddexp((2 * raw).logsumexp(-1), square_sum.log()).mul_(0.5)
        log_scale = log_gain - log_norm
        blocks = (raw + log_scale.unsqueeze(-1)).exp_()
        scale = log_scale.clamp(max=LARGEST_EXPONENT).exp_().flatten(1).unsqueeze(-1)
        incoming = raw + log_incoming.unsqueeze(-2)
        averages = incoming.softmax(-1)
        square = block_diagonal(blocks).addcmul_(kept, scale)
        ctx.save_for_backward(below, *inputs, kept, square_sum, log_norm, scale, averages, blocks)
        return square, scale, averages, incoming.logsumexp(-1).add_(log_scale)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        below, *saved = ctx.saved_tensors
        inputs = saved[:5]
        if torch.is_grad_enabled():
            needed = ctx.needs_input_grad[1:]
            again = partial(_normalise, below)
            return None, *differentiable_gradient(again, inputs, needed, grads)
        raw = inputs[1]
        kept, square_sum, log_norm, scale, averages, blocks = saved[5:]
        grad_square, grad_scale, grad_averages, grad_slope = grads
        through_blocks = diagonal_blocks(grad_square, raw.shape[1]) * blocks
        through_rows = (grad_square * kept).sum(-1, keepdim=True).add_(grad_scale).mul_(scale)
        grad_gain = through_rows.view_as(grad_slope) + through_blocks.sum(-1)
        grad_gain.add_(grad_slope)
        # softmax and its normaliser: A (g - sum A g) + A g_slope
        weighted = averages * grad_averages
        leftover = (grad_slope - weighted.sum(-1)).unsqueeze(-1)
        grad_incoming = weighted.addcmul_(averages, leftover)
        # the norm: d log|w| / dV = exp(2 (V - log|w|)), d log|w| / dq = exp(-2 log|w|) / 2
        shares = ((raw - log_norm.unsqueeze(-1)) * 2).exp_()
        grad_raw = through_blocks.add_(grad_incoming)
        grad_raw.addcmul_(shares, grad_gain.unsqueeze(-1), value=-1)
        inverse_square = (-2 * log_norm).clamp_(max=LARGEST_EXPONENT).exp_()
        grad_squares = torch.where(square_sum > 0, grad_gain * inverse_square, 0.0).mul_(-0.5)
        grad_near = grad_square * scale
        grad_near.addcmul_(kept, grad_squares.view_as(scale), value=2).mul_(below)
        return None, grad_near, grad_raw, grad_squares, grad_gain, grad_incoming.sum(-2)
