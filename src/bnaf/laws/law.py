"""What all laws of rows have in common."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints

from bnaf._checks import check_rows, in_precision
from bnaf._torch import changes
from bnaf.errors import ShapeError, StaleLawError


class RowLaw(Distribution):
    """Law of rows, of the type and on the device of a tensor, one for each context.

    Args:
        features: Number of columns of a row.
        like: A tensor of the type and on the device of its rows.
        batch_shape: Shape of the contexts it was made for.
        watched: Weights that are looked up when it is used, and that must not have changed by
            then.
    """

    arg_constraints: dict[str, constraints.Constraint] = {}  # noqa: RUF012

    def __init__(
        self,
        features: int,
        like: Tensor,
        batch_shape: Sequence[int] = (),
        *,
        watched: Sequence[Tensor] = (),
    ) -> None:
        self.like = like
        self._watched = [(weight, changes(weight)) for weight in watched]
        super().__init__(torch.Size(batch_shape), torch.Size((features,)), validate_args=False)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_watched": []}  # the weights of a copy are its own

    @property
    def features(self) -> int:
        """Number of columns of a row."""
        return self.event_shape[0]

    def expand(self, batch_shape: Any, _instance: Any = None) -> "RowLaw":
        """Return the same law with a larger batch shape."""
        batch_shape = torch.Size(batch_shape)
        try:
            fits = torch.broadcast_shapes(batch_shape, self.batch_shape) == batch_shape
        except RuntimeError:
            fits = False
        if not fits:
            raise ShapeError(
                f"A law of batch shape {tuple(self.batch_shape)} cannot be expanded to "
                f"{tuple(batch_shape)}; expand its dimensions of size 1, or add some in front."
            )
        law = type(self).__new__(type(self)) if _instance is None else _instance
        law.__dict__.update(self.__dict__)  # whatever a subclass has, it keeps
        law._batch_shape = batch_shape
        return law

    def _check_unchanged(self) -> None:
        for weight, before in self._watched:
            now = changes(weight)
            if now is None or before is None or now == before:
                continue
            raise StaleLawError(
                "The weights of the flow have changed since it made this law; call the flow again."
            )

    def _checked(self, value: Tensor, name: str = "x") -> Tensor:
        """Return rows that fit the law, one for each context."""
        self._check_unchanged()
        value = in_precision(value, self.like)
        check_rows(value, self.features, self.like, name)
        if not self.batch_shape or value.shape[:-1] == self.batch_shape:
            return value
        try:
            batch = torch.broadcast_shapes(value.shape[:-1], self.batch_shape)
        except RuntimeError:
            raise ShapeError(
                f"{name} of shape {tuple(value.shape)} does not broadcast with the context, whose "
                f"batch shape is {tuple(self.batch_shape)}; give one row per context, or one."
            ) from None
        return value.expand(*batch, -1)
