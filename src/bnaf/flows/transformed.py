"""Flows whose law is that of a transform of noise."""

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from bnaf._checks import one_of, whole
from bnaf.errors import SettingsError, ShapeError
from bnaf.flows.bases import BASES, ScaledBase, StudentBase
from bnaf.flows.flow import Flow, MissingMass
from bnaf.laws.bases import StandardNormal
from bnaf.laws.distribution import FlowDistribution
from bnaf.laws.transforms import ComposeTransform, RowTransform

DIRECTIONS = ("density", "sampling")


class TransformFlow(Flow):
    """Flow that transforms rows to noise, standard normal unless set, or noise to rows.

    It says in :meth:`make_transform` how the transform is made.

    Args:
        features: Number of columns of a row.
        context_features: Number of columns of a context; 0 for a flow without one.
        direction: Which side is computed forwards: "density" (log_prob) or "sampling" (rsample).
        base: What the noise follows: the "normal" law or, for heavy tails, Student's t
            ("student"), whose degrees of freedom are learned, or a normal law with a mean and a
            deviation ("scaled"), which :meth:`scale_base` sets.
    """

    snapshots: ClassVar[bool] = False
    """Whether its laws keep what they were made of, untouched by a step of an optimiser. Those of
    other flows refuse to be used after one, unless it is a fused one, which torch does not count.
    """

    def __init__(
        self,
        features: int,
        context_features: int = 0,
        direction: str = "density",
        base: str = "normal",
    ) -> None:
        super().__init__(features, context_features)
        self.direction = one_of("direction", direction, DIRECTIONS)
        self.base_law: StudentBase | None = None
        self.base_scale: ScaledBase | None = None
        if one_of("base", base, BASES) == "student":
            self.base_law = StudentBase(self.features)
        elif base == "scaled":
            self.base_scale = ScaledBase(self.features)

    @abstractmethod
    def make_transform(
        self, context: Float[Tensor, "*batch context_features"] | None
    ) -> RowTransform:
        """Return the transform from rows to base noise, or back in the sampling direction.

        Args:
            context: Conditioning rows, checked; ``None`` for a flow without context.
        """

    @classmethod
    def make_transforms(
        cls,
        flows: "Sequence[TransformFlow]",
        context: Float[Tensor, "*batch context_features"] | None,
    ) -> list[RowTransform]:
        """Return the transforms of several flows of this class, made with the same settings.

        A flow that can make them faster than one by one says how.

        Args:
            flows: The flows.
            context: As in :meth:`make_transform`.
        """
        return [flow.make_transform(context) for flow in flows]

    def make_law(
        self, context: Float[Tensor, "*batch context_features"] | None
    ) -> FlowDistribution:
        """Return the transform, turned round in the sampling direction, on its base."""
        return self.law_of(self.make_transform(context), context)

    def law_of(self, transform: RowTransform, context: Tensor | None) -> FlowDistribution:
        """Return the law of a transform that this flow made.

        Args:
            transform: The transform.
            context: What it was made for.
        """
        batch = torch.Size() if context is None else context.shape[:-1]
        if self.direction == "sampling":
            transform = transform.inv
        if self.base_scale is not None:
            transform = ComposeTransform([transform, self.base_scale()])
        normal = StandardNormal(self.features, next(self.parameters()).detach())
        base = normal if self.base_law is None else self.base_law()
        watched = () if self.snapshots else tuple(self.parameters())
        return FlowDistribution(transform, base, batch, watched=watched)

    @torch.no_grad()
    def scale_base(self, location: Tensor, scale: Tensor) -> None:
        """Make the noise follow a normal law with a mean and a deviation, from now on.

        Training on leaves them as they are.

        Args:
            location: The mean of each feature.
            scale: The deviation of each, positive.

        Raises:
            SettingsError: If the flow has no base to choose, or another than a normal law, or a
                number is not finite, or a deviation not positive.
            ShapeError: If there is not one number for each feature.
        """
        base = self.settings.get("base")
        if base not in ("normal", "scaled"):
            kind = type(self).__name__
            found = f"{kind}, which has none to choose" if base is None else f"base={base!r}"
            raise SettingsError(
                f"A base to be scaled must be normal, got {found}; take a BNAF with base='normal'."
            )
        location, scale = torch.as_tensor(location), torch.as_tensor(scale)
        if not location.shape == scale.shape == (self.features,):
            raise ShapeError(
                f"A base must have a mean and a deviation for each feature, shape "
                f"({self.features},), got {tuple(location.shape)} and {tuple(scale.shape)}."
            )
        log_scale = scale.log()
        if not bool((location.isfinite() & log_scale.isfinite()).all()):
            raise SettingsError(
                "A base must have finite means and positive finite deviations, got "
                f"{location.tolist()} and {scale.tolist()}."
            )
        scaled = ScaledBase(self.features).to(next(self.parameters()))
        scaled.location.copy_(location)
        scaled.log_scale.copy_(log_scale)
        self.base_scale = scaled
        self._settings["base"] = "scaled"

    def missing_mass(
        self,
        draws: int = 10_000,
        context: Tensor | None = None,
        *,
        generator: Generator | None = None,
    ) -> MissingMass:
        """Return the share of the base that has no pre-image, and its standard error.

        A density that is the pull-back of its base through a map that is not onto integrates to
        one minus this share. It is exactly 0 where every transform is onto, and in the sampling
        direction.

        Args:
            draws: Number of draws of the base, per context.
            context: Conditioning rows, for a flow that takes them.
            generator: Where the draws come from; torch's own by default.
        """
        draws = whole("draws", draws)
        with torch.no_grad():
            law = self(context)
            if law.onto:
                return MissingMass(0.0, 0.0)
            outside = law.draw_inside((draws,), generator)[1]
            share = outside.to(torch.float64).mean().item()
            # one draw more on either side, so that an estimate of 0 or 1 is not taken for certain
            smooth = (share * outside.numel() + 1) / (outside.numel() + 2)
            return MissingMass(share, math.sqrt(smooth * (1 - smooth) / outside.numel()))


def check_normal_base(flow: Flow, who: str) -> None:
    """Refuse a flow on another base than the normal law.

    Raises:
        SettingsError: If it is on one.
    """
    if flow.settings.get("base", "normal") != "normal":
        raise SettingsError(
            f"{who} takes flows on a normal base, got base={flow.settings['base']!r}; make one "
            "with base='normal'."
        )
