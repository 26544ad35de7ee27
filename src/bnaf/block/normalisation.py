r"""From raw weights to normalised block-triangular matrices.

With raw weights :math:`V` on the diagonal blocks, gain :math:`e^s` and :math:`q` the sum of
squares of a row below them,

.. math::
    \log c = s - \tfrac12 \log \Bigl( \sum_k e^{2 V_k} + q \Bigr), \qquad
    B = e^{V + \log c}, \qquad A = \operatorname{softmax}(V + r)

are the factor of a row, its diagonal blocks, and the same blocks rescaled by the log-slopes r of
the units below so that each row sums to one.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from bnaf.block import kernels
from bnaf.block.tensors import (
    LARGEST_EXPONENT,
    batched,
    diagonal_blocks,
    differentiable_gradient,
    log_row_norm,
    traced,
    unpack,
    with_diagonal_blocks,
)


class NormalisedLayer(NamedTuple):
    """One layer of every network, ready to multiply."""

    matrices: Float[Tensor, "transforms rows columns"]
    averages: Float[Tensor, "transforms features out_block in_block"]
    log_slope: Float[Tensor, "transforms features out_block"]
    """Log-slope of each unit, activations taken as identities."""


def normalise_stack(
    blocks: Sequence[int],
    weight: Float[Tensor, "transforms entries"],
    log_gain: Float[Tensor, "transforms units"],
    positions: Int[Tensor, " entries"],
    weights: int,
) -> tuple[Tensor, ...]:
    """Return matrices, averages and log-slopes of all networks, layer after layer.

    Args:
        blocks: Units per feature of every layer, inputs and outputs included.
        weight: Raw weights of all layers, packed.
        log_gain: Log-gains of all layers.
        positions: Where the packed weights stand in full matrices, one layer after another.
        weights: How many entries these matrices have.
    """
    features = log_gain.shape[1] // sum(blocks[1:])

    def plain(weight: Tensor, log_gain: Tensor) -> tuple[Tensor, ...]:
        raw = unpack(weight, positions, weights)
        return _normalise_stack(blocks, features, raw, log_gain)

    if native.serves(weight):
        return native.normalise(plain, blocks, features, weight, log_gain)
    if traced():
        return plain(weight, log_gain)
    return _Normalisation.apply(  # type: ignore[no-any-return, no-untyped-call]
        plain, blocks, features, positions, weight, log_gain
    )


def _normalise_stack(
    blocks: Sequence[int], features: int, raw: Tensor, log_gain: Tensor
) -> tuple[Tensor, ...]:
    log_slope = raw.new_zeros(len(raw), features, 1)
    matrices, averages = [], []
    for part, gain in _layers(blocks, features, raw, log_gain):
        layer = normalise_layer(part, gain, log_slope)
        matrices.append(layer.matrices.flatten(1))
        averages.append(layer.averages.flatten(1))
        log_slope = layer.log_slope
    return torch.cat(matrices, 1), torch.cat(averages, 1), log_slope.squeeze(-1)


def normalise_layer(
    raw: Float[Tensor, "transforms rows columns"],
    log_gain: Float[Tensor, "transforms rows"],
    log_incoming: Float[Tensor, "transforms features in_block"],
) -> NormalisedLayer:
    """Return the normalised weights of a layer.

    Args:
        raw: Raw weights, zero above the diagonal blocks.
        log_gain: Learned log-gain of each row.
        log_incoming: Log-slope of each unit of the layer below.
    """
    features = log_incoming.shape[1]
    diagonal = diagonal_blocks(raw, features)
    lower = with_diagonal_blocks(raw, torch.zeros_like(diagonal))
    square_sum = lower.square().sum(-1).unflatten(-1, (features, -1))
    log_gain = log_gain.reshape(square_sum.shape)
    log_scale = log_gain - log_row_norm(diagonal, square_sum)
    blocks = (diagonal + log_scale.unsqueeze(-1)).exp()
    scale = log_scale.clamp(max=LARGEST_EXPONENT).exp().flatten(1).unsqueeze(-1)
    incoming = diagonal + log_incoming.unsqueeze(-2)
    log_outgoing = incoming.logsumexp(-1)
    averages = (incoming - log_outgoing.unsqueeze(-1)).exp()
    return NormalisedLayer(
        with_diagonal_blocks(lower * scale, blocks), averages, log_outgoing + log_scale
    )


class _Normalisation(torch.autograd.Function):
    """All layers in place, with a gradient that goes over the matrices as seldom as it can."""

    @staticmethod
    def forward(
        ctx: Any,
        plain: Any,
        blocks: Sequence[int],
        features: int,
        positions: Tensor,
        weight: Tensor,
        log_gain: Tensor,
    ) -> Any:
        size = features**2 * sum(rows * columns for columns, rows in pairwise(blocks))
        matrices = unpack(weight, positions, size)
        incoming = weight.new_zeros(len(weight), features, 1)
        kept = []
        for matrix, gain in _layers(blocks, features, matrices, log_gain):
            layer = _normalise_in_place(matrix, gain, incoming)
            incoming = layer[-1]
            kept.append(layer)
        averages = torch.cat([layer[2].flatten(1) for layer in kept], 1)
        ctx.plain, ctx.blocks, ctx.features = plain, blocks, features
        parts = [part for layer in kept for part in layer[:3]]
        ctx.save_for_backward(weight, log_gain, positions, matrices, *parts)
        return matrices, averages, incoming.squeeze(-1)

    @staticmethod
    def backward(
        ctx: Any, grad_matrices: Tensor, grad_averages: Tensor, grad_slope: Tensor
    ) -> Any:
        weight, log_gain, positions, matrices, *parts = ctx.saved_tensors
        if torch.is_grad_enabled() or batched(grad_matrices, grad_averages, grad_slope):
            again = differentiable_gradient(
                ctx.plain,
                (weight, log_gain),
                ctx.needs_input_grad[4:],
                (grad_matrices, grad_averages, grad_slope),
            )
            return None, None, None, None, *again
        found = torch.empty_like(matrices), torch.empty_like(log_gain)
        of_averages = grad_averages.split([part[0].numel() for part in parts[2::3]], 1)
        layers = [
            _layers(ctx.blocks, ctx.features, *tensors)
            for tensors in ((matrices, log_gain), (grad_matrices, log_gain), found)
        ]
        grad_log = grad_slope.unsqueeze(-1)
        for index in reversed(range(len(of_averages))):
            (matrix, gain), (grad, _), outputs = (layer[index] for layer in layers)
            kept = _KeptLayer(matrix, gain, *parts[3 * index : 3 * index + 3])
            grad_log = _pull_back_layer(kept, grad, of_averages[index], grad_log, outputs)
        return None, None, None, None, found[0].index_select(1, positions), found[1]


class _KeptLayer(NamedTuple):
    """What the gradient of a layer needs."""

    matrix: Float[Tensor, "transforms rows columns"]
    log_gain: Float[Tensor, "transforms rows"]
    raw: Float[Tensor, "transforms features out_block in_block"]
    log_scale: Float[Tensor, "transforms features out_block"]
    averages: Float[Tensor, "transforms features out_block in_block"]


def _pull_back_layer(
    layer: _KeptLayer,
    grad: Tensor,
    of_averages: Tensor,
    of_log_slope: Tensor,
    outputs: tuple[Tensor, Tensor],
) -> Float[Tensor, "transforms features in_block"]:
    """Write the gradients of raw weights and gains; return that of the log-slopes below."""
    matrix, gain, raw, log_scale, averages = layer
    features, gain = raw.shape[1], gain.reshape(log_scale.shape)
    # averages and log-slopes: softmax and logsumexp of the same numbers
    of_averages = of_averages.view(averages.shape)
    mean = (of_averages * averages).sum(-1, keepdim=True)
    of_blocks = averages * (of_averages - mean + of_log_slope.unsqueeze(-1))
    below = of_blocks.sum(-2)
    # the factor of a row multiplies all that stands in it
    of_scale = of_log_slope + torch.linalg.vecdot(grad, matrix).view_as(log_scale)
    outputs[1].copy_(of_scale.flatten(1))
    log_share = raw + (log_scale - gain).unsqueeze(-1)  # of the norm
    of_blocks += diagonal_blocks(grad, features) * diagonal_blocks(matrix, features)
    of_blocks -= of_scale.unsqueeze(-1) * (2 * log_share).exp()
    scale = log_scale.clamp(max=LARGEST_EXPONENT).exp()
    pull = of_scale * (log_scale - 2 * gain).clamp(max=LARGEST_EXPONENT).exp()
    torch.mul(grad, scale.flatten(1).unsqueeze(-1), out=outputs[0])
    outputs[0].addcmul_(matrix, pull.flatten(1).unsqueeze(-1), value=-1)
    diagonal_blocks(outputs[0], features).copy_(of_blocks)
    return below


def _layers(
    blocks: Sequence[int], features: int, matrices: Tensor, log_gain: Tensor
) -> list[tuple[Tensor, Tensor]]:
    """Return the matrices and log-gains of each layer, as views."""
    sizes = [(features * out, features * columns) for columns, out in pairwise(blocks)]
    parts = matrices.split([rows * columns for rows, columns in sizes], 1)
    gains = log_gain.split([rows for rows, _ in sizes], 1)
    return [
        (part.unflatten(1, size), gain)
        for part, gain, size in zip(parts, gains, sizes, strict=True)
    ]


def _normalise_in_place(
    matrix: Tensor, log_gain: Tensor, incoming: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Normalise raw weights; return raw blocks, log-scales, averages and log-slopes."""
    diagonal = diagonal_blocks(matrix, incoming.shape[1])
    raw = diagonal.clone()
    diagonal.zero_()
    square_sum = torch.linalg.vecdot(matrix, matrix).unflatten(-1, raw.shape[1:3])
    log_scale = log_gain.reshape(square_sum.shape) - log_row_norm(raw, square_sum)
    matrix *= log_scale.clamp(max=LARGEST_EXPONENT).exp().flatten(1).unsqueeze(-1)
    diagonal.copy_((raw + log_scale.unsqueeze(-1)).exp())
    shifted = raw + incoming.unsqueeze(-2)
    log_outgoing = shifted.logsumexp(-1)
    averages = (shifted - log_outgoing.unsqueeze(-1)).exp()
    return raw, log_scale, averages, log_outgoing + log_scale
