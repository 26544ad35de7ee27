"""What a flow is: a module whose call returns a law."""

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, ClassVar, NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from bnaf._checks import check_rows, in_precision, one_of, plain, whole
from bnaf.errors import SettingsError, ShapeError
from bnaf.flows.bases import BASES, StudentBase
from bnaf.laws.bases import StandardNormal
from bnaf.laws.distribution import FlowDistribution
from bnaf.laws.transforms import RowTransform

DIRECTIONS = ("density", "sampling")


class MissingMass(NamedTuple):
    """Share of the base that a flow cannot reach."""

    share: float
    standard_error: float


class Pull(NamedTuple):
    """Gaussian prior of a parameter: what it is pulled to, and how hard."""

    centre: Tensor
    precision: float


def check_normal_base(flow: "Flow", who: str) -> None:
    """Refuse a flow on another base than the normal law.

    Raises:
        SettingsError: If it is on one.
    """
    if flow.base_law is not None:
        raise SettingsError(
            f"{who} takes flows on a normal base, got base='student'; leave base out."
        )


def _recorded(constructor: Callable[..., None]) -> Callable[..., None]:
    """Let a constructor take plain settings, and keep them with what it makes."""
    signature = inspect.signature(constructor)

    @wraps(constructor)
    def construct(self: "Flow", *args: Any, **kwargs: Any) -> None:
        try:
            bound = signature.bind(self, *args, **kwargs)
        except TypeError:  # which the constructor tells better
            return constructor(self, *args, **kwargs)
        bound.apply_defaults()
        _, *settings = bound.arguments.items()
        plain_settings = {name: plain(value) for name, value in settings}
        constructor(self, **plain_settings)
        self._settings = plain_settings

    return construct


