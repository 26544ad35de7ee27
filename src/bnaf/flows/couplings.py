"""Couplings: some features are bent as a network says that reads the others."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from bnaf._checks import whole
from bnaf.flows.networks import Network, NetworkFlow, draw_layers
from bnaf.flows.parts import ContextScale, Mixings, after_context, interleave
from bnaf.laws.curves import AffineCurve, Curve
from bnaf.laws.transforms import ComposeTransform, Passage, Points, RowTransform, finite_passage


class CouplingTransform(RowTransform):
    r"""Curves of some features, as a network says that reads the others.

    .. math::
        y_a = x_a, \qquad y_b = f(x_b; \theta(x_a, c)), \qquad
        \log |\det J| = \sum_b \log \frac{dy_b}{dx_b}

    Args:
        network: :math:`\theta`, with its context c; a first number for every feature that changes,
            then a second for every one, and so on.
        curve: f, whose inverse must be closed-form; a line by default: y_b is x_b times a scale,
            plus a shift.
        kept: Number of features in :math:`x_a`, those that come first.
    """

    def __init__(self, network: Network, *, kept: int, curve: Curve | None = None) -> None:
        self.curve = curve or AffineCurve()
        like = network.biases[-1]
        batch = () if network.context is None else network.context.shape[:-1]
        super().__init__(kept + len(like) // self.curve.numbers, like, batch)
        self.network, self.kept = network, kept

    def _numbers(self, kept: Points) -> Float[Tensor, "... changed numbers"]:
        numbers: Tensor = self.network(kept).unflatten(-1, (self.curve.numbers, -1))
        return numbers.mT

    def _map(self, x: Points, *, ladj: bool) -> Passage:
        kept, changed = x[..., : self.kept], x[..., self.kept :]
        changed, log_slope = self.curve.map(changed, self._numbers(kept))
        return Passage(self._join(kept, changed), log_slope.sum(-1))

    def _invert(self, y: Points, *, ladj: bool) -> Passage:
        kept, changed = y[..., : self.kept], y[..., self.kept :]
        numbers = self._numbers(kept)
        changed = self.curve.invert(changed, numbers)
        log_det = -self.curve.map(changed, numbers)[1].sum(-1) if ladj else y.new_zeros(())
        return finite_passage(self._join(kept, changed), log_det)

    def _join(self, kept: Tensor, changed: Tensor) -> Tensor:
        return torch.cat([kept.expand(*changed.shape[:-1], -1), changed], -1)


class Couplings(nn.Module):
    """Couplings of one kind, each after a mixing of the features.

    A context is read by their networks, and scales and shifts every feature before all else, so
    that those which a coupling keeps feel it too.

    Args:
        features: Number of columns of a row.
        context_features: Number of columns of a context; 0 for none.
        curve: What the features that change are changed by.
        transforms: Number of couplings.
        hidden_layers: Hidden layers of each network.
        width: Units of each of them.
        mixing: "linear" or "reverse", as in :class:`Mixings`.
    """

    def __init__(
        self,
        features: int,
        context_features: int,
        curve: Curve,
        *,
        transforms: int,
        hidden_layers: int,
        width: int,
        mixing: str,
    ) -> None:
        super().__init__()
        self.curve, self.kept = curve, features // 2
        self.mixings = Mixings(features, transforms, mixing)
        changed = features - self.kept
        sizes = [
            self.kept + context_features,
            *[width] * hidden_layers,
            curve.numbers * changed,
        ]
        weights, biases = draw_layers(transforms, sizes)
        with torch.no_grad():
            biases[-1].copy_(curve.start().repeat_interleave(changed).expand_as(biases[-1]))
        self.weights, self.biases = nn.ParameterList(weights), nn.ParameterList(biases)
        self.scale: ContextScale | None = None
        if context_features:
            self.scale = ContextScale(features, context_features)

    def forward(self, context: Tensor | None) -> ComposeTransform:
        """Return all of them as one transform."""
        layers = zip(*(part.unbind() for part in (*self.weights, *self.biases)), strict=True)
        depth = len(self.weights)
        couplings = [
            CouplingTransform(
                Network(list(parts[:depth]), list(parts[depth:]), context=context, skips=True),
                kept=self.kept,
                curve=self.curve,
            )
            for parts in layers
        ]
        steps = interleave(self.mixings(self.biases[-1]), couplings)
        return after_context(self.scale, context, steps)


class CouplingFlow(NetworkFlow):
    """Stack of couplings, both sides of which are closed-form.

    Args:
        features: Number of columns of a row.
        context_features: Number of columns of a context; 0 for none.
        curve: What the features that change are changed by.
        transforms: Number of couplings.
        hidden_layers: Hidden layers of each network.
        width: Units of each of them.
        mixing: What happens to the features before each coupling: "linear" or "reverse".
        direction: Which side is computed forwards: "density" (log_prob) or "sampling" (rsample).
    """

    order_buffers = ("couplings.mixings.orders",)

    def __init__(
        self,
        features: int,
        context_features: int,
        curve: Curve,
        *,
        transforms: int,
        hidden_layers: int,
        width: int,
        mixing: str,
        direction: str,
    ) -> None:
        super().__init__(features, context_features, direction)
        self.couplings = Couplings(
            features,
            context_features,
            curve,
            transforms=whole("transforms", transforms),
            hidden_layers=whole("hidden_layers", hidden_layers),
            width=whole("width", width),
            mixing=mixing,
        )

    def make_transform(
        self, context: Float[Tensor, "*batch context_features"] | None
    ) -> RowTransform:
        transform: RowTransform = self.couplings(context)
        return transform
