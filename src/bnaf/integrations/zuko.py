"""Flows inside zuko's, and zuko's inside ours.

Both libraries lead from the data to the base, and both make laws anew from a context. So a flow of
ours is one of zuko's lazy transforms, and one of those is all that a flow of ours is made of.
Importing zuko switches torch's checks of arguments off for the whole process; importing this
module leaves them as they were.
"""

from collections.abc import Sequence
from typing import Any

from torch import Tensor
from torch.distributions import Transform

from bnaf._torch import kept_validation
from bnaf.flows.transformed import TransformFlow
from bnaf.laws.transforms import Passage, Points, RowTransform, finite_passage

with kept_validation():
    from zuko.lazy import LazyTransform


class LazyFlow(LazyTransform):
    """The transform of a flow, as one of zuko's lazy transforms.

    Args:
        flow: The flow; the base of zuko's flow takes the place of its own.

    Example:
        >>> import torch, zuko
        >>> from bnaf import BNAF
        >>> base = zuko.lazy.UnconditionalDistribution(
        ...     zuko.distributions.DiagNormal, torch.zeros(2), torch.ones(2), buffer=True
        ... )
        >>> flow = zuko.flows.Flow([LazyFlow(BNAF(2, 1))], base)
        >>> flow(torch.zeros(5, 1)).log_prob(torch.zeros(5, 2)).shape
        torch.Size([5])
    """

    def __init__(self, flow: TransformFlow) -> None:
        super().__init__()
        self.flow = flow

    def forward(self, c: Tensor | None = None) -> RowTransform:
        """Return the transform of rows given a context; a flow that takes none ignores it."""
        law = self.flow(c if self.flow.context_features else None)
        transform: RowTransform = law.transform
        return transform


class ZukoFlow(TransformFlow):
    """A flow made of one of zuko's lazy transforms, on our standard normal base.

    It is fitted, sampled and turned round as other flows are. It has no name in the registry, so
    that files and commands do not know it.

    Args:
        features: Number of columns of a row.
        context_features: Number of columns of a context; 0 for none.
        transform: The lazy transform, from rows to base noise; of a flow of zuko's it is
            ``flow.transform``.
        direction: Which way the transform is used: from data to base ("density") or back.

    Example:
        >>> import torch, zuko
        >>> flow = ZukoFlow(2, transform=zuko.flows.MAF(2, transforms=2).transform)
        >>> flow().log_prob(torch.zeros(7, 2)).shape
        torch.Size([7])
    """

    def __init__(
        self,
        features: int,
        context_features: int = 0,
        *,
        transform: LazyTransform,
        direction: str = "density",
    ) -> None:
        super().__init__(features, context_features, direction)
        self.transform = transform

    def make_transform(self, context: Tensor | None) -> RowTransform:
        like = next(self.parameters())
        batch = () if context is None else context.shape[:-1]
        return _Wrapped(self.transform(context), self.features, like.detach(), batch)


class _Wrapped(RowTransform):
    """A transform of zuko's or torch's between rows."""

    def __init__(
        self, transform: Transform, features: int, like: Tensor, context_batch: Sequence[int]
    ) -> None:
        super().__init__(features, like, context_batch)
        self.wrapped: Any = transform  # zuko gives torch's transforms a call_and_ladj

    def _map(self, x: Points, *, ladj: bool) -> Passage:
        return Passage(*self.wrapped.call_and_ladj(x))

    def _invert(self, y: Points, *, ladj: bool) -> Passage:
        return finite_passage(*self.wrapped.inv.call_and_ladj(y))
