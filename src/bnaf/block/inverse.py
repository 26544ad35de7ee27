r"""The inverse of an increasing block network, feature by feature, and what its gradient needs.

Feature i of a layer depends on the features before it only through a sum that is known once they
are known. So the sweep keeps the activations of all layers, and per feature solves one equation
in one unknown on that feature's own blocks, for all rows at once.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from bnaf._torch import traced
from bnaf.block.activations import Activation
from bnaf.block.tensors import diagonal_blocks, reorder
from bnaf.block.weights import Modulation, Networks, NetworkWeights, Residual
from bnaf.laws.roots import Targets, solve_increasing


class FeatureNetwork(NamedTuple):
    """What is left of a network for one feature when those before it are known."""

    blocks: tuple[Float[Tensor, "_ _"], ...]
    known: tuple[Float[Tensor, "_ rows"], ...]
    """Bias and contribution of the features before, per layer."""
    row_scales: tuple[Float[Tensor, "_ _"], ...] | None
    column_scales: tuple[Float[Tensor, "_ _"], ...] | None
    activation: Activation
    residual: Residual

    def keep(self, rows: Bool[Tensor, " rows"] | Tensor) -> "FeatureNetwork":
        """Return the network of some of the rows."""

        def pick(parts: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            return tuple(part if part.shape[1] == 1 else part[:, rows] for part in parts)

        return self._replace(
            known=pick(self.known),
            row_scales=None if self.row_scales is None else pick(self.row_scales),
            column_scales=None if self.column_scales is None else pick(self.column_scales),
        )

    def layer(self, index: int, x: Float[Tensor, "_ rows"]) -> Float[Tensor, "_ rows"]:
        """Return the output of one affine layer."""
        if self.column_scales is not None:
            x = x * self.column_scales[index]
        block = self.blocks[index]
        h = block * x if block.shape[1] == 1 else block @ x
        if self.row_scales is not None:
            h = h * self.row_scales[index]
        return h + self.known[index]

    def slope(self, index: int, slope: Float[Tensor, "_ rows"]) -> Float[Tensor, "_ rows"]:
        """Return the derivative of one affine layer's output, given that of its input."""
        if self.column_scales is not None:
            slope = slope * self.column_scales[index]
        block = self.blocks[index]
        slope = block * slope if block.shape[1] == 1 else block @ slope
        return slope * self.row_scales[index] if self.row_scales is not None else slope

    def hidden(self, x: Targets) -> list[Float[Tensor, "_ rows"]]:
        """Return what every layer takes in, x first."""
        inputs = [x]
        for index in range(len(self.blocks) - 1):
            inputs.append(self.activation.value(self.layer(index, inputs[-1])))
        return inputs

    def value_and_slope(self, x: Targets) -> tuple[Targets, Targets]:
        """Return the feature's output and its derivative."""
        inner, slope = x, torch.ones_like(x)
        last = len(self.blocks) - 1
        for index in range(last + 1):
            h = self.layer(index, inner)
            slope = self.slope(index, slope)
            if index < last:
                inner, log_slope = self.activation(h)
                slope = slope * log_slope.exp()
        share, carry = self.residual
        return share * h + carry * x, share * slope + carry

    def output(self, inputs: list[Float[Tensor, "_ rows"]]) -> Targets:
        """Return the feature's output, given what every layer takes in."""
        share, carry = self.residual
        return share * self.layer(len(self.blocks) - 1, inputs[-1]) + carry * inputs[0]

    def range(self) -> tuple[Targets, Targets] | None:
        """Return the ends of the feature's range, or ``None`` where it is the whole line."""
        onto = not isinstance(self.residual.carry, float) or self.residual.carry > 0
        if onto or not self.activation.bounded or len(self.blocks) == 1:
            return None
        ends = []
        for end in (-1.0, 1.0):
            inner = self.known[0].new_full((self.blocks[0].shape[0], self.known[0].shape[1]), end)
            for index in range(1, len(self.blocks)):
                h = self.layer(index, inner)
                inner = self.activation.value(h)
            ends.append(h)
        return ends[0], ends[1]


