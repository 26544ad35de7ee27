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
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from bnaf.block.tensors import Packing, log_row_norm, with_diagonal_blocks

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
    features = log_gain.shape[1] // sum(blocks[1:])
    sizes = [(features, out_block, in_block) for in_block, out_block in pairwise(blocks)]
    lower, diagonal = packing.unpack(weight)
    lowers = lower.split([f * o * f * i for f, o, i in sizes], 1)
    diagonals = diagonal.split([f * o * i for f, o, i in sizes], 1)
    gains = log_gain.split([f * o for f, o, _ in sizes], 1)
    log_slope = weight.new_zeros(len(weight), features, 1)
    matrices, averages = [], []
    for size, below, block, gain in zip(sizes, lowers, diagonals, gains, strict=True):
        layer = normalise_layer(
            below.unflatten(1, (size[0] * size[1], -1)),
            block.unflatten(1, size),
            gain.unflatten(1, size[:2]),
            log_slope,
        )
        matrices.append(layer.matrices.flatten(1))
        averages.append(layer.averages.flatten(1))
        log_slope = layer.log_slope
    return torch.cat(matrices, 1), torch.cat(averages, 1), log_slope.squeeze(-1)


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
    scale = log_scale.clamp(max=LARGEST_EXPONENT).exp().flatten(1).unsqueeze(-1)
    incoming = diagonal + log_incoming.unsqueeze(-2)
    log_outgoing = incoming.logsumexp(-1)
    averages = (incoming - log_outgoing.unsqueeze(-1)).exp()
    return NormalisedLayer(
        with_diagonal_blocks(lower * scale, blocks), averages, log_outgoing + log_scale
    )
