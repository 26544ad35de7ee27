"""Normalised weights, ready to multiply, and all that a stack of networks computes with."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from jaxtyping import Float, Int
from torch import Tensor

from bnaf.block.activations import Activation


class LayerWeights(NamedTuple):
    """Normalised weights of one layer of one network, ready to multiply."""

    matrix: Float[Tensor, "rows columns"]
    """Block lower triangular."""
    bias: Float[Tensor, "rows 1"]
    averages: Float[Tensor, "features out_block in_block"]
    """Diagonal blocks rescaled so that each row sums to one."""


class NetworkWeights(NamedTuple):
    """Normalised weights of one network."""

    layers: tuple[LayerWeights, ...]
    log_slope: Float[Tensor, "features 1"]
    """Log-slope of every output were all activations the identity."""


class StackWeights(NamedTuple):
    """Normalised weights of all networks of a flow; a row of each tensor is one network."""

    matrices: Float[Tensor, "transforms weights"]
    """Block lower triangular, layer after layer."""
    biases: Float[Tensor, "transforms units"]
    averages: Float[Tensor, "transforms _"]
    log_slope: Float[Tensor, "transforms features"]

    def networks(self, blocks: Sequence[int]) -> list[NetworkWeights]:
        """Return the weights of each network, given the units per feature of every layer."""
        features = self.log_slope.shape[1]
        sizes = [(features, out_block, in_block) for in_block, out_block in pairwise(blocks)]
        matrices = split_layers(self.matrices, [(f * o, f * i) for f, o, i in sizes])
        biases = split_layers(self.biases, [(f * o, 1) for f, o, _ in sizes])
        averages = split_layers(self.averages, sizes)
        layers = [
            list(map(LayerWeights, matrix, bias, average))
            for matrix, bias, average in zip(matrices, biases, averages, strict=True)
        ]
        slopes = self.log_slope.unsqueeze(-1).unbind()
        return list(map(NetworkWeights, zip(*layers, strict=True), slopes))


def split_layers(
    flat: Float[Tensor, "transforms _"], shapes: Sequence[tuple[int, ...]]
) -> list[tuple[Tensor, ...]]:
    """Return, layer by layer, the tensors of every network that are stored one after another."""
    parts = flat.split([math.prod(shape) for shape in shapes], 1)
    return [part.unflatten(1, shape).unbind() for part, shape in zip(parts, shapes, strict=True)]


class Modulation(NamedTuple):
    """What a context does to one layer: ``y = row_scale * W (column_scale * x) + bias``."""

    bias: Float[Tensor, "out_units _"]
    row_scale: Float[Tensor, "out_units _"]
    column_scale: Float[Tensor, "in_units _"]


Contexts = tuple[tuple[Modulation, ...], ...]
"""Per network, what a context does to each layer: for each row, or for all."""


class Residual(NamedTuple):
    """The map ``share * f(x) + carry * x`` around a network f."""

    share: float | Tensor
    carry: float | Tensor


class Numbers(NamedTuple):
    """The tensors of a stack of networks that have gradients."""

    weights: StackWeights
    gates: Float[Tensor, " _"] | None = None
    """Of the gated residuals, which come first."""
    contexts: Contexts | None = None


class Networks(NamedTuple):
    r"""Increasing autoregressive networks, each with an optional residual, one after another.

    .. math::
        \hat f(x) = \sigma(g) f(x) + (1 - \sigma(g)) x, \qquad
        \log \hat f' = \operatorname{softplus}(\log f' + g) - \operatorname{softplus}(g)

    Args:
        blocks: Units per feature of every layer, inputs and outputs included.
        activation: What stands between their layers.
        residuals: Per network "gated", "normal" (f(x) + x) or ``None``.
        orders: Order of the features before each network but the first; ``None`` for no change.
        numbers: Weights, gates and contexts.
    """

    blocks: tuple[int, ...]
    activation: Activation
    residuals: tuple[str | None, ...]
    orders: Int[Tensor, "_ features"] | None
    numbers: Numbers

    @property
    def features(self) -> int:
        """Number of columns of a row."""
        return self.numbers.weights.log_slope.shape[1]

    @property
    def like(self) -> Tensor:
        """A tensor of the type and on the device of the weights."""
        return self.numbers.weights.log_slope

    @property
    def onto(self) -> bool:
        """Whether every row has a pre-image: with residuals, or an activation without bounds."""
        return not self.activation.bounded or len(self.blocks) == 2 or None not in self.residuals

    def single(self, index: int) -> "Networks":
        """Return one of the networks, as a stack of its own."""
        weights, gates, contexts = self.numbers
        gated = self.residuals[index] == "gated" and gates is not None
        numbers = Numbers(
            StackWeights(*(tensor[index : index + 1] for tensor in weights)),
            gates[index : index + 1] if gates is not None and gated else None,
            None if contexts is None else contexts[index : index + 1],
        )
        return self._replace(residuals=(self.residuals[index],), orders=None, numbers=numbers)

    def replace(self, numbers: Numbers) -> "Networks":
        """Return the same networks with other tensors."""
        return self._replace(numbers=numbers)

    def pick(self, rows: Tensor | slice) -> "Networks":
        """Return the networks with the contexts of some rows; one context serves all."""
        contexts = self.numbers.contexts
        if contexts is None or contexts[0][0].bias.shape[1] == 1:
            return self
        picked = tuple(
            tuple(Modulation(*(part[:, rows] for part in layer)) for layer in network)
            for network in contexts
        )
        return self.replace(self.numbers._replace(contexts=picked))

    def residual(self, index: int) -> Residual:
        """Return the shares of a network and of the identity."""
        kind, gates = self.residuals[index], self.numbers.gates
        if kind == "gated" and gates is not None:
            return Residual(gates[index].sigmoid(), (-gates[index]).sigmoid())
        return Residual(1.0, 1.0 if kind == "normal" else 0.0)
