"""Bounds of plain numbers: some columns are opened before all are standardised."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from bnaf.columns.bounds import open_ends, told_bounds
from bnaf.columns.kind import Bounds
from bnaf.columns.opening import Opening
from bnaf.columns.stored import SMALLEST, bounds_of, number_of, refused, whole_of
from bnaf.errors import StorageError


@dataclass(frozen=True)
class Openings:
    """Openings of some columns, by their places; of the others nothing is changed.

    Args:
        of: The openings.

    Example:
        >>> openings = Openings({1: Opening((0.0, None), 1.0)})
        >>> rows = torch.tensor([[-3.0, 40.0]], dtype=torch.float64)
        >>> openings.apply(rows)[0], openings.told(1)
        (tensor([[-3., 40.]], dtype=torch.float64), ', at least 0')
    """

    of: Mapping[int, Opening] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.of)

    def apply(
        self, rows: Float[Tensor, "*batch columns"]
    ) -> tuple[Float[Tensor, "*batch columns"], Float[Tensor, "*batch"]]:
        """Return rows whose columns are unbounded, and the log-Jacobian of each.

        It is minus infinity of rows that lie outside of the bounds.
        """
        columns, log_det = list(rows.unbind(-1)), rows.new_zeros(rows.shape[:-1])
        for place, opening in self.of.items():
            low, high = open_ends(opening.bounds)
            x = columns[place]
            columns[place], log_slope = opening.apply(x)
            log_det = log_det + torch.where((x < low) | (x > high), -math.inf, log_slope)
        return torch.stack(columns, -1), log_det

    def undo(self, rows: Float[Tensor, "*batch columns"]) -> Float[Tensor, "*batch columns"]:
        """Return rows within the bounds, from unbounded ones."""
        if not self:
            return rows
        columns = list(rows.unbind(-1))
        for place, opening in self.of.items():
            columns[place] = opening.undo(columns[place])
        return torch.stack(columns, -1)

    def bounds(self, place: int) -> Bounds:
        """Return the bounds of a column."""
        return self.of[place].bounds if place in self.of else (None, None)

    def told(self, place: int) -> str:
        """Return the bounds of a column in words, with a comma before them."""
        return told_bounds(self.bounds(place))

    def as_list(self) -> list[dict[str, Any]]:
        """Return all of it as JSON holds it."""
        return [
            {"column": place, "bounds": list(opening.bounds), "soft": opening.soft}
            for place, opening in self.of.items()
        ]

    @classmethod
    def from_list(cls, stored: Sequence[Any], columns: int) -> "Openings":
        """Return what :meth:`as_list` has made.

        Args:
            stored: What was made.
            columns: How many columns there are.

        Raises:
            StorageError: If it is something else; model files may be anybody's.
        """
        if not all(isinstance(entry, Mapping) for entry in stored):
            raise refused("openings", "bounds by column", stored)
        found = {
            whole_of(entry, "column", 0, columns - 1): Opening(
                bounds_of(entry, "bounds"), number_of(entry, "soft", SMALLEST)
            )
            for entry in stored
        }
        if len(found) < len(stored):
            raise StorageError("A model expects the bounds of each column once, got some twice.")
        return cls(found)
