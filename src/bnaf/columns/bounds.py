"""Bounds of a column: given, or learned where values pile up at zero."""

import math

import numpy as np
from jaxtyping import Float64

from bnaf.columns.kind import Bounds
from bnaf.errors import TableError
from bnaf.tables.names import list_columns

PILE = 3  # zeros that are no chance
FEWEST = 20  # values that crowding is told from


def choose_bounds(name: str, values: Float64[np.ndarray, " rows"], given: Bounds | None) -> Bounds:
    """Return lower and upper bound of a column, ``None`` where there is none.

    Without given ones, zero is the lower bound of a column that has no negative value, and either
    several zeros, or values that crowd next to zero and thin out far above it.

    Raises:
        TableError: If given bounds are none, or values lie outside of them.
    """
    if given is not None:
        _check(name, values, given)
        return given
    if values.min() < 0:
        return None, None
    if (values == 0).sum() >= PILE:
        return 0.0, None
    low, middle, high = values.min(), np.median(values), values.max()
    lowest = np.sort(values)[: len(values) // 20 + 2]
    near = len(values) >= FEWEST and low < 2 * float(np.mean(lowest - low))
    skewed = high - middle > 1.5 * (middle - low)
    return (0.0, None) if near and skewed else (None, None)


def outside(values: Float64[np.ndarray, " rows"], bounds: Bounds) -> np.ndarray:
    """Return which values lie outside of bounds."""
    low, high = open_ends(bounds)
    found: np.ndarray = (values < low) | (values > high)
    return found


def open_ends(bounds: Bounds) -> tuple[float, float]:
    """Return bounds as numbers, infinite where there is none."""
    low, high = bounds
    return -math.inf if low is None else low, math.inf if high is None else high


def told_bounds(bounds: Bounds) -> str:
    """Return bounds in words, with a comma before them."""
    low, high = bounds
    if low is None and high is None:
        return ""
    if high is None:
        return f", at least {low:g}"
    return f", at most {high:g}" if low is None else f", from {low:g} to {high:g}"


def _check(name: str, values: np.ndarray, given: Bounds) -> None:
    low, high = open_ends(given)
    if not low < high:
        raise TableError(
            f"Bounds of a column expect the lower below the upper, got {given[0]} and {given[1]} "
            f"for {name!r}."
        )
    wrong = int(outside(values, given).sum())
    if wrong:
        worst = values[outside(values, given)][0]
        raise TableError(
            f"{list_columns([name])}: {wrong:,} of {len(values):,} values lie outside of the "
            f"bounds{told_bounds(given).replace(',', '', 1)}, such as {worst:g}; widen them."
        )
