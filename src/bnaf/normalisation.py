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
    weights: Sequence[Float[Tensor, "transforms _"]],
    log_gains: Sequence[Float[Tensor, "transforms _"]],
    positions: Sequence[Int[Tensor, " _"]],
) -> tuple[Tensor, ...]:
    """Return matrices and averages of every layer of every network, then their log-slopes.

    Args:
        blocks: Units per feature of every layer, inputs and outputs included.
        weights: Raw weights of every layer, packed.
        log_gains: Log-gains of every layer.
        positions: Where the packed weights stand in full matrices.
    """
    depth = len(weights)

    def plain(*tensors: Tensor) -> tuple[Tensor, ...]:
        return _normalise_stack(blocks, tensors[:depth], tensors[depth:], positions)

    if native.serves(weights[0]):
        return native.normalise(plain, blocks, weights, log_gains)
    return plain(*weights, *log_gains)


def _normalise_stack(
    blocks: Sequence[int],
    weights: Sequence[Tensor],
    log_gains: Sequence[Tensor],
    positions: Sequence[Tensor],
) -> tuple[Tensor, ...]:
    transforms, features = log_gains[-1].shape
    log_slope = weights[0].new_zeros(transforms, features, 1)
    found: list[Tensor] = []
    for weight, log_gain, kept, (in_block, out_block) in zip(
        weights, log_gains, positions, pairwise(blocks), strict=True
    ):
        raw = unpack(weight, kept, features * out_block, features * in_block)
        matrices, averages, log_slope = normalise_layer(raw, log_gain, log_slope)
        found += [matrices, averages]
    return *found, log_slope.squeeze(-1)


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
    log_gain = log_gain.view_as(square_sum)
    log_scale = log_gain - log_row_norm(diagonal, square_sum)
    blocks = (diagonal + log_scale.unsqueeze(-1)).exp()
    scale = log_scale.clamp(max=LARGEST_EXPONENT).exp().flatten(1).unsqueeze(-1)
    incoming = diagonal + log_incoming.unsqueeze(-2)
    log_outgoing = incoming.logsumexp(-1)
    averages = (incoming - log_outgoing.unsqueeze(-1)).exp()
    return NormalisedLayer(
        with_diagonal_blocks(lower * scale, blocks), averages, log_outgoing + log_scale
    )
