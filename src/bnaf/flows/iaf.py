"""The inverse autoregressive flow."""

from collections.abc import Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from bnaf._checks import whole
from bnaf.flows.flow import Flow
from bnaf.laws.transforms import (
    ComposeTransform,
    Passage,
    PermutationTransform,
    Points,
    RowTransform,
    finite_passage,
)

FORGET_BIAS = 1.0  # added to the gates, so that a transform starts near the identity


class GatedShiftTransform(RowTransform):
    r"""Move of every feature towards a mean, both told by the features before it.

    .. math::
        y = g \odot x + (1 - g) \odot m, \qquad \log |\det J| = \sum_i \log g_i, \qquad
        (m_i, \operatorname{logit} g_i) = n(x_1 \dots x_{i-1}, c)

    The inverse finds one feature after the other, and takes as many passes of the network.

    Args:
        weights: Weights of the network's layers, masked, first to last.
        biases: Their biases.
        known: What the context adds to the first hidden layer.
        like: A tensor of the type of the rows.
    """

    def __init__(
        self,
        weights: Sequence[Float[Tensor, "_ _"]],
        biases: Sequence[Float[Tensor, " _"]],
        *,
        known: Float[Tensor, "*batch width"] | None = None,
    ) -> None:
        batch = () if known is None else known.shape[:-1]
        super().__init__(weights[0].shape[1], weights[0], batch)
        self.weights, self.biases, self.known = weights, biases, known

    def predict(
        self, x: Points
    ) -> tuple[Float[Tensor, "... features"], Float[Tensor, "... features"]]:
        """Return the means and the logits of the gates."""
        hidden = F.elu(F.linear(x, self.weights[0], self.biases[0]))
        hidden = hidden if self.known is None else hidden + self.known
        for weight, bias in zip(self.weights[1:-1], self.biases[1:-1], strict=True):
            hidden = F.elu(F.linear(hidden, weight, bias))
        outputs = F.linear(hidden, self.weights[-1], self.biases[-1])
        mean, logit = outputs.to(x.dtype).chunk(2, -1)  # under autocast they are of another
        return mean, logit + FORGET_BIAS

    def _map(self, x: Points, *, ladj: bool) -> Passage:
        mean, logit = self.predict(x)
        y = torch.lerp(mean, x.expand(mean.shape), logit.sigmoid())
        return Passage(y, F.logsigmoid(logit).sum(-1))

    def _invert(self, y: Points, *, ladj: bool) -> Passage:
        y = y.expand(self.inverse_shape(y.shape))
        x, log_det = y[..., :0], y.new_zeros(y.shape[:-1])
        for i in range(self.features):
            mean, logit = self.predict(F.pad(x, (0, self.features - i)))
            mean, logit = mean[..., i], logit[..., i]
            found = (y[..., i] - (-logit).sigmoid() * mean) / logit.sigmoid()
            x = torch.cat([x, found.unsqueeze(-1)], -1)
            log_det = log_det - F.logsigmoid(logit)
        return finite_passage(x, log_det)


class IAF(Flow):
    r"""Inverse autoregressive flow (Kingma et al., 2016).

    A stack of :class:`GatedShiftTransform` with the features reversed in between. The context
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
        self.transforms = whole("transforms", transforms)
        hidden_layers, width = whole("hidden_layers", hidden_layers), whole("width", width)
        degrees = spread_degrees(features, width)
        inputs = torch.arange(features)
        outputs = (inputs - 1).repeat(2)  # a mean and a gate see the features before their own
        layers = [inputs, *[degrees] * hidden_layers, outputs]
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        for number, (before, after) in enumerate(pairwise(layers)):
            self.register_buffer(f"mask{number}", sees(before, after), persistent=False)
            shape = self.transforms, len(after), len(before)
            self.weights.append(nn.Parameter(torch.randn(shape) / len(before) ** 0.5))
            self.biases.append(nn.Parameter(torch.zeros(shape[:2])))
        self.conditioner = nn.Linear(context_features, width) if context_features else None

    @property
    def parameter_count(self) -> int:
        """Number of weights that act, the context network included: masked ones do not."""
        masked = sum(self.transforms * int((~mask).sum()) for mask in self._masks)
        return sum(parameter.numel() for parameter in self.parameters()) - masked

    @property
    def _masks(self) -> list[Bool[Tensor, "rows columns"]]:
        return [self.get_buffer(f"mask{number}") for number in range(len(self.weights))]

    def make_transform(
        self, context: Float[Tensor, "*batch context_features"] | None
    ) -> RowTransform:
        known = None if self.conditioner is None else self.conditioner(context)
        masked = [weight * mask for weight, mask in zip(self.weights, self._masks, strict=True)]
        networks = zip(
            zip(*(weight.unbind() for weight in masked), strict=True),
            zip(*(bias.unbind() for bias in self.biases), strict=True),
            strict=True,
        )
        parts: list[RowTransform] = []
        backwards = torch.arange(self.features - 1, -1, -1, device=masked[0].device)
        for weights, biases in networks:
            if parts:
                parts.append(PermutationTransform(backwards, masked[0]))
            parts.append(GatedShiftTransform(weights, biases, known=known))
        return ComposeTransform(parts)


def spread_degrees(features: int, width: int) -> Int[Tensor, " width"]:
    """Return the last feature that each hidden unit sees, evenly spread; -1 for none.

    Example:
        >>> spread_degrees(3, 6).tolist()
        [-1, -1, 0, 0, 1, 1]
    """
    return torch.arange(width) * features // width - 1


def sees(before: Int[Tensor, " columns"], after: Int[Tensor, " rows"]) -> Bool[Tensor, "_ _"]:
    """Return which units of a layer see which of the layer before: those of no higher degree."""
    return before <= after.unsqueeze(-1)
