r"""The diagonal blocks of a block-triangular weight: their norm, and the averages of slopes.

With raw weights :math:`V` on the diagonal blocks, gain :math:`e^s` and :math:`q` the sum of
squares of a row below them,

.. math::
    \log c = s - \tfrac12 \log \Bigl( \sum_k e^{2 V_k} + q \Bigr), \qquad
    B = e^{V + \log c}, \qquad A = \operatorname{softmax}(V + r)

are the factor of a row, its diagonal blocks, and the blocks rescaled by the log-slopes r of the
units below so that each row sums to one.
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from bnaf.ops import LARGEST_EXPONENT, differentiated_once, log_row_norm

Rows = Float[Tensor, "transforms features out_block"]
Blocks = Float[Tensor, "transforms features out_block in_block"]


class NormalisedBlocks(NamedTuple):
    """Diagonal blocks, ready to multiply."""

    log_scale: Rows
    blocks: Blocks
    averages: Blocks
    log_slope: Rows
    """Log-slope of each unit, activations taken as identities."""


def normalise_blocks(
    raw: Blocks,
    square_sum: Rows,
    log_gain: Rows,
    log_incoming: Float[Tensor, "transforms features in_block"],
) -> NormalisedBlocks:
    """Return the normalised blocks of all rows.

    Args:
        raw: Raw weights on the diagonal blocks.
        square_sum: Sum of squares of each row below them.
        log_gain: Learned log-gain of each row.
        log_incoming: Log-slope of each unit of the layer below.
    """
    inputs = (raw, square_sum, log_gain, log_incoming)
    if differentiated_once(*inputs):
        return NormalisedBlocks(*_Normalisation.apply(*inputs))  # type: ignore[no-untyped-call]
    return _normalise(*inputs)


def _normalise(
    raw: Tensor, square_sum: Tensor, log_gain: Tensor, log_incoming: Tensor
) -> NormalisedBlocks:
    log_scale = log_gain - log_row_norm(raw, square_sum)
    blocks = (raw + log_scale.unsqueeze(-1)).exp()
    incoming = raw + log_incoming.unsqueeze(-2)
    log_outgoing = incoming.logsumexp(-1)
    averages = (incoming - log_outgoing.unsqueeze(-1)).exp()
    return NormalisedBlocks(log_scale, blocks, averages, log_outgoing + log_scale)


class _Normalisation(torch.autograd.Function):
    """The same with its gradient written out: a third of the operations."""

    @staticmethod
    def forward(ctx: Any, *inputs: Tensor) -> tuple[Tensor, ...]:
        outputs = _normalise(*inputs)
        ctx.save_for_backward(*inputs, *outputs[:3])
        return tuple(outputs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:
        *inputs, log_scale, blocks, averages = ctx.saved_tensors
        if torch.is_grad_enabled():
            aliases = [tensor.view_as(tensor) for tensor in inputs]
            return torch.autograd.grad(_normalise(*aliases), aliases, grads, create_graph=True)
        raw, square_sum, log_gain, _ = inputs
        grad_scale, grad_blocks, grad_averages, grad_slope = grads
        log_norm = log_gain - log_scale
        through_blocks = grad_blocks * blocks
        grad_gain = grad_scale + grad_slope + through_blocks.sum(-1)
        # softmax and its normaliser: A (g - sum A g) + A g_slope
        weighted = averages * grad_averages
        leftover = (grad_slope - weighted.sum(-1)).unsqueeze(-1)
        grad_incoming = weighted.addcmul_(averages, leftover)
        # the norm: d log|w| / dV = exp(2 (V - log|w|)), d log|w| / dq = exp(-2 log|w|) / 2
        shares = ((raw - log_norm.unsqueeze(-1)) * 2).exp_()
        grad_raw = through_blocks.add_(grad_incoming)
        grad_raw.addcmul_(shares, grad_gain.unsqueeze(-1), value=-1)
        inverse_square = (-2 * log_norm).clamp_(max=LARGEST_EXPONENT).exp_()
        grad_square_sum = torch.where(square_sum > 0, grad_gain * inverse_square, 0.0).mul_(-0.5)
        return grad_raw, grad_square_sum, grad_gain, grad_incoming.sum(-2)
