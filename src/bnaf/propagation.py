r"""The pass through one network: its value and the slope of each output in its own input.

The Jacobian of one feature is a vector: the first layer maps one input to ``width`` units, so what
travels upwards is one positive slope per unit. Relative to the slopes of a network without
activations they obey

.. math:: u^{(l+1)}_i = A^{(l)}_i \bigl( \sigma'(h^{(l)}_i) \odot u^{(l)}_i \bigr)

where the rows of :math:`A_i` sum to one, so that nothing overflows whatever the weights are.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from bnaf.activations import Activation
from bnaf.layers import LayerWeights, NetworkWeights

RESCALE_EVERY = 6  # layers after which slopes are brought back to order one
Outputs = tuple[Float[Tensor, "features rows"], Float[Tensor, "features rows"]]


class Modulation(NamedTuple):
    """What a context does to one layer: ``y = row_scale * W (column_scale * x) + bias``."""

    bias: Float[Tensor, "out_units _"]
    row_scale: Float[Tensor, "out_units _"]
    column_scale: Float[Tensor, "in_units _"]


def multiply(
    layer: LayerWeights, x: Float[Tensor, "in_units rows"]
) -> Float[Tensor, "units rows"]:
    """Multiply by a block-triangular weight, band by band up to its diagonal."""
    products = []
    for far, square, rows, start, end in layer.bands():
        product = square @ x[start:end]
        if far is not None:
            product = product + layer.scale[rows] * (far @ x[:start])
        products.append(product)
    return torch.cat(products) if len(products) > 1 else products[0]


def propagate_by_autograd(
    weights: NetworkWeights,
    activation: Activation,
    x: Float[Tensor, "features rows"],
    context: tuple[Modulation, ...] | None = None,
) -> Outputs:
    """Return outputs and log-slopes by operations that torch differentiates to any order."""
    features, rows = x.shape
    smallest = torch.finfo(x.dtype).tiny
    log_slope = weights.log_slope
    slope = x.new_ones(features, 1, 1)
    h = x
    for index, layer in enumerate(weights.layers):
        if index:
            units = h.unflatten(0, (features, -1))
            y = activation.value(units)
            step, shift = activation.scaled_slope(units, y)
            slope = slope * step
            x = y.flatten(0, 1)
            if shift is not None:
                log_slope = log_slope + shift.squeeze(1)
            if index % RESCALE_EVERY == 0:
                largest = slope.detach().amax(1, keepdim=True)
                slope, log_slope = slope / largest, log_slope + largest.squeeze(1).log()
        if context is not None:
            modulation = context[index]
            x = x * modulation.column_scale
            slope = slope * modulation.column_scale.unflatten(0, (features, -1))
        h = multiply(layer, x)
        if index:
            slope = layer.averages @ slope
        if context is not None:
            h = h * modulation.row_scale + modulation.bias
            slope = slope * modulation.row_scale.unflatten(0, (features, -1))
        else:
            h = h + layer.bias
    log_slope = log_slope + slope.squeeze(1).clamp(min=smallest).log()
    return h, log_slope.expand(features, rows)
