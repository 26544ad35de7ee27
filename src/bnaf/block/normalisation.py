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
from jaxtyping import Float
from torch import Tensor

from bnaf._torch import batched, differentiable_gradient, traced
from bnaf.block.tensors import Packing, diagonal_blocks, log_row_norm, with_diagonal_blocks

LARGEST_EXPONENT = 80.0  # exp of it is finite in float32


class NormalisedLayer(NamedTuple):
    """One layer of every network, ready to multiply."""

    matrices: Float[Tensor, "transforms rows columns"]
    averages: Float[Tensor, "transforms features out_block in_block"]
    log_slope: Float[Tensor, "transforms features out_block"]
    """Log-slope of each unit, activations taken as identities."""


def normalise(
    blocks: Sequence[int],
    weight: Float[Tensor, "transforms entries"],
    log_gain: Float[Tensor, "transforms units"],
    packing: Packing,
) -> tuple[Tensor, ...]:
    """Return matrices, averages and log-slopes of all networks, layer after layer.

    Args:
        blocks: Units per feature of every layer, inputs and outputs included.
        weight: Raw weights of all layers, packed.
        log_gain: Log-gains of all layers.
        packing: Where the packed weights stand in full matrices.
    """
    if traced():
        return _normalise(blocks, packing, weight, log_gain)
    return _Normalisation.apply(blocks, packing, weight, log_gain)  # type: ignore[no-any-return, no-untyped-call]


def _normalise(
    blocks: Sequence[int], packing: Packing, weight: Tensor, log_gain: Tensor
) -> tuple[Tensor, ...]:
    """Do it in operations of torch alone, which can be differentiated again."""
    lower, diagonal = packing.unpack(weight)
    log_slope = None
    matrices, averages = [], []
    for below, block, gain in _layers(blocks, lower, diagonal, log_gain):
        if log_slope is None:
            log_slope = weight.new_zeros(*block.shape[:2], 1)
        layer = normalise_layer(below, block, gain, log_slope)
        matrices.append(layer.matrices.flatten(1))
        averages.append(layer.averages.flatten(1))
        log_slope = layer.log_slope
    assert log_slope is not None
    return torch.cat(matrices, 1), torch.cat(averages, 1), log_slope.squeeze(-1)


