"""Bijections between rows, with the interface of torch's transforms.

A transform knows two ways, and each of them tells where it leads: the rows on the other side, the
logarithm of how much volume grows, and which rows have somewhere to go at all. So nobody has to
ask of a transform which of its ways is the closed-form one.
"""

import copy
import weakref
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.distributions import constraints
from torch.distributions.transforms import Transform

from bnaf._checks import check_rows, in_precision
from bnaf._torch import traced
from bnaf.errors import Argument, InversionError, SettingsError
from bnaf.laws.normal import log_standard_normal

Points = Float[Tensor, "... features"]  # a context may broaden the batch
LogDet = Float[Tensor, "..."]
Inside = Bool[Tensor, "..."]


class Passage(NamedTuple):
    """Rows that have passed through a transform, or through its inverse."""

    rows: Points
    log_det: LogDet
    """Log-determinant of the Jacobian of the way taken; zeros where it was not asked for."""
    inside: Inside | None = None
    """Which rows had somewhere to go, the others having no meaning; ``None`` for all."""


class RowTransform(Transform):
    """Bijection between rows; a subclass defines ``_map`` and ``_invert``.

    Args:
        features: Number of columns of a row.
        like: A tensor of the type and on the device of the rows.
        context_batch: Batch shape of the contexts that the transform was made for.
    """

    domain = codomain = constraints.real_vector
    bijective = True
    sign = +1

    def __init__(self, features: int, like: Tensor, context_batch: Sequence[int] = ()) -> None:
        super().__init__()
        self.features, self.like = features, like
        self.context_batch = torch.Size(context_batch)
        self._known: weakref.ref[RowTransform] | None = None  # the inverse, while it is in use
        self._cached_x_y = None, None  # torch's cache
        self._cached_log_det: Tensor | None = None  # that of a way to the last y, with a cache

    @property
    def onto(self) -> bool:
        """Whether every row has a pre-image."""
        return True

    @property
    def inverted(self) -> bool:
        """Whether this was made as the inverse of another."""
        return False

    @abstractmethod
    def _map(self, x: Points, *, ladj: bool) -> Passage:
        """Return the images of rows that were checked."""

    @abstractmethod
    def _invert(self, y: Points, *, ladj: bool) -> Passage:
        """Return the pre-images of rows that were checked."""

    def map(self, x: Tensor, *, ladj: bool = True) -> Passage:
        """Return y with its log |det dy/dx|, telling which rows have an image.

        Args:
            x: Rows.
            ladj: Whether the log-determinant is wanted; where it is free, it is there anyway.

        Raises:
            ShapeError: If the number of features is wrong.
            DtypeError: If type or device are not those of the transform.
        """
        x = in_precision(x, self.like)
        check_rows(x, self.features, self.like, "x")
        return self._map(x, ladj=ladj)

    def invert(self, y: Tensor, *, ladj: bool = False) -> Passage:
        """Return x with its log |det dx/dy|, telling which rows have a pre-image.

        Args:
            y: Rows.
            ladj: As in :meth:`map`.

        Raises:
            ShapeError: If the number of features is wrong.
            DtypeError: If type or device are not those of the transform.
        """
        y = in_precision(y, self.like)
        check_rows(y, self.features, self.like, "y")
        return self._invert(y, ladj=ladj)

    def pull_back(self, x: Tensor) -> tuple[LogDet, Inside | None]:
        """Return the log-density of rows whose images are standard normal, and which have one.

        Raises:
            ShapeError: If the number of features is wrong.
            DtypeError: If type or device are not those of the transform.
        """
        x = in_precision(x, self.like)
        check_rows(x, self.features, self.like, "x")
        return self._pull_back(x)

    def _pull_back(self, x: Points) -> tuple[LogDet, Inside | None]:
        """Return the log-density of rows that were checked; a subclass may know a shorter way."""
        y, log_det, inside = self._map(x, ladj=True)
        return log_standard_normal(y) + log_det, inside

    def call_and_ladj(self, x: Tensor) -> tuple[Points, LogDet]:
        """Return y and log |det dy/dx| from a single pass.

        Raises:
            InversionError: If a row has no image.
        """
        if self._cache_size:
            y = self(x)
            return y, self.log_abs_det_jacobian(x, y)
        y, log_det, _ = reached(self.map(x))
        return y, log_det

    def _call(self, x: Tensor) -> Points:
        # whoever keeps a value is about to ask for its log-determinant
        y, log_det, _ = reached(self.map(x, ladj=bool(self._cache_size)))
        self._cached_log_det = log_det if self._cache_size else None
        return y

    def _inverse(self, y: Tensor) -> Points:
        self._cached_log_det = None
        return reached(self.invert(y)).rows

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> LogDet:
        before, after = self._cached_x_y
        known = self._cached_log_det
        if known is None or x is not before or y is not after:
            return reached(self.map(x)).log_det
        return known

    def with_cache(self, cache_size: int = 1) -> "RowTransform":
        """Return the same transform with a memory of the last rows that passed, both ways.

        Args:
            cache_size: 1 for a memory, 0 for none.

        Raises:
            SettingsError: If it is neither.
        """
        if cache_size not in (0, 1):
            raise SettingsError(f"cache_size must be 0 or 1, got {cache_size!r}.")
        if self._cache_size == cache_size:
            return self
        twin = copy.copy(self)
        twin._cache_size = cache_size
        return twin

    def forward_shape(self, shape: Sequence[int]) -> torch.Size:
        """Return the shape of the images of rows: one for each row and each context."""
        *batch, features = shape
        return torch.Size((*torch.broadcast_shapes(batch, self.context_batch), features))

    def inverse_shape(self, shape: Sequence[int]) -> torch.Size:
        """Return the shape of the pre-images of rows: one for each row and each context."""
        return self.forward_shape(shape)

    @property
    def inv(self) -> "RowTransform":
        """The inverse, itself a transform; its own inverse is this one."""
        known: RowTransform | None = None if self._known is None else self._known()
        return InverseTransform(self) if known is None else known

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()  # type: ignore[no-untyped-call]
        return state | {"_known": None, "_cached_x_y": (None, None), "_cached_log_det": None}

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = object.__hash__


