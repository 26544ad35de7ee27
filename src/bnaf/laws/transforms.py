"""Bijections of the space of rows, as torch transforms.

All keep the names of torch and zuko: ``transform(x)``, ``transform.inv(y)``,
``log_abs_det_jacobian`` and ``call_and_ladj``, which returns both from one pass. Nothing is
cached.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.distributions import constraints
from torch.distributions.transforms import Transform

from bnaf.errors import InversionError

Rows = Float[Tensor, "... features"]  # a context may broaden the batch
LogDet = Float[Tensor, "..."]


class Inversion(NamedTuple):
    """Pre-images of some rows."""

    x: Rows
    log_det: LogDet
    """log |det dy/dx| at x; zeros where it was not asked for."""
    inside: Bool[Tensor, "..."]
    """Which rows have a pre-image; x of the others has no meaning."""


class RowTransform(Transform):
    """Bijection between rows; a subclass defines ``call_and_ladj`` and ``invert``."""

    domain = codomain = constraints.real_vector
    bijective = True
    sign = +1

    @property
    def onto(self) -> bool:
        """Whether every row has a pre-image."""
        return True

    def call_and_ladj(self, x: Rows) -> tuple[Rows, LogDet]:
        """Return y and log |det dy/dx| from a single pass."""
        raise NotImplementedError

    def invert(self, y: Rows, *, ladj: bool = False) -> Inversion:
        """Return the pre-images of y, telling which rows have none."""
        raise NotImplementedError

    def _call(self, x: Rows) -> Rows:
        return self.call_and_ladj(x)[0]

    def _inverse(self, y: Rows) -> Rows:
        return reached(self.invert(y)).x

    def log_abs_det_jacobian(self, x: Rows, y: Rows) -> LogDet:
        return self.call_and_ladj(x)[1]

    @property
    def inv(self) -> "RowTransform":
        """The inverse, itself a transform."""
        return InverseTransform(self)

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = object.__hash__


def reached(inversion: Inversion) -> Inversion:
    """Return an inversion of which every row succeeded.

    Raises:
        InversionError: If a row has no pre-image.
    """
    inside = inversion.inside
    if not inside.all():
        raise InversionError(
            f"{int((~inside).sum())} of {inside.numel()} rows have no pre-image: they are not "
            "finite, or lie outside the range of a flow that is not onto. Draw with "
            'sample(..., outside="redraw"), or use activation="leaky_tanh" or a residual on every '
            "transform."
        )
    return inversion


class InverseTransform(RowTransform):
    """Inverse of another transform."""

    def __init__(self, forward: RowTransform) -> None:
        super().__init__()
        self.forward = forward

    def call_and_ladj(self, x: Rows) -> tuple[Rows, LogDet]:
        inversion = reached(self.forward.invert(x, ladj=True))
        return inversion.x, -inversion.log_det

    def invert(self, y: Rows, *, ladj: bool = False) -> Inversion:
        x, log_det = self.forward.call_and_ladj(y)
        return Inversion(x, -log_det, torch.ones_like(log_det, dtype=torch.bool))

    def _call(self, x: Rows) -> Rows:
        return reached(self.forward.invert(x)).x

    @property
    def inv(self) -> RowTransform:
        """The transform this is the inverse of."""
        return self.forward


def reorder(
    x: Float[Tensor, "features rows"], order: Int[Tensor, " features"]
) -> Float[Tensor, "features rows"]:
    """Return columns with their features in another order."""
    if torch.compiler.is_compiling():
        # as a product: compiled by torch 2.13, an indexed read together with gates gave wrong
        # gradients or corrupted memory; the cause inside the compiler is not known
        return F.one_hot(order, len(order)).to(x.dtype) @ x
    return x[order]


class PermutationTransform(RowTransform):
    """Change of the order of the features."""

    def __init__(self, order: Int[Tensor, " features"]) -> None:
        super().__init__()
        self.order = order

    def call_and_ladj(self, x: Rows) -> tuple[Rows, LogDet]:
        return x[..., self.order], x.new_zeros(x.shape[:-1])

    def invert(self, y: Rows, *, ladj: bool = False) -> Inversion:
        zeros = y.new_zeros(y.shape[:-1])
        return Inversion(
            y[..., self.order.argsort()], zeros, torch.ones_like(zeros, dtype=torch.bool)
        )


class ComposeTransform(RowTransform):
    """One transform after the other, the first of ``parts`` first."""

    def __init__(self, parts: Sequence[RowTransform]) -> None:
        super().__init__()
        self.parts = tuple(parts)

    @property
    def onto(self) -> bool:
        """Whether every part is."""
        return all(part.onto for part in self.parts)

    def call_and_ladj(self, x: Rows) -> tuple[Rows, LogDet]:
        log_det = x.new_zeros(())
        for part in self.parts:
            x, log_det_part = part.call_and_ladj(x)
            log_det = log_det + log_det_part
        return x, log_det

    def invert(self, y: Rows, *, ladj: bool = False) -> Inversion:
        log_det = y.new_zeros(y.shape[:-1])
        inside = torch.ones_like(log_det, dtype=torch.bool)
        for part in reversed(self.parts):
            y, log_det_part, inside_part = part.invert(y, ladj=ladj)
            inside = inside & inside_part
            log_det = log_det + log_det_part
        return Inversion(y, log_det, inside)
