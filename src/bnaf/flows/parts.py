"""What several flows are made of."""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from bnaf.flows.networks import MaskedNetworks
from bnaf.laws.affine import MixingTransform, ScaleTransform, bounded
from bnaf.laws.autoregressive import AutoregressiveTransform
from bnaf.laws.curves import Curve
from bnaf.laws.transforms import (
    ComposeTransform,
    PermutationTransform,
    RowTransform,
)

MIXINGS = ("linear", "reverse")


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
