"""Transforms of others, made ours."""

from typing import Any

import torch
from torch import Tensor
from torch.distributions import constraints
from torch.distributions.transforms import Transform

from bnaf.errors import SettingsError, ShapeError
from bnaf.laws.transforms import Passage, Points, RowTransform


class TorchTransform(RowTransform):
    """A transform of torch, or of whoever keeps to its interface, among ours.

    Args:
        transform: A bijection of rows, or of each of their features.
        features: Number of columns of a row.
        like: A tensor of the type and on the device of the rows.

    Raises:
        SettingsError: If it is no bijection.
        ShapeError: If it maps rows to something else.
    """

    def __init__(self, transform: Transform, features: int, like: Tensor) -> None:
        name = type(transform).__name__
        if not transform.bijective:
            raise SettingsError(f"{name} is no bijection of rows; leave it out.")
        rows = max(transform.domain.event_dim, transform.codomain.event_dim) <= 1
        *batch, last = transform.forward_shape(torch.Size((features,))) if rows else (0,)
        if last != features:
            raise ShapeError(
                f"{name} must map rows of {features} features to such rows to stand among "
                "transforms of them; leave it out."
            )
        super().__init__(features, like, batch)
        self.transform = transform
        self.domain, self.codomain = map(_of_rows, (transform.domain, transform.codomain))

    @property
    def onto(self) -> bool:
        """Whether its codomain is all of space."""
        return _is_everything(self.transform.codomain)

    def _map(self, x: Points, *, ladj: bool) -> Passage:
        return self._pass(self.transform, x, ladj)

    def _invert(self, y: Points, *, ladj: bool) -> Passage:
        return self._pass(self.transform.inv, y, ladj)

    def _pass(self, transform: Transform, x: Points, ladj: bool) -> Passage:
        inside: Tensor = transform.domain.check(x)
        inside = inside.all(-1) if transform.domain.event_dim == 0 else inside
        y = transform(x)
        log_det = y.new_zeros(y.shape[:-1])
        if ladj:
            found: Tensor = transform.log_abs_det_jacobian(x, y)
            log_det = found.sum(-1) if transform.domain.event_dim == 0 else found
        if not _is_everything(transform.domain):  # numbers without meaning stay out of gradients
            y = torch.where(inside.unsqueeze(-1), y, 0.0)
            log_det = torch.where(inside, log_det, 0.0)
        return Passage(y, log_det.expand(y.shape[:-1]), inside.expand(y.shape[:-1]))


def _of_rows(constraint: Any) -> Any:
    """Return what rows have to keep to whose features each keep to it, if it is of features."""
    if constraint.event_dim == 1:
        return constraint
    if constraint is constraints.real:
        return constraints.real_vector
    return constraints.independent(constraint, 1)


def _is_everything(constraint: Any) -> bool:
    return constraint in (constraints.real, constraints.real_vector)
