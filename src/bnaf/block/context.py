"""From a context to what it does to every layer of every network."""

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Tensor, nn

from bnaf._random import Dropout
from bnaf.block.weights import Contexts
from bnaf.laws.affine import bounded

PIECE_SCALE = 0.3  # beside the columns themselves: what is smooth is learned first
SHORTEST_PIECE = 1e-3  # of a column; values that repeat would have none, and rounding decide


def normal_edges(columns: int, bins: int) -> Float[Tensor, "columns edges"]:
    """Return ends of pieces that hold as much of a standard normal law each."""
    levels = torch.linspace(0, 1, bins + 1).clamp(1e-3, 1 - 1e-3)
    edges: Tensor = torch.special.ndtri(levels)
    return edges.expand(columns, -1).clone()


def quantile_edges(
    rows: Float[Tensor, "rows columns"], bins: int
) -> Float64[Tensor, "columns edges"]:
    """Return ends of pieces that hold as many of the rows each."""
    levels = np.linspace(0, 1, bins + 1)
    return torch.from_numpy(np.quantile(rows.double().cpu().numpy(), levels, axis=0).T.copy())


def beside_pieces(
    context: Float[Tensor, "*batch columns"], edges: Float[Tensor, "columns edges"]
) -> Float[Tensor, "*batch more"]:
    """Return the columns, and how far each has come in every piece, from -1/2 to 1/2."""
    low, high = edges[:, :-1], edges[:, 1:]
    length = (high - low).clamp(min=SHORTEST_PIECE)
    pieces = PIECE_SCALE * (((context.unsqueeze(-1) - low) / length).clamp(0, 1) - 0.5)
    return torch.cat([context, pieces.flatten(-2)], -1)


