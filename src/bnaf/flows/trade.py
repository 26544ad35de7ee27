"""The autoregressive transformer over columns."""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from bnaf._checks import whole
from bnaf.errors import SettingsError
from bnaf.flows.networks import NetworkFlow
from bnaf.laws.autoregressive import AutoregressiveTransform
from bnaf.laws.mixture import MixtureCurve
from bnaf.laws.transforms import Points, RowTransform

Tokens = Float[Tensor, "... features width"]


class TraDE(NetworkFlow):
    """Autoregressive transformer over columns with mixture heads (Fakoor et al., 2020).

    The value of each column becomes a token. Layers of causal attention let every column look at
    those before it, and say which mixture of normal laws it follows. It is a flow by the
    distribution functions of the columns; see :class:`bnaf.laws.mixture.MixtureCurve`. It departs
    from the paper in this: tokens know their column by weights of their own, where the paper has
    a recurrent network; layers are normalised first; there is no dropout and no penalty.

    Args:
        features: Number of columns of a row.
        context_features: Number of columns of a context; 0 for none. It is added to all tokens.
        hidden_layers: Layers of attention, each with a feed-forward network.
        width: Numbers of a token.
        heads: Heads of attention; ``width`` is a multiple of them.
        components: Normal laws in each mixture.
        direction: Which side is closed-form: "density" (log_prob) or "sampling" (rsample).

    Example:
        >>> TraDE(features=3, width=16)().event_shape
        torch.Size([3])
    """

    sizes = (("hidden_layers", 1, 2), ("width", 32, 64), ("components", 3, 10))

    def __init__(
        self,
        features: int,
        context_features: int = 0,
        *,
        hidden_layers: int = 2,
        width: int = 64,
        heads: int = 4,
        components: int = 10,
        direction: str = "density",
    ) -> None:
        super().__init__(features, context_features, direction)
        width, heads = whole("width", width), whole("heads", heads)
        if width % heads:
            raise SettingsError(f"width must be a multiple of heads ({heads}), got {width}.")
        hidden_layers = whole("hidden_layers", hidden_layers)
        self.curve = MixtureCurve(whole("components", components))
        self.values = nn.Parameter(torch.randn(features - 1, width))
        self.places = nn.Parameter(torch.randn(features, width))
        self.from_context: nn.Linear | None = None
        if context_features:
            self.from_context = nn.Linear(context_features, width)
        self.blocks = nn.ModuleList(Attention(width, heads) for _ in range(hidden_layers))
        self.norm = nn.LayerNorm(width)
        self.heads = nn.Parameter(torch.zeros(features, self.curve.numbers, width))
        self.biases = nn.Parameter(self.curve.start().repeat(features, 1))

    def make_transform(
        self, context: Float[Tensor, "*batch context_features"] | None
    ) -> RowTransform:
        batch = () if context is None else context.shape[:-1]
        predict = _Predictor(self, context)
        return AutoregressiveTransform(self.curve, predict, self.features, self.biases, batch)

    def predict(
        self, x: Points, context: Float[Tensor, "*batch context_features"] | None
    ) -> Float[Tensor, "... features numbers"]:
        """Return the numbers of the mixture of every column."""
        tokens = F.pad(x[..., :-1].unsqueeze(-1) * self.values, (0, 0, 1, 0)) + self.places
        if self.from_context is not None and context is not None:
            tokens = tokens + self.from_context(context).unsqueeze(-2)
        for block in self.blocks:
            tokens = block(tokens)
        tokens = self.norm(tokens)
        return torch.einsum("...fw,fnw->...fn", tokens, self.heads) + self.biases


@dataclass(frozen=True)
class _Predictor:
    """The transformer with its context."""

    flow: TraDE
    context: Tensor | None

    def __call__(self, x: Points) -> Float[Tensor, "... features numbers"]:
        return self.flow.predict(x, self.context)


class Attention(nn.Module):
    r"""Causal attention and a feed-forward network, both added to what comes in.

    .. math::
        t' = t + O \operatorname{softmax}\Bigl( \frac{Q K^\top}{\sqrt{w}} \Bigr) V, \qquad
        t'' = t' + B \operatorname{silu}(A \, t')

    where every token looks at itself and those before, and all that is read is normalised first.

    Args:
        width: Numbers of a token.
        heads: Number of heads, each of which looks at a share of the numbers.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first_norm, self.second_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.read = nn.Linear(width, 3 * width, bias=False)
        self.write = nn.Linear(width, width)
        self.widen, self.narrow = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, tokens: Tokens) -> Tokens:
        """Return the tokens of the next layer."""
        parts = self.read(self.first_norm(tokens)).unflatten(-1, (3, self.heads, -1))
        query, key, value = parts.movedim(-3, 0).transpose(-2, -3)  # (..., heads, features, _)
        scores = query @ key.mT / math.sqrt(key.shape[-1])
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(later, -torch.inf)
        weights = (scores - scores.amax(-1, keepdim=True).detach()).exp()  # softmax is slower
        seen = (weights @ value) / weights.sum(-1, keepdim=True)
        tokens = tokens + self.write(seen.transpose(-2, -3).flatten(-2))
        return torch.add(tokens, self.narrow(F.silu(self.widen(self.second_norm(tokens)))))
