"""Normalised weights, ready to multiply, and all that a stack of networks computes with."""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import torch
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
    """What contexts do to one layer: ``y = row_scale * W (column_scale * x) + bias``."""

    bias: Float[Tensor, "out_units contexts"]
    row_scale: Float[Tensor, "out_units contexts"] | None = None
    column_scale: Float[Tensor, "in_units contexts"] | None = None


class Contexts(NamedTuple):
    """What contexts do to every layer of every network, layer after layer.

    There are scales for rows and columns, or for neither.
    """

    biases: Float[Tensor, "transforms units contexts"]
    row_scales: Float[Tensor, "transforms units contexts"] | None = None
    column_scales: Float[Tensor, "transforms in_units contexts"] | None = None

    def change(self, function: Callable[[Tensor], Tensor]) -> "Contexts":
        """Return them with a function applied to each tensor."""
        biases, row_scales, column_scales = self
        return Contexts(
            function(biases),
            None if row_scales is None else function(row_scales),
            None if column_scales is None else function(column_scales),
        )

    def networks(self, blocks: Sequence[int], features: int) -> list[tuple[Modulation, ...]]:
        """Return what they do to the layers of each network."""
        pairs = list(pairwise(blocks))
        outputs = [features * out_block for _, out_block in pairs]
        inputs = [features * in_block for in_block, _ in pairs]
        biases = self.biases.split(outputs, 1)
        if self.row_scales is None or self.column_scales is None:
            layers = [list(map(Modulation, bias)) for bias in biases]
        else:
            rows, columns = self.row_scales.split(outputs, 1), self.column_scales.split(inputs, 1)
            layers = [
                list(map(Modulation, *parts)) for parts in zip(biases, rows, columns, strict=True)
            ]
        return list(zip(*layers, strict=True))

    def fold_into(self, weights: StackWeights, blocks: Sequence[int]) -> StackWeights:
        """Return the weights of networks that have the one context there is."""
        matrices, _, averages, log_slope = weights
        biases, rows, columns = self.change(lambda part: part.squeeze(2))
        if rows is None or columns is None:
            return weights._replace(biases=biases)
        transforms, features = log_slope.shape
        pairs = list(pairwise(blocks))
        scaled: list[list[Tensor]] = [[], []]
        pieces = zip(
            pairs,
            matrices.split([features**2 * i * o for i, o in pairs], 1),
            averages.split([features * i * o for i, o in pairs], 1),
            rows.split([features * o for _, o in pairs], 1),
            columns.split([features * i for i, _ in pairs], 1),
            strict=True,
        )
        slope: Tensor | None = None  # of the first layer's outputs, which no average multiplies
        for (in_block, out_block), matrix, average, row, column in pieces:
            full = matrix.view(transforms, features * out_block, features * in_block)
            scaled[0].append((row.unsqueeze(2) * full * column.unsqueeze(1)).flatten(1))
            small = average.view(transforms, features, out_block, in_block)
            row = row.view(transforms, features, out_block, 1)
            column = column.view(transforms, features, 1, in_block)
            if slope is None:
                slope = row * column
            else:
                small = row * small * column
                if len(scaled[1]) == 1:
                    small = small * slope.mT
            scaled[1].append(small.flatten(1))
        if len(pairs) == 1 and slope is not None:
            log_slope = log_slope + slope.view_as(log_slope).log()
        return StackWeights(torch.cat(scaled[0], 1), biases, torch.cat(scaled[1], 1), log_slope)


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

    @property
    def leaves(self) -> tuple[Tensor | None, ...]:
        """All of them in a row, ``None`` where there is none."""
        return (*self.weights, self.gates, *(self.contexts or (None, None, None)))

    @classmethod
    def of(cls, leaves: Sequence[Any]) -> "Numbers":
        """Return the numbers with these leaves."""
        contexts = None if leaves[5] is None else Contexts(*leaves[5:])
        return cls(StackWeights(*leaves[:4]), leaves[4], contexts)


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
        lines: Which context each row has, where they are not as many, in the same order.
    """

    blocks: tuple[int, ...]
    activation: Activation
    residuals: tuple[str | None, ...]
    orders: Int[Tensor, "_ features"] | None
    numbers: Numbers
    lines: Int[Tensor, " rows"] | None = None

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
            None if contexts is None else contexts.change(lambda part: part[index : index + 1]),
        )
        return self._replace(residuals=(self.residuals[index],), orders=None, numbers=numbers)

    def replace(self, numbers: Numbers) -> "Networks":
        """Return the same networks with other tensors."""
        return self._replace(numbers=numbers)

    def pick(self, rows: slice) -> "Networks":
        """Return the networks of some rows."""
        contexts = self.numbers.contexts
        if contexts is None:
            return self
        if self.lines is not None:
            return self._replace(lines=self.lines[rows])
        contexts = contexts.change(lambda part: part[:, :, rows])
        return self.replace(self.numbers._replace(contexts=contexts))

    def spread(self) -> "Networks":
        """Return the networks with as many contexts as rows."""
        contexts, lines = self.numbers.contexts, self.lines
        if contexts is None or lines is None:
            return self
        contexts = contexts.change(lambda part: part.index_select(2, lines))
        return self._replace(numbers=self.numbers._replace(contexts=contexts), lines=None)

    def fold(self) -> "Networks":
        """Return the same without contexts where there is but one."""
        weights, gates, contexts = self.numbers
        if contexts is None or contexts.biases.shape[2] != 1:
            return self
        numbers = Numbers(contexts.fold_into(weights, self.blocks), gates)
        return self._replace(numbers=numbers, lines=None)

    def modulations(self) -> Sequence[tuple[Modulation, ...] | None]:
        """Return, for each network, what contexts do to its layers."""
        contexts = self.spread().numbers.contexts
        if contexts is None:
            return [None] * len(self.residuals)
        return contexts.networks(self.blocks, self.features)

    def residual(self, index: int) -> Residual:
        """Return the shares of a network and of the identity."""
        kind, gates = self.residuals[index], self.numbers.gates
        if kind == "gated" and gates is not None:
            return Residual(gates[index].sigmoid(), (-gates[index]).sigmoid())
        return Residual(1.0, 1.0 if kind == "normal" else 0.0)
