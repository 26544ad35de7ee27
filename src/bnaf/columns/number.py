"""Numbers without a grid: points in a standardised scale, with bounds and atoms."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch

from bnaf.columns.bounds import choose_bounds, open_ends, outside, told_bounds
from bnaf.columns.kind import Bounds, Kind, Parts, Snapped, Values, shown, told_empty
from bnaf.columns.lattice import MOST_DIGITS, find_lattice
from bnaf.columns.opening import SOFT, Opening
from bnaf.columns.ranges import finite_numbers, told_far, told_within
from bnaf.columns.stored import (
    SMALLEST,
    bounds_of,
    ends_of,
    number_of,
    numbers_of,
    refused,
    text_of,
    whole_of,
)
from bnaf.errors import TableError
from bnaf.tables.column import Column
from bnaf.tables.names import list_columns
from bnaf.tables.table import TYPES

ATOM_SHARE, ATOM_ROWS = 0.02, 5  # from which on a value that repeats is an atom
MOST_ATOMS, LISTED = 16, 4


@dataclass(frozen=True, eq=False)
class Number(Kind):
    """Numbers with a density, standardised after their bounds are sent to infinity.

    Args:
        location: Mean of what the opening makes of them.
        scale: Its deviation.
        opening: How bounds are sent to infinity; outside of them the density is zero.
        atoms: Values that are taken often, each with a mass.
        digits: Decimals that values had; -1 where they had as many as they can.
        seen: Least and largest value that was seen.
        type: Element type of the column.
        empty: Cells that were empty.
    """

    name: ClassVar[str] = "number"
    location: float
    scale: float
    opening: Opening
    atoms: tuple[float, ...]
    digits: int
    seen: tuple[float, float]
    type: str
    empty: int

    @classmethod
    def fit(
        cls, column: Column, weights: Values | None = None, bounds: Bounds | None = None
    ) -> "Number":
        """Return location, scale, bounds and atoms of a column.

        Raises:
            TableError: If it does not vary enough, or lies outside of the bounds.
        """
        values = finite_numbers(column)
        chosen = choose_bounds(column.name, values, bounds)
        atoms = _atoms(values, chosen)
        free = ~np.isin(values, atoms)
        if len(np.unique(values[free])) < 2:  # too few for a density of their own
            atoms, free = (), np.ones(len(values), dtype=bool)
        kept = np.ones(len(values)) if weights is None else weights[~column.empty]
        opening = Opening(chosen, SOFT * _moments(values[free], kept[free])[1])
        location, scale = _moments(_open(opening, values[free])[0], kept[free])
        if not (math.isfinite(location) and 0 < scale < math.inf):
            raise TableError(
                f"{list_columns([column.name])} holds numbers whose deviation is {scale:g}, "
                "expected a positive finite one; give them in other units."
            )
        lattice = find_lattice(values, column.type)
        digits = -1 if lattice is None else lattice.digits
        seen = (float(values.min()), float(values.max()))
        empty = int(column.empty.sum())
        return cls(location, scale, opening, atoms, digits, seen, column.type, empty)

    @property
    def bounds(self) -> Bounds:
        """Lower and upper bound, ``None`` where there is none."""
        return self.opening.bounds

    @property
    def levels(self) -> int:
        return 1 + len(self.atoms) + bool(self.empty) if self.atoms or self.empty else 0

    @property
    def numbers(self) -> int:
        return 1

    @property
    def range(self) -> tuple[float, float]:
        low, high = self.seen
        if self.digits < 0:
            return self.seen
        return min(low, round(low, self.digits)), max(high, round(high, self.digits))  # as drawn

    @property
    def may_be_empty(self) -> bool:
        return bool(self.empty)

    def describe(self) -> str:
        low, high = self.seen
        text = f"numbers, {shown(low)} to {shown(high)}{told_bounds(self.bounds)}"
        if self.atoms:
            text += ", often " + ", ".join(shown(atom) for atom in self.atoms[:LISTED])
            text += ", ..." if len(self.atoms) > LISTED else ""
        return told_empty(text, self.empty)

    def encode(self, column: Column) -> Parts:
        column = column.as_numbers()
        finite_numbers(column)
        values = np.where(column.empty, self.seen[0], column.values)
        level = np.zeros(len(values))
        for place, atom in enumerate(self.atoms):
            level[values == atom] = 1 + bool(self.empty) + place
        level[column.empty] = 1.0 if self.empty else math.nan
        without = column.empty | (level > 0)
        y, log_slope = _open(self.opening, values)
        middle = np.where(without, np.nan, (y - self.location) / self.scale)
        shift = np.where(without, 0.0, log_slope - math.log(self.scale))
        shift[outside(values, self.bounds) & ~column.empty] = -np.inf
        nothing = np.zeros(len(values))
        return Parts(level if self.levels else None, Snapped(middle, nothing, nothing), shift)

    def scores(self, column: Column) -> Parts:
        parts, column = self.encode(column), column.as_numbers()
        values = np.where(column.empty, self.seen[0], column.values)
        own = (_open(self.opening, values)[0] - self.location) / self.scale
        nothing = np.zeros(len(own))
        number = Snapped(np.where(column.empty, 0.0, own), nothing, nothing)
        level = None if parts.level is None else np.nan_to_num(parts.level, nan=0.0)
        return parts._replace(level=level, number=number)

    def decode(
        self,
        name: str,
        rows: int,
        level: Values | None,
        number: Values | None,
        generator: np.random.Generator,
    ) -> Column:
        assert number is not None
        values = self.opening.undo(torch.from_numpy(self.location + self.scale * number)).numpy()
        if self.digits >= 0:
            values = np.round(values, self.digits)
        values = np.clip(values, *open_ends(self.bounds))
        if level is not None and self.atoms:
            place = np.nan_to_num(level, nan=0.0).astype(np.int64) - 1 - bool(self.empty)
            values = np.where(place >= 0, np.array(self.atoms)[np.maximum(place, 0)], values)
        empty = np.isnan(values)
        if level is not None and self.empty:
            empty |= level == 1
        return Column(name, self.type, np.where(empty, np.nan, values), empty)

    def unusual(self, column: Column) -> str:
        return told_far(column.as_numbers().present, self.seen, self.bounds)

    def expected(self, column: Column) -> str:
        return told_within(column.as_numbers().present, self.bounds)

    def as_dict(self) -> dict[str, Any]:
        return {
            "location": self.location,
            "scale": self.scale,
            "soft": self.opening.soft,
            "bounds": list(self.bounds),
            "atoms": list(self.atoms),
            "digits": self.digits,
            "low": self.seen[0],
            "high": self.seen[1],
            "type": self.type,
            "empty": self.empty,
        }

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> "Number":
        atoms = numbers_of(stored, "atoms")
        if len(atoms) > MOST_ATOMS or len(np.unique(atoms)) < len(atoms):
            raise refused("atoms", f"{MOST_ATOMS} values at most, each once", stored["atoms"])
        return cls(
            number_of(stored, "location"),
            number_of(stored, "scale", SMALLEST),
            Opening(bounds_of(stored, "bounds"), number_of(stored, "soft", SMALLEST)),
            tuple(atoms.tolist()),
            whole_of(stored, "digits", -1, MOST_DIGITS),
            ends_of(stored),
            text_of(stored, "type", TYPES),
            whole_of(stored, "empty"),
        )


def _open(opening: Opening, values: Values) -> tuple[Values, Values]:
    y, log_slope = opening.apply(torch.from_numpy(values))
    return y.numpy(), log_slope.numpy()


def _atoms(values: Values, bounds: Bounds) -> tuple[float, ...]:
    """Return the values that are taken often; on a bound, twice is often."""
    found, counts = np.unique(values, return_counts=True)
    often = counts >= max(ATOM_ROWS, ATOM_SHARE * len(values))
    often |= np.isin(found, [end for end in bounds if end is not None]) & (counts > 1)
    places = np.flatnonzero(often)
    if len(places) > MOST_ATOMS:
        places = np.sort(places[np.argsort(counts[places])[-MOST_ATOMS:]])
    return tuple(found[places].tolist())


def _moments(values: Values, weights: Values) -> tuple[float, float]:
    """Return mean and deviation, of values as large or small as can be."""
    unit = float(np.abs(values).max()) or 1.0
    mean = float(np.average(values / unit, weights=weights))
    apart = np.abs(values / unit - mean)
    widest = float(apart.max()) or 1.0
    deviation = float(np.sqrt(np.average((apart / widest) ** 2, weights=weights)))
    return mean * unit, deviation * widest * unit
