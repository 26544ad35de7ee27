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
from jaxtyping import Float, Int
from torch import Tensor

from bnaf import native
from bnaf.ops import (
    LARGEST_EXPONENT,
    diagonal_blocks,
    log_row_norm,
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
    return plain(weight, log_gain)


def _normalise_stack(
    blocks: Sequence[int], features: int, raw: Tensor, log_gain: Tensor
) -> tuple[Tensor, ...]:
    sizes = [(features * out, features * columns) for columns, out in pairwise(blocks)]
    raws = raw.split([rows * columns for rows, columns in sizes], 1)
    log_gains = log_gain.split([rows for rows, _ in sizes], 1)
    log_slope = raw.new_zeros(len(raw), features, 1)
    matrices, averages = [], []
    for part, gain, size in zip(raws, log_gains, sizes, strict=True):
        layer = normalise_layer(part.unflatten(1, size), gain, log_slope)
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
