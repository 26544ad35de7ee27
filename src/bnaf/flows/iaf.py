"""The inverse autoregressive flow."""

from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from bnaf._checks import whole
from bnaf.flows.networks import LayerMasks, unit_ranks
from bnaf.flows.transformed import TransformFlow
from bnaf.laws.autoregressive import AutoregressiveTransform
from bnaf.laws.curves import Curve, Elements, Numbers
from bnaf.laws.transforms import ComposeTransform, PermutationTransform, Points, RowTransform

FORGET_BIAS = 1.0  # added to the gates, so that a transform starts near the identity


class GateCurve(Curve):
    r"""Move towards a mean.

    .. math:: y = g x + (1 - g) m, \qquad \log \frac{dy}{dx} = \log g

    The mean m and, but for a constant, the logit of the gate g are its numbers.
    """

    numbers = 2

    def start(self) -> Float[Tensor, " numbers"]:
        return torch.zeros(2)

    def map(self, x: Elements, numbers: Numbers) -> tuple[Elements, Elements]:
        mean, logit = numbers.unbind(-1)
        logit = logit + FORGET_BIAS
        return torch.lerp(mean, x.expand(mean.shape), logit.sigmoid()), F.logsigmoid(logit)

    def invert(self, y: Elements, numbers: Numbers) -> Elements:
        mean, logit = numbers.unbind(-1)
        logit = logit + FORGET_BIAS
        return (y - (-logit).sigmoid() * mean) / logit.sigmoid()


@dataclass(frozen=True)
class ShiftedNetwork:
    """A masked network whose first hidden layer is shifted by a context.

    Args:
        weights: Weights of its layers, masked, first to last.
        biases: Their biases.
        shift: What the context adds to the first hidden layer.
    """

    weights: tuple[Float[Tensor, "_ _"], ...]
    biases: tuple[Float[Tensor, " _"], ...]
    shift: Float[Tensor, "*batch width"] | None = None

    def __call__(self, x: Points) -> Float[Tensor, "... features numbers"]:
        """Return the mean and the gate of every feature, one of each for each row and context."""
        hidden = F.elu(F.linear(x, self.weights[0], self.biases[0]))
        hidden = hidden if self.shift is None else hidden + self.shift
        for weight, bias in zip(self.weights[1:-1], self.biases[1:-1], strict=True):
            hidden = F.elu(F.linear(hidden, weight, bias))
        last = F.linear(hidden, self.weights[-1], self.biases[-1])
        numbers: Tensor = last.unflatten(-1, (2, -1))
        return numbers.mT


class IAF(TransformFlow):
    r"""Inverse autoregressive flow (Kingma et al., 2016).

    A stack of masked networks that move every feature as a :class:`GateCurve`, the features
    reversed in between. The context
    enters the first hidden layer of every network by one linear map that they share, as in the
    comparison of van den Berg et al. (2018), and one share of the hidden units reads nothing
    else: so the first feature feels it too, which it does not there.

    Args:
        features: Number of columns of a row.
        context_features: Number of columns of a context; 0 for none.
        transforms: Number of stacked networks.
        hidden_layers: Hidden layers of each.
        width: Units of each hidden layer.
        direction: Which side is closed-form: "density" (log_prob) or "sampling" (rsample), which
            is Kingma's.

    Example:
        >>> flow = IAF(3, transforms=2, width=12, direction="sampling")
        >>> x, log_prob = flow().rsample_and_log_prob((5,))
        >>> x.shape
        torch.Size([5, 3])
    """

    learning_rate = 0.003

    def __init__(
        self,
        features: int,
        context_features: int = 0,
        *,
        transforms: int = 8,
        hidden_layers: int = 2,
        width: int = 320,
        direction: str = "density",
    ) -> None:
        super().__init__(features, context_features, direction)
        transforms = whole("transforms", transforms)
        hidden_layers, width = whole("hidden_layers", hidden_layers), whole("width", width)
        columns = torch.arange(features)
        units = unit_ranks(width, 0, features)
        ranks = [columns + 1, *[units] * hidden_layers, columns.repeat(2)]
        self.masks = LayerMasks(ranks, transforms)
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        for below, above in pairwise(ranks):
            shape = transforms, len(above), len(below)
            self.weights.append(nn.Parameter(torch.randn(shape) / len(below) ** 0.5))
            self.biases.append(nn.Parameter(torch.zeros(shape[:2])))
        self.conditioner = nn.Linear(context_features, width) if context_features else None

    def make_transform(
        self, context: Float[Tensor, "*batch context_features"] | None
    ) -> RowTransform:
        shift = None if self.conditioner is None else self.conditioner(context)
        batch = () if context is None else context.shape[:-1]
        like = self.biases[-1]
        backwards = torch.arange(self.features - 1, -1, -1, device=like.device)
        parts: list[RowTransform] = []
        weights = zip(*(weight.unbind() for weight in self.masks(self.weights)), strict=True)
        biases = zip(*(bias.unbind() for bias in self.biases), strict=True)
        for network in zip(weights, biases, strict=True):
            predict = ShiftedNetwork(*network, shift=shift)
            parts += [
                AutoregressiveTransform(GateCurve(), predict, self.features, like, batch),
                PermutationTransform(backwards, like),
            ]
        return ComposeTransform(parts[:-1])
