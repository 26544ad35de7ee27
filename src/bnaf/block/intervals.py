r"""Rows of cells through networks in one order: the density of a point, the mass of an interval.

With its features in one order a stack of networks is one triangular increasing map, and with a
standard normal base

.. math:: F(x_i \mid x_1 \dots x_{i-1}) = \Phi(z_i).

The middles of all cells pass as rows do. The distances to a cell's two ends follow on the
feature's own path alone, whose weights are positive, so that nothing cancels:

.. math:: \Delta^{(l+1)}_i = B^{(l)}_i \bigl( \sigma(h_i \pm \Delta_i) - \sigma(h_i) \bigr)^{(l)}
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from bnaf._torch import traced
from bnaf.block.activations import Activation
from bnaf.block.propagation import add_residual, propagate_network
from bnaf.block.tensors import diagonal_blocks
from bnaf.block.weights import Modulation, Networks, NetworkWeights
from bnaf.laws.cells import Cells, log_mass
from bnaf.laws.normal import log_normal_density

ByFeature = Float[Tensor, "features rows"]
DOWN, UP = -1, 1


def log_shares(networks: Networks, cells: Cells) -> Float[Tensor, "rows features"]:
    """Return the log-density or log-mass of every cell given those before it.

    Args:
        networks: Networks in one order.
        cells: Rows, one for each context.
    """
    middle, below, above = (part.t() for part in cells[:3])
    known, wide = cells.known.t(), cells.wide.t()
    spans = None if not traced() and not wide.any() else _Spans(below, above, wide)
    weights, contexts = networks.numbers.weights, networks.modulations()
    total = middle.new_zeros(())
    for index, network in enumerate(weights.networks(networks.blocks)):
        hidden: list[Tensor] = []
        y, log_slope = propagate_network(
            network, networks.activation, middle, contexts[index], hidden
        )
        if spans is not None:
            spans.follow(networks, index, network, hidden, contexts[index])
        middle, log_slope = add_residual(networks, index, middle, y, log_slope)
        total = total + log_slope
    shares = log_normal_density(middle) + total
    if spans is not None:
        shares = torch.where(wide, spans.log_mass(middle), shares)
    return torch.where(known, shares, 0.0).t()


class _Spans:
    """The distances from the middles of intervals to their ends, on their way.

    Args:
        below: Those to the lower ends.
        above: Those to the upper ends.
        wide: Which cells are intervals; the others are given some width, which nobody reads.
    """

    def __init__(
        self, below: ByFeature, above: ByFeature, wide: Bool[Tensor, "features rows"]
    ) -> None:
        self.endless = below.isinf(), above.isinf()
        self.widths = [
            torch.where(endless, 0.0, torch.where(wide, width, 1.0))
            for width, endless in zip((below, above), self.endless, strict=True)
        ]

    def follow(
        self,
        networks: Networks,
        index: int,
        weights: NetworkWeights,
        hidden: list[Tensor],
        context: tuple[Modulation, ...] | None,
    ) -> None:
        """Go through a network with its residual, given what enters its activations."""
        share, carry = networks.residual(index)
        self.widths = [
            share * widen(weights, networks.activation, hidden, width, side, context)
            + carry * width
            for width, side in zip(self.widths, (DOWN, UP), strict=True)
        ]

    def log_mass(self, z: ByFeature) -> ByFeature:
        """Return the log-mass of the intervals, at the end of the way."""
        below, above = (
            torch.where(endless, torch.inf, width)
            for width, endless in zip(self.widths, self.endless, strict=True)
        )
        return log_mass(z, below, above)


def widen(
    weights: NetworkWeights,
    activation: Activation,
    hidden: list[Tensor],
    width: ByFeature,
    side: int,
    context: tuple[Modulation, ...] | None,
) -> ByFeature:
    """Return the distance of two outputs, given that of two inputs and what the first meets."""
    features = len(width)
    delta = width.unsqueeze(1)
    for index, layer in enumerate(weights.layers):
        if index:
            delta = activation.rise(hidden[index - 1], delta, side)
        _, row_scale, column_scale = (None, None, None) if context is None else context[index]
        if column_scale is not None:
            delta = delta * column_scale.unflatten(0, (features, -1))
        delta = diagonal_blocks(layer.matrix, features) @ delta
        if row_scale is not None:
            delta = delta * row_scale.unflatten(0, (features, -1))
    return delta.squeeze(1)
