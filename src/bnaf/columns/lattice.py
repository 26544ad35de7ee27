"""Grids that numbers lie on: whole multiples of a step, in decimals."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float64

MOST_DIGITS = 12
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

    def index(self, values: Float64[np.ndarray, " rows"]) -> Float64[np.ndarray, " rows"]:
        """Return the k of the nearest numbers of the grid."""
        with np.errstate(over="ignore"):
            found = np.round((values * 10.0**self.digits - self.offset) / self.step)
        return np.clip(found, -LARGEST, LARGEST)

    def values(self, k: Float64[np.ndarray, " rows"]) -> Float64[np.ndarray, " rows"]:
        """Return the numbers of the grid for some k."""
        found: np.ndarray = (self.offset + self.step * k) / 10.0**self.digits
        return found


def find_lattice(values: Float64[np.ndarray, " values"], kind: str = "float64") -> Lattice | None:
    """Return the coarsest grid of decimals that values lie on, or ``None``.

    Args:
        values: Finite values, each once or more often.
        kind: Element type they had, which says how large rounding errors are.

    Example:
        >>> find_lattice(np.array([0.25, 0.75, 1.5]))
        Lattice(digits=2, step=25, offset=25)
    """
    precision = float(np.finfo(kind).eps) if kind.startswith("float") else 2.0**-52
    top = float(np.abs(values).max(initial=0.0))
    for digits in range(MOST_DIGITS + 1):
        units = values * 10.0**digits
        if top * 10.0**digits > LARGEST or top * 10.0**digits * precision > 0.05:
            return None
        off = np.abs(units - np.round(units))
        if (off <= 4 * precision * np.abs(units) + 1e-12).all():
            whole = np.unique(np.round(units).astype(np.int64))
            step = int(np.gcd.reduce(np.diff(whole))) if len(whole) > 1 else 1
            return Lattice(digits, step, int(whole[0]))
    return None
