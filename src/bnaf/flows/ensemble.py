"""Several flows of one column, averaged."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from bnaf._checks import whole
from bnaf._random import private_draws
from bnaf.errors import BnafError, SettingsError
from bnaf.flows.flow import score
from bnaf.flows.transformed import TransformFlow, check_normal_base
from bnaf.laws.distribution import FlowDistribution
from bnaf.laws.normal import mean_score
from bnaf.laws.roots import Targets, solve_increasing
from bnaf.laws.transforms import Passage, Points, RowTransform


class MixtureTransform(RowTransform):
    r"""From rows of one column to the normal scores of a mixture of laws.

    With the maps :math:`f_k` of its members to standard normal noise,

    .. math:: z = \Phi^{-1} \Bigl( \tfrac1K \sum_k \Phi(f_k(x)) \Bigr), \qquad
              \varphi(z) \, \frac{dz}{dx} = \tfrac1K \sum_k \varphi(f_k(x)) \, f_k'(x)

    so that the density of x is the mean of those of the members.

    Args:
        members: Transforms of one column, onto.
    """

    def __init__(self, members: Sequence[RowTransform]) -> None:
        super().__init__(1, members[0].like, members[0].context_batch)
        self.members = members

    def _map(self, x: Points, *, ladj: bool) -> Passage:
        passages = [member.map(x) for member in self.members]
        scores = torch.cat([passage.rows for passage in passages], -1)
        z = mean_score(scores)
        log_densities = [
            passage.log_det - 0.5 * passage.rows.squeeze(-1).square() for passage in passages
        ]
        log_density = torch.stack(log_densities).logsumexp(0) - math.log(len(passages))
        return Passage(z.unsqueeze(-1), log_density + 0.5 * z.square())

    def _invert(self, y: Points, *, ladj: bool) -> Passage:
        with torch.no_grad():
            x = self._solve(y)
        z, log_det, _ = self._map(x, ladj=True)
        # a Newton step changes nothing but brings the gradients of the implicit function
        x = x - (z - y) * (-log_det).exp().detach().unsqueeze(-1)
        return Passage(x, -log_det)

    def _solve(self, y: Points) -> Points:
        """Return pre-images: the root lies between those of the members."""
        ends = torch.stack([member.invert(y).rows for member in self.members])
        low, high = ends.amin(0), ends.amax(0)
        function = _OfSomeRows(self, low, torch.arange(low.numel(), device=low.device))
        target, below, above = (part.reshape(1, -1) for part in (y.expand_as(low), low, high))
        return solve_increasing(function, target, (below, above)).view_as(low)


class _OfSomeRows(NamedTuple):
    """A mixture as a function of one unknown per row; contexts go with all rows or none.

    Args:
        transform: The mixture.
        x: Points of all rows.
        rows: Those of which the unknown is asked for.
    """

    transform: MixtureTransform
    x: Points
    rows: Int[Tensor, " rows"]

    def value_and_slope(self, x: Targets) -> tuple[Targets, Targets]:
        points = self.x.flatten().index_copy(0, self.rows, x.squeeze(0)).view_as(self.x)
        z, log_det, _ = self.transform.map(points)
        return z.reshape(1, -1)[:, self.rows], log_det.exp().reshape(1, -1)[:, self.rows]

    def keep(self, rows: Bool[Tensor, " rows"]) -> "_OfSomeRows":
        return self._replace(rows=self.rows[rows])


def one_or_open(members: int | None, flow: str, settings: Mapping[str, Any]) -> int | None:
    """Return how many flows are averaged, if that is asked for, or one where they cannot be.

    Args:
        members: Number of flows that is asked for, if one is.
        flow: Their name in :mod:`bnaf.flows.registry`.
        settings: Arguments of each.

    Raises:
        SettingsError: If there is no such flow, or several cannot be averaged.

    Example:
        >>> one_or_open(None, "bnaf", {"base": "student"})
        1
    """
    from bnaf.flows.registry import flow_named

    if averages(flow, settings):
        return members
    if members not in (None, 1) and issubclass(flow_named(flow), TransformFlow):
        raise SettingsError(
            f"members must be 1 for {flow} with these settings, got {members!r}: averaged are "
            "flows that are onto, in the density direction and on a normal base."
        )
    return 1 if members is None else members


def averages(flow: str, settings: Mapping[str, Any]) -> bool:
    """Tell whether densities of flows can be averaged, as far as their settings are allowed.

    They are those of onto transforms from rows to standard normal noise: every quantile of the
    average then lies between those of its members.

    Args:
        flow: Their name in :mod:`bnaf.flows.registry`.
        settings: Arguments of each.

    Raises:
        SettingsError: If there is no such flow.
    """
    from bnaf.flows.registry import flow_named

    kind = flow_named(flow)
    if issubclass(kind, Ensemble) or not issubclass(kind, TransformFlow):
        return False
    try:
        with torch.device("cpu"), private_draws(0):
            member = kind(1, **settings)
    except (BnafError, TypeError):  # the fit tells
        return True
    normal = member.settings.get("base", "normal") == "normal"
    return normal and member.direction == "density" and member.make_transform(None).onto


class Ensemble(TransformFlow):
    """Flows of one column whose densities are averaged: each learns without a part of the rows.

    Rows that say which fold they belong to train all members but the one of that fold, and judge
    that one alone. So all rows train and all judge, and none judges what it trained.

    Args:
        features: Number of columns of a row, which is 1.
        context_features: Number of columns of a context; 0 for none.
        flow: Name of the members in :mod:`bnaf.flows.registry`.
        members: Their number.
        settings: Arguments of each.

    Example:
        >>> Ensemble(1, members=2)().log_prob(torch.zeros(7, 1)).shape
        torch.Size([7])
    """

    def __init__(
        self,
        features: int = 1,
        context_features: int = 0,
        *,
        flow: str = "bnaf",
        members: int = 5,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        from bnaf.flows.registry import flow_named

        super().__init__(features, context_features)
        if self.features != 1:
            raise SettingsError(
                f"An ensemble averages densities of one column, got features={features}; fit one "
                "flow to several."
            )
        kind = flow_named(flow)
        if issubclass(kind, Ensemble) or not issubclass(kind, TransformFlow):
            raise SettingsError(f"flow must be a transform, and no ensemble, got {flow!r}.")
        self.learning_rate = kind.learning_rate  # type: ignore[misc]
        self.members = nn.ModuleList(
            kind(features, context_features, **dict(settings or {}))
            for _ in range(whole("members", members))
        )

        for member in self.parts:
            check_normal_base(member, "An ensemble")
            if member.direction != "density":
                raise SettingsError(
                    f"An ensemble averages flows of the density direction, got direction="
                    f"{member.direction!r}; leave direction out."
                )

    @property
    def parts(self) -> list[TransformFlow]:
        """The members."""
        return [member for member in self.members if isinstance(member, TransformFlow)]

    @property
    def takes_cells(self) -> bool:
        """Whether every member does."""
        return all(flow.takes_cells for flow in self.parts)

    def start_smoothly(self) -> None:
        """Start every member as a smooth density."""
        for flow in self.parts:
            flow.start_smoothly()

    def see_contexts(self, context: Tensor) -> None:
        """Show the contexts of a table to every member."""
        for flow in self.parts:
            flow.see_contexts(context)

    def make_transform(
        self, context: Float[Tensor, "*batch context_features"] | None
    ) -> MixtureTransform:
        members = [law.transform for law in self._laws(context)]
        if not all(member.onto for member in members):
            raise SettingsError(
                "An ensemble averages flows that are onto, got one that is bounded; leave "
                "activation and residual as they are by default, or fit one flow."
            )
        return MixtureTransform(members)

    def _laws(self, context: Tensor | None) -> list[FlowDistribution]:
        """Return the laws of the members."""
        flows = self.parts
        transforms = type(flows[0]).make_transforms(flows, context)
        return [flow.law_of(each, context) for flow, each in zip(flows, transforms, strict=True)]

    def losses(
        self,
        rows: Tensor,
        context: Tensor | None = None,
        fold: Tensor | None = None,
        cells: Tensor | None = None,
    ) -> Float[Tensor, " rows"]:
        """Return what is minimised: the mean loss of the members that a row trains.

        Where folds are told and the flow is not training, it is the loss of the member that the
        row did not train; where they are not, that of the mixture.
        """
        count = len(self.parts)
        if count == 1:
            return self.parts[0].losses(rows, context, cells=cells)
        if self.training or fold is None:
            laws = self._laws(self._checked(context))
            losses = torch.stack([-score(law, rows, cells) for law in laws])
            if not self.training:
                return math.log(count) - (-losses).logsumexp(0)
            if fold is None:
                return losses.mean(0)
            members = torch.arange(count, device=rows.device).unsqueeze(1)
            learns = fold.remainder(count) != members
            return torch.where(learns, losses, 0.0).sum(0) / (count - 1)
        assert fold is not None
        total = rows.new_zeros(len(rows))
        for index, flow in enumerate(self.parts):
            own = (fold.remainder(count) == index).nonzero().squeeze(1)
            given, ends = (None if part is None else part[own] for part in (context, cells))
            total = total.index_add(0, own, flow.losses(rows[own], given, cells=ends))
        return total
