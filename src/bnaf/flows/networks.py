"""Feed-forward networks, one for each transform, and their masks."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from bnaf.flows.transformed import TransformFlow
from bnaf.laws.transforms import Points


def width_for(features: int, *, small: bool) -> int:
    """Return the units of a hidden layer that suit a table: some for each of its columns.

    Example:
        >>> width_for(6, small=False), width_for(63, small=False), width_for(6, small=True)
        (128, 252, 32)
    """
    return max(32, features) if small else min(256, max(128, 4 * features))


def draw_layers(
    transforms: int, sizes: Sequence[int]
) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """Draw weights and biases of all networks, layer by layer; the last layers are zero.

    Args:
        transforms: Number of networks.
        sizes: Inputs, units of each hidden layer, outputs.
    """
    weights: list[nn.Parameter] = []
    biases: list[nn.Parameter] = []
    for inputs, outputs in pairwise(sizes):
        bound = 1 / math.sqrt(max(inputs, 1)) if len(weights) < len(sizes) - 2 else 0.0
        weight = torch.empty(transforms, outputs, inputs).uniform_(-bound, bound)
        bias = torch.empty(transforms, outputs).uniform_(-bound, bound)
        weights.append(nn.Parameter(weight))
        biases.append(nn.Parameter(bias))
    return weights, biases


@dataclass(frozen=True)
class Network:
    """A feed-forward network as a function of rows, with its context.

    Between its layers is tanh: what it says is bounded, so that a row far out is not pushed
    farther by each of many transforms, and Hessians exist.

    Args:
        weights: Weights of its layers, first to last.
        biases: Their biases.
        context: Read beside the rows.
        skips: Whether hidden layers are added to the one before, where there is one.
    """

    weights: list[Float[Tensor, "_ _"]]
    biases: list[Float[Tensor, " _"]]
    context: Float[Tensor, "*batch context_features"] | None = None
    skips: bool = False

    def __call__(self, x: Points) -> Float[Tensor, "... outputs"]:
        """Return the outputs, one row for each row and context."""
        x = beside(x, self.context)
        last = len(self.weights) - 1
        for index, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            y = F.linear(x, weight, bias)
            if index < last:
                y = y.tanh()
            x = x + y if self.skips and 0 < index < last else y
        return x


def beside(x: Points, context: Tensor | None) -> Float[Tensor, "... columns"]:
    """Return rows with their contexts beside them."""
    if context is None:
        return x
    batch = torch.broadcast_shapes(x.shape[:-1], context.shape[:-1])
    return torch.cat([x.expand(*batch, -1), context.expand(*batch, -1)], -1)


class NetworkFlow(TransformFlow):
    """Flow whose numbers are said by feed-forward networks, or the like."""

    learning_rate = 0.01

    sizes: ClassVar[tuple[tuple[str, int, int], ...]] = ()
    """Settings, each with what suits a small table and what suits a large one."""

    width_share: ClassVar[int] = 1
    """Units of a layer, as a multiple of what suits a network for each transform."""

    @classmethod
    def sizes_for(
        cls,
        features: int,
        *,
        small: bool,
        many: bool = False,
        given: int = 0,
    ) -> dict[str, Any]:
        """Return the sizes that suit a table."""
        chosen = {name: least if small else full for name, least, full in cls.sizes}
        return {"width": cls.width_share * width_for(features, small=small)} | chosen


def unit_ranks(width: int, lowest: int, features: int) -> Int[Tensor, " width"]:
    """Return ranks of the units of a masked layer: from the lowest up, evenly, below features.

    Example:
        >>> unit_ranks(4, 1, 3).tolist()
        [1, 1, 2, 2]
    """
    return lowest + torch.arange(width) * (features - lowest) // max(width, 1)


def rank_mask(below: Int[Tensor, " inputs"], above: Int[Tensor, " outputs"]) -> Tensor:
    """Return a mask of weights: 1 where the rank of the input is at most that of the output."""
    return (above.unsqueeze(1) >= below).to(torch.get_default_dtype())


class LayerMasks(nn.Module):
    """Which weights of networks act, so that no output sees its own feature or a later one.

    Every unit has a rank: that of feature i is i + 1, and that of its outputs is i. It reads the
    units of ranks up to its own: so a unit of rank m reads features of index below m.

    Args:
        ranks: Ranks of the inputs, of the units of each hidden layer, and of the outputs.
        networks: How many networks there are, all masked alike.
    """

    def __init__(self, ranks: Sequence[Int[Tensor, " _"]], networks: int) -> None:
        super().__init__()
        self.networks = networks
        for index, (below, above) in enumerate(pairwise(ranks)):
            self.register_buffer(f"mask_{index}", rank_mask(below, above), persistent=False)

    @property
    def masked_weights(self) -> int:
        """Number of weights that do not act."""
        return self.networks * sum(int((1 - mask).sum()) for mask in self.buffers())

    def forward(
        self, weights: Iterable[Float[Tensor, "networks _ _"]]
    ) -> list[Float[Tensor, "networks _ _"]]:
        """Return the weights of all layers, with zeros in place of those that do not act."""
        return [weight * mask for weight, mask in zip(weights, self.buffers(), strict=True)]


class MaskedNetworks(nn.Module):
    """Networks whose outputs for a feature depend on the features before it alone.

    As in :class:`bnaf.flows.made.MADE` (Germain et al., 2015), by :class:`LayerMasks`. Contexts
    are read by all units, and with them some units have rank 0, so that the first feature feels
    the context too.

    Args:
        features: Number of columns of a row.
        context_features: Number of columns of a context; 0 for none.
        start: Outputs to start from, for every feature; weights of the last layer start at zero.
        transforms: Number of networks.
        hidden_layers: Hidden layers of each, all of one width.
        width: Units of each of them.
    """

    def __init__(
        self,
        features: int,
        context_features: int,
        start: Float[Tensor, " numbers"],
        *,
        transforms: int,
        hidden_layers: int,
        width: int,
    ) -> None:
        super().__init__()
        self.features = features
        lowest = 0 if context_features else 1
        width = width if features > lowest else 0  # else there is nothing to read
        units = unit_ranks(width, lowest, features)
        columns = F.pad(torch.arange(features) + 1, (0, context_features))
        outputs = torch.arange(features).repeat_interleave(len(start))
        ranks = [columns, *[units] * hidden_layers, outputs]
        weights, biases = draw_layers(transforms, [len(layer) for layer in ranks])
        with torch.no_grad():
            biases[-1].copy_(start.repeat(features).expand_as(biases[-1]))
        self.weights, self.biases = nn.ParameterList(weights), nn.ParameterList(biases)
        self.masks = LayerMasks(ranks, transforms)

    def forward(self, context: Tensor | None) -> list["MaskedNetwork"]:
        """Return the networks as functions of rows."""
        weights = [weight.unbind() for weight in self.masks(self.weights)]
        biases = [bias.unbind() for bias in self.biases]
        return [
            MaskedNetwork(Network(list(w), list(b), context=context, skips=True), self.features)
            for w, b in zip(zip(*weights, strict=True), zip(*biases, strict=True), strict=True)
        ]


@dataclass(frozen=True)
class MaskedNetwork:
    """A masked network as what predicts the numbers of every feature."""

    network: Network
    features: int

    def __call__(self, x: Points) -> Float[Tensor, "... features numbers"]:
        """Return the numbers, one for each row and context."""
        numbers: Tensor = self.network(x).unflatten(-1, (self.features, -1))
        return numbers