class Flow(nn.Module, ABC):
    """Module whose call returns a law: ``flow(context).log_prob(x)``.

    A flow says in :meth:`make_transform` how its transform is made. Where it differs from others,
    it also says what rate it is trained at, what sizes suit a table, how it starts smoothly or
    from a first batch, and what its weights are pulled to. All else stands here.

    The arguments of its constructor are its settings, recorded by themselves; numbers of NumPy
    and torch among them come as plain ones.

    Args:
        features: Number of columns of a row.
        context_features: Number of columns of a context; 0 for a flow without one.
        direction: Which side is computed forwards: "density" (log_prob) or "sampling" (rsample).
        base: What the noise follows: the "normal" law or, for heavy tails, Student's t
            ("student"), whose degrees of freedom are learned.
    """

    learning_rate: ClassVar[float] = 0.003
    """Rate that a fit takes where its settings leave it open."""

    order_buffers: ClassVar[tuple[str, ...]] = ()
    """Buffers whose rows are orders of the features: files in which they are not are refused."""

    snapshots: ClassVar[bool] = False
    """Whether its laws keep what they were made of, untouched by a step of an optimiser. Those of
    other flows refuse to be used after one, unless it is a fused one, which torch does not count.
    """

    _settings: dict[str, Any]

    def __init__(
        self,
        features: int,
        context_features: int = 0,
        direction: str = "density",
        base: str = "normal",
    ) -> None:
        super().__init__()
        self.features = whole("features", features)
        self.context_features = whole("context_features", context_features, least=0)
        self.direction = one_of("direction", direction, DIRECTIONS)
        self.base_law: StudentBase | None = None
        if one_of("base", base, BASES) == "student":
            self.base_law = StudentBase(self.features)

    def __init_subclass__(cls, **settings: Any) -> None:
        super().__init_subclass__(**settings)
        if "__init__" in cls.__dict__:
            cls.__init__ = _recorded(cls.__init__)  # type: ignore[method-assign]

    @abstractmethod
    def make_transform(
        self, context: Float[Tensor, "*batch context_features"] | None
    ) -> RowTransform:
        """Return the transform from rows to base noise, or back in the sampling direction.

        Args:
            context: Conditioning rows, checked; ``None`` for a flow without context.
        """

    @classmethod
    def sizes_for(cls, features: int, *, small: bool) -> dict[str, Any]:
        """Return the settings that suit a table; those of the constructor by default.

        Args:
            features: Number of columns.
            small: Whether its rows are few.
        """
        return {}

    @classmethod
    def context_sizes_for(cls, given: int, rows: int | None) -> dict[str, Any]:
        """Return the settings that suit so many given columns; the constructor's by default.

        Args:
            given: Number of columns that are given.
            rows: Number of rows, where it is known.
        """
        return {}

    def see_contexts(self, context: Tensor) -> None:
        """Set what is set from all contexts of a table before training, if anything is."""

    def rates(self) -> dict[str, tuple[float, list[nn.Parameter]]]:
        """Return parameters that want another rate: by a name, the share of the rate and which."""
        return {}

    @property
    def parts(self) -> "list[Flow]":
        """Flows whose densities average to that of this one: itself alone, but for ensembles."""
        return [self]

    def losses(
        self, rows: Tensor, context: Tensor | None = None, fold: Tensor | None = None
    ) -> Float[Tensor, " rows"]:
        """Return what maximum likelihood minimises: minus the log-density of each row.

        Args:
            rows: Rows.
            context: What they are conditioned on, for a flow that takes contexts.
            fold: Which part of the table each row belongs to, for flows of several members.
        """
        losses: Tensor = -self(context).log_prob(rows)
        return losses

    @classmethod
    def settings_of(cls, recorded: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings of a flow in a file, with those that came after it was written."""
        return dict(recorded)

    def start_smoothly(self) -> None:
        """Start as a smooth density of rows that are white, where the flow knows how."""

    def start_from(self, rows: Tensor, context: Tensor | None = None) -> None:
        """Set what is set from a first batch, if anything is.

        Call it once before training, with a batch of what the transform takes in: data in the
        density direction, draws of the base in the sampling direction.

        Args:
            rows: At least two rows.
            context: Their contexts, for a flow that takes them.

        Raises:
            ShapeError: If they do not fit the flow, or there are fewer than two.
            DtypeError: If they are not of the flow's floating-point type.
        """
        like = next(self.parameters())
        check_rows(rows, self.features, like, "rows")
        self._check_context(context, like)
        if rows.dim() != 2 or len(rows) < 2:
            raise ShapeError(f"start_from expects at least 2 rows, got shape {tuple(rows.shape)}.")
        self._start_from(rows, context)

    def _start_from(self, rows: Tensor, context: Tensor | None) -> None:
        """Set what is set from rows and contexts that were checked."""

    def pulls(self) -> dict[nn.Parameter, Pull]:
        """Return the priors of parameters that are not pulled to where they started."""
        return {}

    @property
    def settings(self) -> dict[str, Any]:
        """The arguments that make this flow anew."""
        return dict(self._settings)

    @property
    def parameter_count(self) -> int:
        """Number of weights that act, the context network included."""
        masked = sum(getattr(module, "masked_weights", 0) for module in self.modules())
        return sum(parameter.numel() for parameter in self.parameters()) - masked

    def forward(self, context: Tensor | None = None) -> FlowDistribution:
        """Return the law of rows given a context.

        Args:
            context: Conditioning rows; none for a flow without context. Its batch shape broadcasts
                against that of the rows.

        Raises:
            ShapeError: If a context is missing, not wanted, or of the wrong size.
            DtypeError: If it is not of the flow's floating-point type.
        """
        like = next(self.parameters())
        context = None if context is None else in_precision(context, like)
        self._check_context(context, like)
        transform = self.make_transform(context)
        if self.direction == "sampling":
            transform = transform.inv
        batch = torch.Size() if context is None else context.shape[:-1]
        normal = StandardNormal(self.features, like.detach())
        base = normal if self.base_law is None else self.base_law()
        watched = () if self.snapshots else tuple(self.parameters())
        return FlowDistribution(transform, base, batch, watched=watched)

    def _check_context(self, context: Tensor | None, like: Tensor) -> None:
        if self.context_features == 0 and context is not None:
            shape: Sequence[int] = getattr(context, "shape", ())
            raise ShapeError(
                "This flow takes no context; call flow(), or build it with "
                f"context_features={shape[-1] if len(shape) else 1}."
            )
        if self.context_features and context is None:
            raise ShapeError(
                f"This flow expects a context of {self.context_features} features; "
                "call flow(context)."
            )
        if context is not None:
            check_rows(context, self.context_features, like, "context")

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in self.settings.items())

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
