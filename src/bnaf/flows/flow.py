"""What a flow is: a module whose call returns a law."""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, ClassVar, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Generator, Tensor, nn
from torch.distributions import Distribution

from bnaf._checks import check_rows, in_precision, plain, whole
from bnaf.errors import ShapeError


class MissingMass(NamedTuple):
    """Share of the base that a flow cannot reach."""

    share: float
    standard_error: float


class Pull(NamedTuple):
    """Gaussian prior of a parameter: what it is pulled to, and how hard."""

    centre: Tensor
    precision: float


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

    A flow says in :meth:`make_law` how its law is made; those whose law is a transform of noise,
    all but few, derive from :class:`bnaf.flows.transformed.TransformFlow`, and say how that is
    made. Where it differs from others, it also says what rate it is trained at, what sizes suit a
    table, how it starts smoothly or from a first batch, what values its rows may have, and what
    its weights are pulled to. All else stands here.

    The arguments of its constructor are its settings, recorded by themselves; numbers of NumPy
    and torch among them come as plain ones.

    Args:
        features: Number of columns of a row.
        context_features: Number of columns of a context; 0 for a flow without one.
    """

    learning_rate: ClassVar[float] = 0.003
    """Rate that a fit takes where its settings leave it open."""

    takes_numbers: ClassVar[bool] = True
    """Whether tables of plain numbers are fitted by it: its constructor takes their number."""

    takes_kinds: ClassVar[bool] = False
    """Whether rows of every kind are fitted where it is asked for."""

    order_buffers: ClassVar[tuple[str, ...]] = ()
    """Buffers whose rows are orders of the features: files in which they are not are refused."""

    _settings: dict[str, Any]

    def __init__(self, features: int, context_features: int = 0) -> None:
        super().__init__()
        self.features = whole("features", features)
        self.context_features = whole("context_features", context_features, least=0)

    def __init_subclass__(cls, **settings: Any) -> None:
        super().__init_subclass__(**settings)
        if "__init__" in cls.__dict__:
            cls.__init__ = _recorded(cls.__init__)  # type: ignore[method-assign]

    @abstractmethod
    def make_law(self, context: Float[Tensor, "*batch context_features"] | None) -> Distribution:
        """Return the law of rows given a context.

        Args:
            context: Conditioning rows, checked; ``None`` for a flow without context.
        """

    @classmethod
    def sizes_for(
        cls,
        features: int,
        *,
        small: bool,
        many: bool = False,
        given: int = 0,
    ) -> dict[str, Any]:
        """Return the settings that suit a table; those of the constructor by default.

        Args:
            features: Number of columns, those given left out.
            small: Whether the table is small, as :func:`bnaf.training.recipe.is_small` says.
            many: Whether its rows are so many that a larger flow pays.
            given: Number of columns that are given.
        """
        return {}

    def see_contexts(self, context: Tensor) -> None:
        """Set what is set from all contexts of a table before training, if anything is."""

    def rates(self) -> dict[str, tuple[float, list[nn.Parameter]]]:
        """Return parameters that want another rate: by a name, the share of the rate and which."""
        return {}

    def impossible(self, rows: Float[Tensor, "rows features"]) -> Bool[Tensor, "rows features"]:
        """Tell which values no row can have: by default those that are not finite."""
        return ~rows.isfinite()

    @property
    def parts(self) -> "Sequence[Flow]":
        """Flows whose densities average to that of this one: itself alone, but for ensembles."""
        return [self]

    @property
    def takes_cells(self) -> bool:
        """Whether rows may be cells, which count by their mass; no by default."""
        return False

    def losses(
        self,
        rows: Tensor,
        context: Tensor | None = None,
        fold: Tensor | None = None,
        cells: Tensor | None = None,
    ) -> Float[Tensor, " rows"]:
        """Return what maximum likelihood minimises: minus the log-density of each row.

        Args:
            rows: Rows.
            context: What they are conditioned on, for a flow that takes contexts.
            fold: Which part of the table each row belongs to, for flows of several members.
            cells: How far the cells that rows stand for reach down and up, for a flow that takes
                such: then it is minus the logarithm of the mean density of each cell.
        """
        return -score(self(context), rows, cells)

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

    def forward(self, context: Tensor | None = None) -> Distribution:
        """Return the law of rows given a context.

        Args:
            context: Conditioning rows; none for a flow without context. Its batch shape broadcasts
                against that of the rows.

        Raises:
            ShapeError: If a context is missing, not wanted, or of the wrong size.
            DtypeError: If it is not of the flow's floating-point type.
        """
        return self.make_law(self._checked(context))

    def _checked(self, context: Tensor | None) -> Tensor | None:
        """Return a context in the precision of the flow, having checked it."""
        like = next(self.parameters())
        context = None if context is None else in_precision(context, like)
        self._check_context(context, like)
        return context

    def constant(self, context: Tensor | None = None) -> Distribution:
        """Return the same law as a call, made of weights without gradients.

        The gradient of its log-density goes through rows and contexts alone.

        Args:
            context: As of a call.
        """
        weights = {name: weight.detach() for name, weight in self.named_parameters()}
        law: Distribution = torch.func.functional_call(self, weights, (context,))
        return law

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
        """Return the share of the base that the flow cannot reach: none by default.

        Args:
            draws: Number of draws of the base, per context, where it has to be estimated.
            context: Conditioning rows, for a flow that takes them.
            generator: Where the draws come from; torch's own by default.
        """
        return MissingMass(0.0, 0.0)


def score(law: Any, rows: Tensor, cells: Tensor | None = None) -> Float[Tensor, "*batch"]:
    """Return the log-density of rows, or of the cells that they stand for.

    Args:
        law: Their law.
        rows: The rows.
        cells: How far their cells reach down and up, if they stand for such.
    """
    found: Tensor = law.log_prob(rows) if cells is None else law.log_mean_density(rows, cells)
    return found