class Sweep:
    """The features of a network one after the other, with the sums over those already known."""

    def __init__(
        self,
        weights: NetworkWeights,
        activation: Activation,
        residual: Residual,
        context: tuple[Modulation, ...] | None,
        rows: int,
    ) -> None:
        self.features = weights.log_slope.shape[0]
        self.activation, self.residual, self.context = activation, residual, context
        self.biases = [part.bias for part in (context or weights.layers)]
        self.matrices = [layer.matrix for layer in weights.layers]
        self.blocks = [diagonal_blocks(matrix, self.features) for matrix in self.matrices]
        self.inputs = [matrix.new_zeros(matrix.shape[1], rows) for matrix in self.matrices]

    def columns(self, layer: int, feature: int) -> slice:
        """Return where the units of a feature stand among the inputs of a layer."""
        size = self.blocks[layer].shape[2]
        return slice(feature * size, (feature + 1) * size)

    def rows(self, layer: int, feature: int) -> slice:
        """Return where the units of a feature stand among the outputs of a layer."""
        size = self.blocks[layer].shape[1]
        return slice(feature * size, (feature + 1) * size)

    def scales(self, layer: int) -> tuple[Tensor | None, Tensor | None]:
        """Return the row and column scales of a layer, where contexts give it some."""
        return (None, None) if self.context is None else self.context[layer][1:]

    def feature(self, feature: int) -> FeatureNetwork:
        """Return the network of one feature, those before it being settled."""
        known, row_scales, column_scales = [], [], []
        for layer, matrix in enumerate(self.matrices):
            rows, start = self.rows(layer, feature), self.columns(layer, feature).start
            before = self.inputs[layer][:start]
            row_scale, column_scale = self.scales(layer)
            if column_scale is not None:
                column_scales.append(column_scale[self.columns(layer, feature)])
                before = before * column_scale[:start]
            total = matrix[rows, :start] @ before
            if row_scale is not None:
                row_scales.append(row_scale[rows])
                total = total * row_scales[-1]
            known.append(total + self.biases[layer][rows])
        blocks = [blocks[feature] for blocks in self.blocks]
        if traced():  # a loop in a graph takes no two views of one tensor
            for parts in (blocks, row_scales, column_scales):
                parts[:] = [part.clone() for part in parts]
        return FeatureNetwork(
            blocks=tuple(blocks),
            known=tuple(known),
            row_scales=tuple(row_scales) or None,
            column_scales=tuple(column_scales) or None,
            activation=self.activation,
            residual=self.residual,
        )

    def settle(self, feature: int, inputs: list[Float[Tensor, "_ rows"]]) -> None:
        """Fix what one feature feeds into every layer."""
        for layer, units in enumerate(inputs):
            self.inputs[layer][self.columns(layer, feature)] = units

    def fill(self, x: Float[Tensor, "features rows"]) -> list[Float[Tensor, "units rows"]]:
        """Settle all features at once, and return the derivatives of all hidden units."""
        slopes = []
        for layer, matrix in enumerate(self.matrices):
            self.inputs[layer] = x
            if layer == len(self.matrices) - 1:
                break
            row_scale, column_scale = self.scales(layer)
            h = matrix @ (x if column_scale is None else x * column_scale)
            h = (h if row_scale is None else h * row_scale) + self.biases[layer]
            x, log_slope = self.activation(h)
            slopes.append(log_slope.exp())
        return slopes

    def pull_back(self, layer: int, feature: int, grad: Tensor) -> Tensor:
        """Return the cotangent of a feature's own inputs to a layer, given that of its outputs."""
        block = self.blocks[layer][feature]
        row_scale, column_scale = self.scales(layer)
        if row_scale is None or column_scale is None:
            return block.t() @ grad
        grad = block.t() @ (grad * row_scale[self.rows(layer, feature)])
        return grad * column_scale[self.columns(layer, feature)]

    def send_down(self, layer: int, feature: int, grad: Tensor, arrived: Tensor) -> None:
        """Add the cotangents that a feature sends to those before it, through one layer."""
        rows, start = self.rows(layer, feature), self.columns(layer, feature).start
        matrix = self.matrices[layer][rows, :start]
        row_scale, column_scale = self.scales(layer)
        if row_scale is None or column_scale is None:
            arrived[:start].addmm_(matrix.t(), grad)
        else:
            sent = matrix.t() @ (grad * row_scale[rows])
            arrived[:start] += sent * column_scale[:start]


