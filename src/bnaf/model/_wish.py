"""What a caller wants of the rows of a fit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float64
from torch import Tensor

from bnaf._checks import plain_number
from bnaf.columns.kind import Bounds
from bnaf.training.batches import as_weights
from bnaf.training.recipe import Division, divide_rows


@dataclass(frozen=True, eq=False)
class Wish:
    """What of some rows is to be fitted, and how they are split.

    Anything that NumPy takes for a number is one.

    Args:
        columns: Columns to model; all that are not given by default.
        given: Columns to condition on.
        valid: Validation rows, or a share or number of the rows.
        test: Share or number of rows that are left out.
        weights: How much each row counts.
        seed: Seed of the split.
        members: Number of flows that are averaged.
        kinds: What some columns mean, by name.
        bounds: Least and largest value of some columns, by name.
    """

    columns: Sequence[str] | None = None
    given: Sequence[str] = ()
    valid: Any = None
    test: float = 0.0
    weights: Any = None
    seed: int = 0
    members: int | None = None
    kinds: Mapping[str, str] = field(default_factory=dict)
    bounds: Mapping[str, Bounds] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("valid", "test", "seed"):
            object.__setattr__(self, name, plain_number(getattr(self, name)))

    @property
    def brings_rows(self) -> bool:
        """Whether other rows are given to validate on."""
        return not (self.valid is None or isinstance(self.valid, int | float))

    def divide(
        self, rows: int, columns: int, given: int, *, mixed: bool = False, members: int | None
    ) -> Division:
        """Return how so many rows are divided, none set aside where others are given.

        Args:
            rows: Number of rows.
            columns: Number of columns to model.
            given: Number of columns to condition on.
            mixed: Whether columns are of several kinds.
            members: Number of flows that are averaged, if it is asked for.
        """
        return divide_rows(
            rows,
            valid=0.0 if self.brings_rows else self.valid,
            test=self.test,
            weighted=self.weights is not None,
            mixed=mixed,
            columns=columns,
            given=given,
            members=members,
        )

    def weigh(self, rows: int) -> Float64[Tensor, " rows"] | None:
        """Return how much each of so many rows counts, where that is told.

        Raises:
            ShapeError: If there is not one weight per row.
            SettingsError: If one is negative or not finite, or none is positive.
        """
        if self.weights is None:
            return None
        return as_weights(self.weights, rows, torch.empty(0, dtype=torch.float64), "weights")