def _layers(
    blocks: Sequence[int], lower: Tensor, diagonal: Tensor, log_gain: Tensor
) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Return full matrices, diagonal blocks and log-gains of each layer, as views."""
    features = log_gain.shape[1] // sum(blocks[1:])
    sizes = [(features, out_block, in_block) for in_block, out_block in pairwise(blocks)]
    lowers = lower.split([f * o * f * i for f, o, i in sizes], 1)
    diagonals = diagonal.split([f * o * i for f, o, i in sizes], 1)
    gains = log_gain.split([f * o for f, o, _ in sizes], 1)
    return [
        (
            below.unflatten(1, (size[0] * size[1], -1)),
            block.unflatten(1, size),
            gain.unflatten(1, size[:2]),
        )
        for size, below, block, gain in zip(sizes, lowers, diagonals, gains, strict=True)
    ]


def normalise_layer(
    lower: Float[Tensor, "transforms rows columns"],
    diagonal: Float[Tensor, "transforms features out_block in_block"],
    log_gain: Float[Tensor, "transforms features out_block"],
    log_incoming: Float[Tensor, "transforms features in_block"],
) -> NormalisedLayer:
    """Return the normalised weights of a layer.

    Args:
        lower: Raw weights below the diagonal blocks, zero elsewhere.
        diagonal: Raw weights on the diagonal blocks.
        log_gain: Learned log-gain of each row.
        log_incoming: Log-slope of each unit of the layer below.
    """
    square_sum = torch.linalg.vecdot(lower, lower).view(log_gain.shape)
    log_scale = log_gain - log_row_norm(diagonal, square_sum)
    blocks = (diagonal + log_scale.unsqueeze(-1)).exp()
    scale = _scale(log_scale).flatten(1).unsqueeze(-1)
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
        ctx: Any, blocks: Sequence[int], packing: Packing, weight: Tensor, log_gain: Tensor
    ) -> Any:
        matrices, raw = packing.spread(weight), weight.index_select(1, packing.on)
        averages, log_scales = torch.empty_like(raw), torch.empty_like(log_gain)
        log_slope: Tensor | None = None
        parts = _layers(blocks, matrices, averages, log_scales)
        for (matrix, average, log_scale), (_, block, gain) in zip(
            parts, _layers(blocks, matrices, raw, log_gain), strict=True
        ):
            diagonal = diagonal_blocks(matrix, block.shape[1]).zero_()
            square_sum = torch.linalg.vecdot(matrix, matrix).view(gain.shape)
            torch.sub(gain, log_row_norm(block, square_sum), out=log_scale)
            matrix *= _scale(log_scale).flatten(1).unsqueeze(-1)
            torch.exp(block + log_scale.unsqueeze(-1), out=diagonal)
            incoming = block if log_slope is None else block + log_slope.unsqueeze(-2)
            log_outgoing = incoming.logsumexp(-1)
            torch.exp(incoming - log_outgoing.unsqueeze(-1), out=average)
            log_slope = log_outgoing + log_scale
        assert log_slope is not None
        ctx.blocks, ctx.packing = blocks, packing
        ctx.save_for_backward(weight, log_gain, matrices, raw, averages, log_scales)
        return matrices, averages, log_slope.squeeze(-1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        weight, log_gain, matrices, raw, averages, log_scales = ctx.saved_tensors
        if torch.is_grad_enabled() or batched(*grads):

            def plain(weight: Tensor, log_gain: Tensor) -> tuple[Tensor, ...]:
                return _normalise(ctx.blocks, ctx.packing, weight, log_gain)

            needed = ctx.needs_input_grad[2:]
            again = differentiable_gradient(plain, (weight, log_gain), needed, grads)
            return None, None, *again
        of_matrices, of_averages, of_slope = grads
        found = torch.empty_like(matrices), torch.empty_like(log_gain)
        of_log = of_slope.unsqueeze(-1)
        layers = [
            _layers(ctx.blocks, *tensors)
            for tensors in (
                (matrices, raw, log_gain),
                (of_matrices, averages, log_scales),
                (of_matrices, of_averages, log_gain),
                (found[0], raw, found[1]),
            )
        ]
        for values, kept, arrived, outputs in reversed(list(zip(*layers, strict=True))):
            of_log = _pull_back_layer(values, kept[1:], arrived[:2], of_log, outputs[::2])
        return None, None, found[0].index_select(1, ctx.packing.positions), found[1]


def _scale(log_scale: Tensor) -> Tensor:
    return log_scale.clamp(max=LARGEST_EXPONENT).exp()


def _pull_back_layer(
    values: tuple[Tensor, ...],
    kept: tuple[Tensor, ...],
    arrived: tuple[Tensor, ...],
    of_log_slope: Float[Tensor, "transforms features out_block"],
    outputs: tuple[Tensor, ...],
) -> Float[Tensor, "transforms features in_block"]:
    """Write the gradients of a layer's raw weights and gains; return that of the slopes below.

    Args:
        values: Its matrix, raw diagonal blocks and log-gains.
        kept: Its averages and log-scales.
        arrived: Gradients of its matrix and averages.
        of_log_slope: Gradient of its log-slopes.
        outputs: Where the gradients of the raw weights, as a matrix, and of log-gains are written.
    """
    (matrix, raw, gain), (averages, log_scale), (grad, of_averages) = values, kept, arrived
    # averages and log-slopes: softmax and logsumexp of the same numbers
    mean = torch.linalg.vecdot(of_averages, averages).unsqueeze(-1)
    of_blocks = averages * (of_averages - mean + of_log_slope.unsqueeze(-1))
    below: Tensor = of_blocks.sum(-2)
    # the factor of a row multiplies all that stands in it
    of_scale = of_log_slope + torch.linalg.vecdot(grad, matrix).view_as(log_scale)
    features = raw.shape[1]
    of_blocks += diagonal_blocks(grad, features) * diagonal_blocks(matrix, features)
    share = (2 * (raw + (log_scale - gain).unsqueeze(-1))).exp()  # of the squared norm
    of_blocks -= of_scale.unsqueeze(-1) * share
    pull = of_scale * (log_scale - 2 * gain).clamp(max=LARGEST_EXPONENT).exp()
    torch.mul(grad, _scale(log_scale).flatten(1).unsqueeze(-1), out=outputs[0])
    outputs[0].addcmul_(matrix, pull.flatten(1).unsqueeze(-1), value=-1)
    diagonal_blocks(outputs[0], features).copy_(of_blocks)
    outputs[1].copy_(of_scale)
    return below
