"""What several flows are made of."""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from bnaf.flows.networks import MaskedNetworks, Network, draw_layers
from bnaf.laws.affine import MixingTransform, ScaleTransform, bounded
from bnaf.laws.autoregressive import AutoregressiveTransform
from bnaf.laws.curves import AffineCurve, Curve
from bnaf.laws.transforms import (
    ComposeTransform,
    Passage,
    PermutationTransform,
    Points,
    RowTransform,
    finite_passage,
)

MIXINGS = ("linear", "reverse")


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


def mixing_transforms(
    below: Float[Tensor, "transforms below"],
    above: Float[Tensor, "transforms below"],
    log_diagonal: Float[Tensor, "transforms features"],
    signs: Float[Tensor, "transforms features"],
    orders: Int[Tensor, "transforms features"],
) -> list[MixingTransform]:
    """Return the linear maps P L U of all transforms, from what their factors are made of.

    Args:
        below: L below its diagonal, row by row.
        above: U above its diagonal, column by column.
        log_diagonal: Logarithms of the absolute values on the diagonal of U.
        signs: Their signs.
        orders: P.
    """
    features = orders.shape[1]
    rows, columns = torch.tril_indices(features, features, -1, device=orders.device)
    every = slice(None)
    lower = torch.diag_embed(torch.ones_like(log_diagonal))
    lower[every, rows, columns] = below
    upper = torch.diag_embed(signs * log_diagonal.exp())
    upper[every, columns, rows] = above
    product = (lower @ upper).to(lower.dtype)  # under autocast it is of another
    matrix = product.take_along_dim(orders.unsqueeze(-1), 1)
    parts = (matrix, lower, upper, orders, log_diagonal.sum(1))
    return [
        MixingTransform(*step) for step in zip(*(part.unbind() for part in parts), strict=True)
    ]


class Mixings(nn.Module):
    """What mixes the features before each transform: linear maps, or reversals.

    Args:
        features: Number of columns of a row.
        transforms: How many there are.
        kind: "linear" for P L U, which starts as the permutation P, drawn and kept; "reverse".
    """

    def __init__(self, features: int, transforms: int, kind: str | None) -> None:
        super().__init__()
        self.kind = kind
        self.orders: Tensor
        orders = [torch.arange(features - 1, -1, -1)] * transforms
        if kind == "linear":
            orders = [torch.randperm(features) for _ in range(transforms)]
            self.below = nn.Parameter(torch.zeros(transforms, features * (features - 1) // 2))
            self.above = nn.Parameter(torch.zeros_like(self.below))
            self.log_diagonal = nn.Parameter(torch.zeros(transforms, features))
        self.register_buffer("orders", torch.stack(orders))

    def forward(self, like: Tensor) -> Sequence[RowTransform]:
        """Return the mixing of each transform."""
        if self.kind == "reverse":
            return [PermutationTransform(order, like) for order in self.orders]
        signs = torch.ones_like(self.log_diagonal)
        return mixing_transforms(self.below, self.above, self.log_diagonal, signs, self.orders)


def masked_transforms(
    networks: MaskedNetworks, curves: Sequence[Curve], context: Tensor | None
) -> list[AutoregressiveTransform]:
    """Return an autoregressive transform for each network, given its curve."""
    like = networks.biases[-1]
    batch = () if context is None else context.shape[:-1]
    return [
        AutoregressiveTransform(curve, network, networks.features, like, batch)
        for curve, network in zip(curves, networks(context), strict=True)
    ]


def interleave(*parts: Sequence[RowTransform]) -> ComposeTransform:
    """Return the first of all kinds of parts in order, then the second of all, and so on."""
    return ComposeTransform([part for step in zip(*parts, strict=True) for part in step])


class ContextScale(nn.Module):
    """Scale and shift of every feature that are linear in the context.

    Args:
        features: Number of columns of a row.
        context_features: Number of columns of a context.
    """

    def __init__(self, features: int, context_features: int) -> None:
        super().__init__()
        weight = torch.randn(2 * features, context_features)
        self.weight = nn.Parameter(weight * (0.1 / math.sqrt(context_features)))

    def forward(self, context: Tensor) -> ScaleTransform:
        """Return the transform for a context."""
        raw, shift = (context @ self.weight.t()).to(context.dtype).chunk(2, -1)
        return ScaleTransform(bounded(raw), shift)


def after_context(
    scale: ContextScale | None, context: Tensor | None, steps: ComposeTransform
) -> ComposeTransform:
    """Return a transform with what the context does, if anything, put before it."""
    if scale is None or context is None:
        return steps
    return ComposeTransform([scale(context), *steps.parts])


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