class Conditioner(nn.Module):
    r"""Network from the context to numbers of every layer.

    Per affine layer it predicts a bias, which moves the bends of the network, or, with scales, a
    bias and two positive vectors (De Cao et al., 2019, section "Amortizing flow parameters"),

    .. math:: y = r \odot \bar W (c \odot x) + b

    The paper does not say how r and c stay positive. Here :math:`\log r` and :math:`\log c` are
    bounded smoothly by :math:`\pm 3`, so that a context far from those seen in training cannot
    make the flow explode.

    Args:
        context_features: Number of columns of the context.
        features: Number of features of the flow.
        blocks: Units per feature of every layer, inputs and outputs included.
        transforms: Number of networks.
        hidden_layers: Hidden layers between context and prediction; 0 makes it one linear map.
        width: Units of each hidden layer.
        rank: Numbers that the last hidden layer is boiled down to, of which all predictions are
            linear functions; ``None`` for its units themselves.
        scales: Whether scales are predicted, too.
        bins: Pieces that each column of the context is cut into, so that what is predicted may
            bend at their ends as the splits of a tree do; 0 for none.
        dropout: Share of hidden units that is left out of each step of training.
    """

    edges: Tensor | None

    def __init__(
        self,
        context_features: int,
        features: int,
        blocks: Sequence[int],
        *,
        transforms: int,
        hidden_layers: int,
        width: int,
        rank: int | None = None,
        scales: bool = False,
        bins: int = 0,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.transforms, self.scales = transforms, scales
        self.sizes = []  # of what is predicted for a network, layer by layer
        for in_block, out_block in pairwise(blocks):
            self.sizes.append(features * out_block)
            if scales:
                self.sizes += [features * out_block, features * in_block]
        modules: list[nn.Module] = []
        inputs = context_features * (1 + bins)
        for _ in range(hidden_layers):
            modules += [nn.Linear(inputs, width), nn.SiLU()]
            if dropout:
                modules.append(Dropout(dropout))
            inputs = width
        if hidden_layers and rank is not None:
            modules.append(nn.Linear(inputs, rank))
            inputs = rank
        self.prediction_count = transforms * sum(self.sizes)
        self.hidden = nn.Sequential(*modules)
        self.prediction = nn.Linear(inputs, self.prediction_count)
        edges = normal_edges(context_features, bins) if bins else None
        self.register_buffer("edges", edges)
        self.draw()

    @property
    def _kinds(self) -> int:
        return 3 if self.scales else 1

    @torch.no_grad()
    def draw(self) -> None:
        """Draw fresh parameters: predictions near, but not at, those of a flow without context."""
        for module in self.hidden:
            if isinstance(module, nn.Linear):
                module.reset_parameters()
        nn.init.normal_(self.prediction.weight, std=0.1 / math.sqrt(self.prediction.in_features))
        biases = self.prediction.bias.view(self.transforms, -1).split(self.sizes, 1)
        for index, bias in enumerate(biases):  # scales start at one
            bound = 0.0 if index % self._kinds else 1 / math.sqrt(bias.shape[1])
            bias.uniform_(-bound, bound)

    @torch.no_grad()
    def spread_biases(self) -> None:
        """Draw the biases predicted for a context of zero from a standard normal law."""
        pieces = self.prediction.bias.view(self.transforms, -1).split(self.sizes, 1)
        for bias in pieces[:: self._kinds]:
            bias.normal_()

    @torch.no_grad()
    def undo_gains(self, log_gain: Float[Tensor, "transforms units"]) -> None:
        """Start row scales where they make up for gains, so that rows of weights have norm one.

        Args:
            log_gain: Log-gains of all layers.
        """
        pieces = self.prediction.bias.view(self.transforms, -1).split(self.sizes, 1)
        gains = log_gain.split(self.sizes[:: self._kinds], 1)
        for scale, gain in zip(pieces[1 :: self._kinds], gains, strict=True):
            scale.copy_(-gain)

    @torch.no_grad()
    def see(self, context: Float[Tensor, "rows context_features"]) -> None:
        """Cut the columns of the context into pieces of as many rows each."""
        if self.edges is not None:
            self.edges.copy_(quantile_edges(context, self.edges.shape[1] - 1))

    def forward(self, context: Float[Tensor, "*batch context_features"]) -> Contexts:
        """Return what each context does to the layers of every network."""
        code = self.hidden(self._columns(context)).reshape(-1, self.prediction.in_features)
        predicted = torch.addmm(
            self.prediction.bias.unsqueeze(1), self.prediction.weight, code.t()
        )
        return self._apart(predicted.to(context.dtype))  # under autocast it is of another

    def _columns(self, context: Float[Tensor, "*batch context_features"]) -> Tensor:
        """Return what the first layer reads."""
        return context if self.edges is None else beside_pieces(context, self.edges)

    def _apart(self, predicted: Float[Tensor, "predictions contexts"]) -> Contexts:
        """Return biases and scales of every network."""
        numbers = predicted.unflatten(0, (self.transforms, -1))
        if not self.scales:
            return Contexts(numbers)
        pieces = numbers.split(self.sizes, 1)
        biases, *log_scales = (torch.cat(pieces[kind :: self._kinds], 1) for kind in range(3))
        return Contexts(biases, *(bounded(part).exp() for part in log_scales))

    def agrees_with(self, other: "Conditioner") -> bool:
        """Tell whether another of the same sizes reads the same of every context, as it trains."""
        if self.training != other.training:
            return False
        if self.edges is None or other.edges is None:
            return self.edges is other.edges
        return torch.equal(self.edges, other.edges)


def condition_together(
    conditioners: Sequence[Conditioner], context: Float[Tensor, "*batch context_features"]
) -> list[Contexts]:
    """Return what several conditioners of the same sizes say, each layer of all at once.

    While they train, what one leaves out of a step all leave out, so that a draw serves all.

    Args:
        conditioners: Each agrees with the first.
        context: The contexts.
    """
    columns = conditioners[0]._columns(context)
    x = columns.reshape(-1, columns.shape[-1]).expand(len(conditioners), -1, -1)
    for layers in zip(*(each.hidden for each in conditioners), strict=True):
        layer = layers[0]
        if isinstance(layer, nn.Linear):
            weight, bias = (
                torch.stack(parts) for parts in zip(*map(_numbers, layers), strict=True)
            )
            x = torch.baddbmm(bias.unsqueeze(1), x, weight.mT)
        elif isinstance(layer, nn.Dropout):
            x = x * layer(torch.ones_like(x[0])) if layer.training else x
        else:
            x = layer(x)
    weight, bias = map(
        torch.stack, zip(*(_numbers(each.prediction) for each in conditioners), strict=True)
    )
    predicted = torch.baddbmm(bias.unsqueeze(2), weight, x.mT).to(context.dtype)
    return [each._apart(part) for each, part in zip(conditioners, predicted, strict=True)]


def _numbers(layer: nn.Module) -> tuple[Tensor, Tensor]:
    assert isinstance(layer, nn.Linear)
    return layer.weight, layer.bias