def reached(passage: Passage) -> Passage:
    """Return a passage in which every row arrived.

    Under torch.compile and torch.func, which keep values out of reach, rows that did not arrive
    are undefined numbers instead.

    Raises:
        InversionError: If a row has no pre-image.
    """
    inside = passage.inside
    if inside is None:
        return passage
    if traced():
        rows = torch.where(inside.unsqueeze(-1), passage.rows, torch.nan)
        return Passage(rows, torch.where(inside, passage.log_det, torch.nan))
    if not inside.all():
        raise InversionError(
            f"{int((~inside).sum())} of {inside.numel()} rows have no pre-image: they are not "
            "finite, or lie outside the range of a flow that is not onto. Draw again with ",
            Argument("outside", "redraw"),
            ', or use activation="leaky_tanh" or a residual on every transform.',
        )
    return passage


def finite_passage(rows: Points, log_det: LogDet) -> Passage:
    """Return the passage through a bijection of the whole space: finite rows arrive."""
    return Passage(rows, log_det.expand(rows.shape[:-1]), rows.isfinite().all(-1))


class InverseTransform(RowTransform):
    """Inverse of another transform: its two ways change places, and the other has the cache."""

    def __init__(self, forward: RowTransform) -> None:
        super().__init__(forward.features, forward.like, forward.context_batch)
        self.forward = forward
        self.domain, self.codomain = forward.codomain, forward.domain
        self._cache_size = forward._cache_size
        forward._known = weakref.ref(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.forward._known = weakref.ref(self)

    @property
    def inverted(self) -> bool:
        """Whether the other was not."""
        return not self.forward.inverted

    def _map(self, x: Points, *, ladj: bool) -> Passage:
        return self.forward._invert(x, ladj=ladj)

    def _invert(self, y: Points, *, ladj: bool) -> Passage:
        return self.forward._map(y, ladj=ladj)

    def __call__(self, x: Tensor) -> Points:
        found: Tensor = self.forward._inv_call(x)  # type: ignore[no-untyped-call]
        return found

    def _inv_call(self, y: Tensor) -> Points:
        found: Tensor = self.forward(y)
        return found

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> LogDet:
        return -self.forward.log_abs_det_jacobian(y, x)

    def with_cache(self, cache_size: int = 1) -> RowTransform:
        """Return the inverse of the other with a memory."""
        return self.forward.with_cache(cache_size).inv

    @property
    def inv(self) -> RowTransform:
        """The transform this is the inverse of."""
        return self.forward


class PermutationTransform(RowTransform):
    """Change of the order of the features.

    Args:
        order: Feature i of y is feature ``order[i]`` of x.
        like: A tensor of the type of the rows.
    """

    def __init__(self, order: Int[Tensor, " features"], like: Tensor) -> None:
        super().__init__(len(order), like)
        self.order = order

    def _map(self, x: Points, *, ladj: bool) -> Passage:
        return Passage(x[..., self.order], x.new_zeros(x.shape[:-1]))

    def _invert(self, y: Points, *, ladj: bool) -> Passage:
        return Passage(y[..., self.order.argsort()], y.new_zeros(y.shape[:-1]))


class ComposeTransform(RowTransform):
    """One transform after the other, the first of ``parts`` first.

    Args:
        parts: One of ours at least; those of torch are taken in as
            :class:`bnaf.laws.adopted.TorchTransform`.

    Raises:
        SettingsError: If none is of ours, or one is no bijection.
        ShapeError: If one of torch's is not of rows.
    """

    def __init__(self, parts: Sequence[Transform]) -> None:
        from bnaf.laws.adopted import TorchTransform  # which is a transform of this module's kind

        first = next((part for part in parts if isinstance(part, RowTransform)), None)
        if first is None:
            raise SettingsError(
                "ComposeTransform expects at least one transform of the library among its parts, "
                "got none; use torch.distributions.ComposeTransform."
            )
        features, like = first.features, first.like
        self.parts = tuple(
            part if isinstance(part, RowTransform) else TorchTransform(part, features, like)
            for part in parts
        )
        batch = torch.broadcast_shapes(*(part.context_batch for part in self.parts))
        super().__init__(features, like, batch)
        self.domain, self.codomain = self.parts[0].domain, self.parts[-1].codomain

    @property
    def onto(self) -> bool:
        """Whether every part is."""
        return all(part.onto for part in self.parts)

    @property
    def inverted(self) -> bool:
        """Whether some part is: then this is not closed-form either."""
        return any(part.inverted for part in self.parts)

    def _map(self, x: Points, *, ladj: bool) -> Passage:
        return _follow(x, [part._map for part in self.parts], ladj)

    def _invert(self, y: Points, *, ladj: bool) -> Passage:
        return _follow(y, [part._invert for part in reversed(self.parts)], ladj)

    def _pull_back(self, x: Points) -> tuple[LogDet, Inside | None]:
        *first, last = self.parts
        y, log_det, inside = _follow(x, [part._map for part in first], ladj=True)
        log_prob, inside_last = last._pull_back(y)
        return log_prob + log_det, _both(inside, inside_last)


def _follow(rows: Tensor, ways: Sequence[Callable[..., Passage]], ladj: bool) -> Passage:
    """Return where rows are led by one way after the other."""
    log_det: Tensor = rows.new_zeros(())
    inside: Inside | None = None
    for way in ways:
        rows, log_det_part, inside_part = way(rows, ladj=ladj)
        log_det, inside = log_det + log_det_part, _both(inside, inside_part)
    return Passage(rows, log_det.expand(rows.shape[:-1]), inside)


def _both(one: Inside | None, other: Inside | None) -> Inside | None:
    """Return which rows are inside both ways; ``None`` stands for all."""
    if one is None or other is None:
        return one if other is None else other
    return one & other
