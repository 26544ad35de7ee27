"""What is asked of every column of numbers: that they are finite, and not far from those seen."""

import numpy as np
from jaxtyping import Bool, Float64

from bnaf.columns.bounds import outside, told_bounds
from bnaf.columns.kind import Bounds
from bnaf.errors import Argument, TableError
from bnaf.tables.column import Column
from bnaf.tables.names import list_columns

FAR = 0.5  # ranges beyond the least and the largest value that were seen


def finite_numbers(column: Column) -> Float64[np.ndarray, " cells"]:
    """Return the numbers of a column that are there.

    Raises:
        TableError: If one is infinite.
    """
    values = column.present.astype(np.float64)
    wrong = int((~np.isfinite(values)).sum())
    if wrong:
        raise TableError(
            f"{list_columns([column.name])} holds {wrong:,} infinite values, expected finite "
            "numbers or empty cells; leave them empty, or read the table with ",
            Argument("drop_missing", True),
            ".",
        )
    return values


def told_within(values: Float64[np.ndarray, " cells"], bounds: Bounds) -> str:
    """Return what numbers should be if some lie outside of the bounds, in a few words."""
    return f"a number{told_bounds(bounds)}" if outside(values, bounds).any() else ""


def is_far(
    values: Float64[np.ndarray, " cells"], seen: tuple[float, float], bounds: Bounds
) -> Bool[np.ndarray, " cells"]:
    """Return which numbers lie outside of the bounds, or far from all that were seen."""
    low, high = seen
    room = FAR * (high - low)
    return outside(values, bounds) | (values < low - room) | (values > high + room)


def told_far(
    values: Float64[np.ndarray, " cells"], seen: tuple[float, float], bounds: Bounds
) -> str:
    """Return how many numbers lie outside of the bounds, or far from all that were seen."""
    wrong = values[outside(values, bounds)]
    if len(wrong):
        return f"{len(wrong):,} outside of the bounds{told_bounds(bounds)}, such as {wrong[0]:g}"
    far = values[is_far(values, seen, bounds)]
    if not len(far):
        return ""
    low, high = seen
    return f"{len(far):,} far outside of {low:g} to {high:g}, such as {far[0]:g}"
