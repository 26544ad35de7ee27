"""Grids that numbers lie on: whole multiples of a step, in decimals."""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64

MOST_DIGITS = 12
LOOKED_AT, FEW = 100_000, 256  # rows
MOST_ALONE, POINTS_PER_ROW, POINTS_PER_TIE = 0.6, 2.0, 1000.0  # up to which a grid shows
ROWS_PER_VALUE = 5  # from which on values are few
FLOAT32_DIGITS = 6
OFF_GRID = 1e-3  # steps
LARGEST = 2.0**50  # up to which multiples are told apart with room to spare


class Lattice(NamedTuple):
    """Numbers ``(offset + step * k) / 10**digits`` for whole k; exact, as decimals are read.

    Args:
        digits: Decimals of the numbers.
        step: Distance of neighbours, in units of the last decimal.
        offset: A number of the grid, in the same units.
    """

    digits: int
    step: int
    offset: int

    @property
    def width(self) -> float:
        """Distance of neighbours."""
        return float(self.step / 10**self.digits)

    def multiples(self, values: Float64[np.ndarray, " rows"]) -> Float64[np.ndarray, " rows"]:
        """Return k of the nearest numbers of the grid."""
        with np.errstate(over="ignore"):
            found = np.round((values * 10.0**self.digits - self.offset) / self.step)
        return np.clip(found, -LARGEST, LARGEST)

    def between(self, value: float) -> tuple[float, ...]:
        """Return the two numbers of the grid that a value lies between; none if it is on it."""
        k = (value * 10.0**self.digits - self.offset) / self.step
        if abs(k - round(k)) <= OFF_GRID:
            return ()
        return tuple(self.values(np.array([math.floor(k), math.ceil(k)], np.float64)).tolist())

    def values(self, k: Float64[np.ndarray, " rows"]) -> Float64[np.ndarray, " rows"]:
        """Return the numbers of the grid for some k."""
        found: np.ndarray = (self.offset + self.step * k) / 10.0**self.digits
        return found


def find_lattice(values: Float64[np.ndarray, " values"], kind: str = "float64") -> Lattice | None:
    """Return the coarsest grid of decimals that values lie on, or ``None``.

    Args:
        values: Finite values, each once or more often.
        kind: Element type they had, which says how large rounding errors are. Many decimals in
            float64 may be those of few in float32, such as 7.4000001, which are told apart.

    Example:
        >>> find_lattice(np.array([0.25, 0.75, 1.5]))
        Lattice(digits=2, step=25, offset=25)
    """
    values = np.unique(values)
    precision = float(np.finfo(kind).eps) if kind.startswith("float") else 2.0**-52
    found = _within(values, precision)
    if kind == "float64" and (found is None or found.digits > FLOAT32_DIGITS):
        short = _within(values, float(np.finfo("float32").eps), each=True)
        if short is not None and short.digits <= FLOAT32_DIGITS:
            return short
    return found


def _within(values: np.ndarray, precision: float, *, each: bool = False) -> Lattice | None:
    """Return the grid that values lie on but for rounding errors, of each or of the largest."""
    top = float(np.abs(values).max(initial=0.0))
    few = values[:: len(values) // FEW + 1]  # which most often tell that it is none
    for digits in range(MOST_DIGITS + 1):
        if top * 10.0**digits > LARGEST or top * 10.0**digits * precision > 0.05:
            return None

        def on_grid(values: np.ndarray, units: float = 10.0**digits) -> bool:
            off = np.abs(values * units - np.round(values * units))
            return bool((off <= 4 * precision * units * (np.abs(values) if each else top)).all())

        if on_grid(few) and on_grid(values):
            whole = np.unique(np.round(values * 10.0**digits).astype(np.int64))
            step = int(np.gcd.reduce(np.diff(whole))) if len(whole) > 1 else 1
            return Lattice(digits, step, int(whole[0]))
    return None


def is_gridded(values: Float64[np.ndarray, " values"], kind: str = "float64") -> bool:
    """Return whether numbers lie on a grid so coarse that it shows.

    That is so where the grid has not many more points than there are rows, or where two in five
    rows share their value with another. But of many more points, values must be few.

    Args:
        values: Finite values, one per row.
        kind: Element type they had.
    """
    if len(values) > LOOKED_AT:
        values = np.random.default_rng(0).choice(values, LOOKED_AT, replace=False)
    lattice = find_lattice(values, kind)
    if lattice is None:
        return False
    counts = np.unique(values, return_counts=True)[1]
    alone = float((counts == 1).sum()) / len(values)
    points = float(np.ptp(lattice.multiples(values))) + 1
    if points <= POINTS_PER_ROW * len(values):
        return True
    tied = POINTS_PER_TIE * len(values) >= points or ROWS_PER_VALUE * len(counts) <= len(values)
    return alone <= MOST_ALONE and tied
