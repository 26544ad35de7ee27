"""Whole numbers, and numbers on a grid: intervals of their own normal scores."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from bnaf.columns.bounds import choose_bounds, open_ends, outside, told_bounds
from bnaf.columns.curve import Curve
from bnaf.columns.kind import Bounds, Kind, Parts, Snapped, Values, shown, told_empty
from bnaf.columns.lattice import LARGEST, OFF_GRID, Lattice, find_lattice
from bnaf.columns.ranges import finite_numbers, told_far, told_within
from bnaf.columns.smoothing import smooth
from bnaf.columns.stored import bounds_of, ends_of, text_of, whole_of
from bnaf.errors import Argument, TableError
from bnaf.tables.column import Column
from bnaf.tables.names import list_columns
from bnaf.tables.table import TYPES


@dataclass(frozen=True, eq=False)
class Grid(Kind):
    """Numbers on a grid; whole ones where its step is one.

    Args:
        lattice: The grid.
        curve: The smoothed distribution of the multiples.
        bounds: Outside of these there is no mass.
        seen: Least and largest value that was seen.
        type: Element type of the column.
        empty: Cells that were empty.
    """

    name: ClassVar[str] = "grid"
    lattice: Lattice
    curve: Curve
    bounds: Bounds
    seen: tuple[float, float]
    type: str
    empty: int

    @classmethod
    def fit(
        cls,
        column: Column,
        weights: Values | None = None,
        bounds: Bounds | None = None,
        *,
        whole: bool = False,
    ) -> "Grid":
        """Return the grid of a column with its smoothed distribution.

        Raises:
            TableError: If its values lie on no grid, or outside of the bounds.
        """
        values = finite_numbers(column)
        lattice = find_lattice(values, column.type)
        if lattice is None or (whole and lattice.digits):
            wanted = "whole numbers" if whole else "numbers on a grid"
            raise TableError(
                f"{list_columns([column.name])} expects {wanted}, got others; give ",
                Argument("kinds", {column.name: "number"}),
                ".",
            )
        chosen = choose_bounds(column.name, values, bounds)
        lowest, highest = _reach(lattice, chosen)
        kept = None if weights is None else weights[~column.empty]
        curve = smooth(lattice.multiples(values).astype(np.int64), kept, lowest, highest)
        seen = (float(values.min()), float(values.max()))
        return cls(lattice, curve, chosen, seen, column.type, int(column.empty.sum()))

    @property
    def levels(self) -> int:
        return 2 if self.empty else 0

    @property
    def numbers(self) -> int:
        return 1

    @property
    def range(self) -> tuple[float, float]:
        low, high = self.lattice.values(self.lattice.multiples(np.array(self.seen)))  # as drawn
        return float(low), float(high)

    @property
    def may_be_empty(self) -> bool:
        return bool(self.empty)

    def describe(self) -> str:
        width = self.lattice.width
        what = "whole numbers" if width == 1 else f"numbers on a grid of {shown(width)}"
        low, high = self.seen
        text = f"{what}, {shown(low)} to {shown(high)}{told_bounds(self.bounds)}"
        return told_empty(text, self.empty)

    def encode(self, column: Column) -> Parts:
        column = column.as_numbers()
        finite_numbers(column)
        values = np.where(column.empty, self.seen[0], column.values)
        cells = self.curve.cells(self.lattice.multiples(values))
        number = Snapped(
            np.where(column.empty, np.nan, cells.middle),
            np.where(column.empty, 0.0, cells.below),
            np.where(column.empty, 0.0, cells.above),
        )
        impossible = outside(values, self.bounds) & ~column.empty
        level = column.empty.astype(np.float64) if self.empty else None
        return Parts(level, number, np.where(impossible, -np.inf, 0.0))

    def snap(self, x: Values) -> Snapped:
        known = ~np.isnan(x)
        cells = self.curve.cells(self.curve.find(np.where(known, x, 0.0)))
        return cells._replace(middle=np.where(known, cells.middle, np.nan))

    def decode(
        self,
        name: str,
        rows: int,
        level: Values | None,
        number: Values | None,
        generator: np.random.Generator,
    ) -> Column:
        assert number is not None
        empty = np.isnan(number)
        found, places = np.unique(np.where(empty, 0.0, number), return_inverse=True)
        values = self.lattice.values(self.curve.find(found))[places]
        return Column(name, self.type, np.where(empty, np.nan, values), empty)

    def unusual(self, column: Column) -> str:
        column = column.as_numbers()
        values = column.present
        far = told_far(values, self.seen, self.bounds)
        off = np.abs(values - self.lattice.values(self.lattice.multiples(values)))
        astray = int((off > OFF_GRID * self.lattice.width).sum())
        off_grid = f"{astray:,} off the grid of {self.lattice.width:g}, taken as the nearest on it"
        return " and ".join(words for words in (far, off_grid if astray else "") if words)

    def expected(self, column: Column) -> str:
        values, width = column.as_numbers().present, self.lattice.width
        wanted = told_within(values, self.bounds)
        near = self.lattice.between(values[0]) if len(values) and not wanted else ()
        if not near:
            return wanted
        grid = "a whole number" if width == 1 else f"a number on a grid of {shown(width)}"
        return f"{grid}, such as {shown(near[0])} or {shown(near[1])}"

    def as_dict(self) -> dict[str, Any]:
        return {
            **self.lattice._asdict(),
            **self.curve.as_dict(),
            "bounds": list(self.bounds),
            "low": self.seen[0],
            "high": self.seen[1],
            "type": self.type,
            "empty": self.empty,
        }

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> "Grid":
        lattice = Lattice(
            whole_of(stored, "digits", 0, 12),
            whole_of(stored, "step", 1, int(LARGEST)),
            whole_of(stored, "offset", -int(LARGEST), int(LARGEST)),
        )
        bounds = bounds_of(stored, "bounds")
        curve = Curve.from_dict(stored, *_reach(lattice, bounds))
        seen = ends_of(stored)
        kind = text_of(stored, "type", TYPES)
        return cls(lattice, curve, bounds, seen, kind, whole_of(stored, "empty"))


def _reach(lattice: Lattice, bounds: Bounds) -> tuple[float, float]:
    """Return the least and the largest multiple within bounds."""
    low, high = open_ends(bounds)
    units = 10.0**lattice.digits

    def multiple(end: float) -> float:
        return (end * units - lattice.offset) / lattice.step

    return (
        low if math.isinf(low) else math.ceil(multiple(low) - 1e-6),
        high if math.isinf(high) else math.floor(multiple(high) + 1e-6),
    )
