r"""The pass through one network: its value and the slope of each output in its own input.

The Jacobian of one feature is a vector: the first layer maps one input to ``width`` units, so what
travels upwards is one positive slope per unit. Relative to the slopes of a network without
activations they obey

.. math:: u^{(l+1)}_i = A^{(l)}_i \bigl( \sigma'(h^{(l)}_i) \odot u^{(l)}_i \bigr)

where the rows of :math:`A_i` sum to one, so that nothing overflows whatever the weights are.
"""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from bnaf._torch import batched, differentiable_gradient, traced
from bnaf.block.activations import Activation
from bnaf.block.tensors import band_edges, reorder
from bnaf.block.weights import Modulation, Networks, NetworkWeights

RESCALE_EVERY = 6  # layers after which slopes are brought back to order one
Outputs = tuple[Float[Tensor, "features rows"], Float[Tensor, "features rows"]]


def multiply(
    matrix: Float[Tensor, "units in_units"], x: Float[Tensor, "in_units rows"], features: int
) -> Float[Tensor, "units rows"]:
    """Multiply by a block-triangular matrix, row band by row band up to its diagonal."""
    bands = _bands(matrix, features)
    if len(bands) == 1:
        return matrix @ x
    if traced():
        return torch.cat([matrix[rows, :end] @ x[:end] for rows, end in bands])
    return _Product.apply(matrix, x, features)  # type: ignore[no-any-return, no-untyped-call]


def _bands(matrix: Tensor, features: int) -> list[tuple[slice, int]]:
    """Return the rows of each band, and up to which column they reach."""
    out_block, in_block = (size // features for size in matrix.shape)
    return [
        (slice(start * out_block, end * out_block), end * in_block)
        for start, end in band_edges(features, out_block)
    ]


class _Product(torch.autograd.Function):
    """The product band by band, each written where it belongs."""

    @staticmethod
    def forward(ctx: Any, matrix: Tensor, x: Tensor, features: int) -> Tensor:
        ctx.features = features
        ctx.save_for_backward(matrix, x)
        out = x.new_empty(len(matrix), x.shape[1])
        for rows, end in _bands(matrix, features):
            torch.mm(matrix[rows, :end], x[:end], out=out[rows])
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        matrix, x = ctx.saved_tensors
        if torch.is_grad_enabled() or batched(grad):
            found = differentiable_gradient(
                lambda matrix, x: [matrix @ x], (matrix, x), ctx.needs_input_grad[:2], [grad]
            )
            return *found, None
        grad_matrix, grad_x = torch.zeros_like(matrix), torch.zeros_like(x)
        for rows, end in _bands(matrix, ctx.features):
            torch.mm(grad[rows], x[:end].t(), out=grad_matrix[rows, :end])
            grad_x[:end].addmm_(matrix[rows, :end].t(), grad[rows])
        return grad_matrix, grad_x, None


def propagate_network(
    weights: NetworkWeights,
    activation: Activation,
    x: Float[Tensor, "features rows"],
    context: tuple[Modulation, ...] | None = None,
    hidden: list[Tensor] | None = None,
) -> Outputs:
    """Return the outputs of a network and their log-slopes, differentiable to any order.

    Args:
        weights: Its normalised weights.
        activation: What stands between its layers.
        x: What goes in.
        context: What contexts do to its layers.
        hidden: Where what enters each activation is noted, if anywhere.
    """
    features, rows = x.shape
    smallest = torch.finfo(x.dtype).tiny
    log_slope = weights.log_slope
    slope = x.new_ones(features, 1, 1)
    h = x
    for index, layer in enumerate(weights.layers):
        if index:
            h = h.unflatten(0, (features, -1))
            if hidden is not None:
                hidden.append(h)
            y, step, shift = activation.bend(h)
            slope = slope * step
            x = y.flatten(0, 1)
            if shift is not None:
                log_slope = log_slope + shift.squeeze(1)
            if index % RESCALE_EVERY == 0:
                largest = slope.detach().amax(1, keepdim=True).clamp(min=smallest)
                slope, log_slope = slope / largest, log_slope + largest.squeeze(1).log()
        bias, row_scale, column_scale = (
            (layer.bias, None, None) if context is None else context[index]
        )
        if column_scale is not None:
            x = x * column_scale
            slope = slope * column_scale.unflatten(0, (features, -1))
        h = multiply(layer.matrix, x, features)
        if index:
            slope = layer.averages @ slope
        if row_scale is not None:
            h = h * row_scale
            slope = slope * row_scale.unflatten(0, (features, -1))
        h = h + bias
    log_slope = log_slope + slope.squeeze(1).clamp(min=smallest).log()
    return h, log_slope.expand(features, rows)


def propagate(
    networks: Networks, x: Float[Tensor, "features rows"]
) -> tuple[Float[Tensor, "features rows"], Float[Tensor, " rows"]]:
    """Return the outputs of a stack of networks, and its log-determinants."""
    weights, contexts = networks.numbers.weights, networks.modulations()
    log_det = x.new_zeros(())
    for index, network in enumerate(weights.networks(networks.blocks)):
        if index and networks.orders is not None:
            x = reorder(x, networks.orders[index - 1])
        y, log_slope = propagate_network(network, networks.activation, x, contexts[index])
        x, log_slope = add_residual(networks, index, x, y, log_slope)
        log_det = log_det + log_slope.sum(0)
    return x, log_det


def add_residual(
    networks: Networks,
    index: int,
    x: Float[Tensor, "features rows"],
    y: Float[Tensor, "features rows"],
    log_slope: Float[Tensor, "features rows"],
) -> Outputs:
    """Return the outputs and log-slopes of a network, its residual included."""
    gates = networks.numbers.gates
    if networks.residuals[index] == "gated":
        assert gates is not None
        gate = gates[index]
        y = gate.sigmoid() * y + (-gate).sigmoid() * x
        return y, F.softplus(log_slope + gate) - F.softplus(gate)
    if networks.residuals[index] == "normal":
        return x + y, F.softplus(log_slope)
    return y, log_slope
