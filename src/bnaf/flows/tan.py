"""The transformation autoregressive network."""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from bnaf._checks import one_of, whole
from bnaf.flows.networks import NetworkFlow, beside
from bnaf.flows.parts import Mixings
from bnaf.laws.autoregressive import AutoregressiveTransform
from bnaf.laws.curves import BendCurve, Curve
from bnaf.laws.mixture import MixtureCurve
from bnaf.laws.transforms import ComposeTransform, PermutationTransform, Points, RowTransform

CONDITIONERS = ("recurrent", "linear")
States = Float[Tensor, "... features states"]


class TAN(NetworkFlow):
    """Transformation autoregressive network (Oliva et al., 2018).

    A linear map P L U of all features; then transforms that bend every feature as a recurrent
    network says that has read those before it, the order reversed in between; then, given
    those before it, a mixture of normal laws for each feature. The state that says which mixture
    is recurrent too, or linear in the features before. It is a flow by the distribution functions
    of these mixtures; see :class:`bnaf.laws.mixture.MixtureCurve`.

    It departs from the paper in this: the leaky ReLU of recurrent transforms is smooth, so that
    Hessians exist, and scale and leak follow from the state as the shift does; recurrent networks
    know which feature they read; every feature has weights of its own in the last layer.

    Args:
        features: Number of columns of a row.
        context_features: Number of columns of a context; 0 for none.
        transforms: Number of recurrent transforms.
        conditioner: "recurrent" or "linear".
        components: Normal laws in each mixture.
        states: Numbers of a state.
        width: Units of the hidden layer that reads a state.
        direction: Which side is closed-form: "density" (log_prob) or "sampling" (rsample).

    Example:
        >>> TAN(features=3, conditioner="linear")().event_shape
        torch.Size([3])
    """

    order_buffers = ("mixing.orders",)
    sizes = (("components", 3, 10), ("states", 16, 64), ("width", 32, 128))

    def __init__(
        self,
        features: int,
        context_features: int = 0,
        *,
        transforms: int = 1,
        conditioner: str = "recurrent",
        components: int = 10,
        states: int = 64,
        width: int = 128,
        direction: str = "density",
    ) -> None:
        super().__init__(features, context_features, direction)
        one_of("conditioner", conditioner, CONDITIONERS)
        states, width = whole("states", states), whole("width", width)
        kinds = ["recurrent"] * whole("transforms", transforms, least=0) + [conditioner]
        bend, mixture = BendCurve(), MixtureCurve(whole("components", components))
        self.curves: list[Curve] = [*[bend] * transforms, mixture]
        self.mixing = Mixings(features, 1, "linear")
        self.conditioners = nn.ModuleList(
            Conditioner(features, context_features, kind, curve.start(), states, width)
            for kind, curve in zip(kinds, self.curves, strict=True)
        )

    def make_transform(
        self, context: Float[Tensor, "*batch context_features"] | None
    ) -> RowTransform:
        like = self.mixing.log_diagonal
        batch = () if context is None else context.shape[:-1]
        reversal = PermutationTransform(torch.arange(self.features).flip(0).to(like.device), like)
        parts: list[RowTransform] = [*self.mixing(like)]
        for curve, conditioner in zip(self.curves, self.conditioners, strict=True):
            predict = _Predictor(conditioner, context)
            parts += [
                AutoregressiveTransform(curve, predict, self.features, like, batch),
                reversal,
            ]
        return ComposeTransform(parts[:-1])


class LinearTAN(TAN):
    """Transformation autoregressive network whose mixtures are linear in the features before.

    It is :class:`TAN` with ``conditioner="linear"``, for those who name their flow; its other
    arguments are those of that class.

    Example:
        >>> LinearTAN(features=3)().event_shape
        torch.Size([3])
    """

    def __init__(
        self,
        features: int,
        context_features: int = 0,
        *,
        transforms: int = 1,
        components: int = 10,
        states: int = 64,
        width: int = 128,
        direction: str = "density",
    ) -> None:
        super().__init__(
            features,
            context_features,
            transforms=transforms,
            conditioner="linear",
            components=components,
            states=states,
            width=width,
            direction=direction,
        )


