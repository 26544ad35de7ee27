"""What a caller wants of the rows of a fit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float64
from torch import Tensor

from bnaf._checks import plain_number
from bnaf.columns.kind import Bounds
from bnaf.errors import SettingsError, TableError
from bnaf.tables.names import find_columns, list_columns
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
        for name in ("columns", "given"):
            chosen = getattr(self, name)
            if isinstance(chosen, str):
                raise SettingsError(
                    f"{name} must be a list of names, got the text {chosen!r}; give [{chosen!r}]."
                )

    @property
    def brings_rows(self) -> bool:
        """Whether other rows are given to validate on."""
        return not (self.valid is None or isinstance(self.valid, int | float))

    def choose_columns(self, available: Sequence[str]) -> tuple[list[str], list[str]]:
        """Return the names of the columns to model and of those to condition on.

        Args:
            available: All columns there are.

        Raises:
            TableError: If a column is missing, or all are given.
            SettingsError: If one is to be modelled and given.
        """
        given = list(self.given)
        names = list(self.columns or [name for name in available if name not in given])
        if not names:
            raise TableError(
                f"All columns ({', '.join(given)}) are given, expected one to model at least; "
                "give fewer."
            )
        both = [name for name in names if name in given]
        if both:
            raise SettingsError(
                f"{list_columns(both)} cannot be both modelled and given, expected one of the "
                "two; name each once."
            )
        find_columns([*names, *given], available)
        return names, given

    def check_told(self, available: Sequence[str]) -> None:
        """Refuse kinds and bounds of columns that are not there.

        Raises:
            TableError: If there are such.
        """
        find_columns([*self.kinds], available)
        find_columns([*self.bounds], available)

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