@torch.no_grad()
def solve(
    networks: Networks, y: Float[Tensor, "features rows"]
) -> tuple[Float[Tensor, "features rows"], Bool[Tensor, " rows"]]:
    """Return pre-images under a stack of networks, and which rows have one."""
    weights, contexts = networks.numbers.weights, networks.modulations()
    inside = y.isfinite().all(0)
    for index, network in reversed([*enumerate(weights.networks(networks.blocks))]):
        y, found = solve_network(
            network, networks.activation, y, networks.residual(index), contexts[index]
        )
        inside = inside & found
        if index and networks.orders is not None:
            y = reorder(y, networks.orders[index - 1].argsort())
    return y, inside


@torch.no_grad()
def solve_network(
    weights: NetworkWeights,
    activation: Activation,
    y: Float[Tensor, "features rows"],
    residual: Residual,
    context: tuple[Modulation, ...] | None = None,
) -> tuple[Float[Tensor, "features rows"], Bool[Tensor, " rows"]]:
    """Return x with ``f(x) = y``, and which rows have such an x; the others hold some finite x."""
    sweep = Sweep(weights, activation, residual, context, y.shape[1])
    x = torch.empty_like(y)
    inside = y.isfinite().all(0)
    for feature in range(y.shape[0]):
        network = sweep.feature(feature)
        target = y[feature : feature + 1]
        ends = network.range()
        if ends is not None:
            inside &= ((target > ends[0]) & (target < ends[1])).squeeze(0)
            # a row without pre-image goes on from the middle of the range; the caller drops it
            target = torch.where(inside, target, (ends[0] + ends[1]) / 2)
        else:
            target = torch.where(inside, target, 0.0)
        x[feature : feature + 1] = solve_increasing(network, target)
        sweep.settle(feature, network.hidden(x[feature : feature + 1]))
    return x, inside


@torch.no_grad()
def solve_transposed(
    networks: Networks,
    x: Float[Tensor, "features rows"],
    grad: Float[Tensor, "features rows"],
) -> Float[Tensor, "features rows"]:
    r"""Return w with :math:`J^\top w = g`, J the Jacobian of one network at x, without forming J.

    The last feature of w is known at once. Going down, each feature sends its cotangents to the
    units of those before it, and w follows from what has arrived: one backward pass in all.
    """
    (weights,) = networks.numbers.weights.networks(networks.blocks)
    (context,), residual = networks.modulations(), networks.residual(0)
    sweep = Sweep(weights, networks.activation, residual, context, x.shape[1])
    slopes = sweep.fill(x)
    arrived = [torch.zeros_like(inputs) for inputs in sweep.inputs]
    solution = torch.empty_like(x)
    share, carry = residual
    for feature in range(x.shape[0] - 1, -1, -1):
        # cotangents of every layer's output, those that arrived and those of a unit of w
        received, own = [], []
        down = torch.zeros_like(x[:1])
        unit = torch.ones_like(down) * share
        for layer in range(len(sweep.blocks) - 1, -1, -1):
            received.append(down)
            own.append(unit)
            down = (
                sweep.pull_back(layer, feature, down)
                + arrived[layer][sweep.columns(layer, feature)]
            )
            unit = sweep.pull_back(layer, feature, unit)
            if layer:
                slope = slopes[layer - 1][sweep.rows(layer - 1, feature)]
                down, unit = down * slope, unit * slope
        found = (grad[feature : feature + 1] - down) / (unit + carry)
        solution[feature : feature + 1] = found
        for layer, (from_above, of_unit) in enumerate(zip(received[::-1], own[::-1], strict=True)):
            sweep.send_down(layer, feature, from_above + found * of_unit, arrived[layer])
    return solution