@dataclass(frozen=True)
class _Predictor:
    """A conditioner with its context."""

    conditioner: nn.Module
    context: Tensor | None

    def __call__(self, x: Points) -> Float[Tensor, "... features numbers"]:
        numbers: Tensor = self.conditioner(x, self.context)
        return numbers


class Conditioner(nn.Module):
    """Network that says the numbers of every feature, from a state of the features before it.

    Args:
        features: Number of columns of a row.
        context_features: Number of columns of a context; 0 for none.
        kind: "recurrent" or "linear".
        start: Numbers to start from, for every feature.
        states: Numbers of a state.
        width: Units of the hidden layer that reads it.
    """

    def __init__(
        self,
        features: int,
        context_features: int,
        kind: str,
        start: Float[Tensor, " numbers"],
        states: int,
        width: int,
    ) -> None:
        super().__init__()
        self.state = (RecurrentState if kind == "recurrent" else LinearState)(
            features, context_features, states
        )
        self.hidden = nn.Linear(states, width)
        self.last = nn.Parameter(torch.zeros(features, len(start), width))
        self.biases = nn.Parameter(start.repeat(features, 1))

    def forward(self, x: Points, context: Tensor | None) -> Float[Tensor, "... features numbers"]:
        """Return the numbers of every feature."""
        units = F.silu(self.hidden(self.state(x, context)))
        return torch.einsum("...fw,fnw->...fn", units, self.last) + self.biases


class LinearState(nn.Module):
    """States that are linear in the features before, each with weights of its own.

    Args:
        features: Number of columns of a row.
        context_features: Number of columns of a context; 0 for none.
        states: Numbers of a state.
    """

    def __init__(self, features: int, context_features: int, states: int) -> None:
        super().__init__()
        columns = features + context_features
        self.weight = nn.Parameter(torch.randn(features, states, columns) / math.sqrt(columns))
        self.bias = nn.Parameter(torch.zeros(features, states))
        before = torch.ones(features, columns).tril(-1)
        before[:, features:] = 1.0
        self.before: Tensor
        self.register_buffer("before", before.unsqueeze(1), persistent=False)

    @property
    def masked_weights(self) -> int:
        """Number of weights that do not act."""
        return int((1 - self.before).sum()) * self.weight.shape[1]

    def forward(self, x: Points, context: Tensor | None) -> States:
        """Return the state of every feature."""
        weight = (self.weight * self.before).flatten(0, 1)
        states: Tensor = F.linear(beside(x, context), weight).unflatten(-1, self.bias.shape)
        return states + self.bias


class RecurrentState(nn.Module):
    r"""States of a gated recurrent unit that reads one feature after the other.

    .. math::
        s_{i+1} = z \odot s_i + (1 - z) \odot n, \qquad n = \tanh(a_n x_i + b_{i,n} + r \odot (U_n
        s_i + c)), \qquad r, z = \sigma(a x_i + b_i + U s_i)

    It must go through the features one by one; all else is computed for all of them at once.

    Args:
        features: Number of columns of a row.
        context_features: Number of columns of a context, which the first state is linear in.
        states: Numbers of a state.
    """

    def __init__(self, features: int, context_features: int, states: int) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.zeros(states))
        self.from_context: nn.Linear | None = None
        if context_features:
            self.from_context = nn.Linear(context_features, states, bias=False)
        self.reading = nn.Parameter(torch.randn(3 * states))
        self.places = nn.Parameter(torch.randn(features - 1, 3 * states))
        bound = 1 / math.sqrt(states)
        self.keeping = nn.Parameter(torch.empty(3 * states, states).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.zeros(states))

    def forward(self, x: Points, context: Tensor | None) -> States:
        """Return the state before every feature."""
        state = self.first.expand(*x.shape[:-1], -1)
        if self.from_context is not None and context is not None:
            state = state + self.from_context(context)
        read = x[..., :-1].unsqueeze(-1) * self.reading + self.places
        kept_share, rest = 2 * len(self.bias), len(self.bias)
        states = [state]
        for reading in read.unbind(-2):
            kept = F.linear(state, self.keeping)
            gates = (reading[..., :kept_share] + kept[..., :kept_share]).sigmoid()
            reset, share = gates.split(rest, -1)
            new = reading[..., kept_share:] + reset * (kept[..., kept_share:] + self.bias)
            state = torch.lerp(new.tanh(), state, share)
            states.append(state)
        return torch.stack(states, -2)
