"""Dates and times: whole multiples of their resolution since the first, then as numbers are."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from bnaf.columns.grid import Grid
from bnaf.columns.kind import Bounds, Kind, Parts, Snapped, Values, told_empty
from bnaf.columns.lattice import OFF_GRID, Lattice, is_gridded
from bnaf.columns.number import Number
from bnaf.columns.ranges import is_far
from bnaf.columns.stored import entry, refused, text_of, whole_of
from bnaf.errors import StorageError, TableError
from bnaf.tables.cells import arrow_cells, as_dates, date_type
from bnaf.tables.column import Column
from bnaf.tables.names import list_columns

UNITS = {"day": 1 / 86400, "s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
RESOLUTIONS = {
    "day": 86400,
    "hour": 3600,
    "minute": 60,
    "second": 1,
    "millisecond": 1e-3,
    "microsecond": 1e-6,
    "nanosecond": 1e-9,
}
MOST_TICKS = 2**63 - 2**12  # but for what float64 rounds
TIMES = ("time32", "time64")  # of day
ALMOST_HALF = 0.49  # of a multiple, from which numbers are rounded to it


@dataclass(frozen=True, eq=False)
class Date(Kind):
    """Dates or times of a resolution; times of day lie within a day.

    Args:
        inner: How their multiples since the first are modelled.
        resolution: Coarsest of days, hours, minutes, ... that all are multiples of.
        ticks: Ticks of the column's type that it has.
        origin: The first, in ticks.
        type: Arrow's name of the type of the column.
    """

    name: ClassVar[str] = "date"
    inner: Grid | Number
    resolution: str
    ticks: int
    origin: int
    type: str

    @classmethod
    def fit(
        cls, column: Column, weights: Values | None = None, bounds: Bounds | None = None
    ) -> "Date":
        """Return the resolution of a column of dates, and how it is modelled.

        Raises:
            TableError: If it holds no dates, or bounds are given, which dates have none of.
        """
        column = as_dates(column)
        if bounds is not None:
            raise TableError(
                f"{list_columns([column.name])} holds dates, which take no bounds; leave them out."
            )
        present = column.present
        origin = int(present.min())
        resolution, ticks = _resolution(present, column.type)
        numbers = _since(column, origin, ticks)
        gridded = is_gridded(numbers.present, numbers.type)
        within = _bounds_of_day(column.type, origin, ticks, 0.0 if gridded else ALMOST_HALF)
        inner = (Grid if gridded else Number).fit(numbers, weights, within)
        return cls(inner, resolution, ticks, origin, column.type)

    @property
    def levels(self) -> int:
        return self.inner.levels

    @property
    def numbers(self) -> int:
        return 1

    @property
    def range(self) -> tuple[float, float]:
        return self.inner.range

    @property
    def may_be_empty(self) -> bool:
        return self.inner.may_be_empty

    def describe(self) -> str:
        what = "times" if self.type.startswith((*TIMES, "duration")) else "dates"
        text = f"{what} by the {self.resolution}"
        if what == "dates":
            first, last = (self._shown(end) for end in self.inner.seen)
            text += f", {first} to {last}{' UTC' if 'tz=' in self.type else ''}"
        return told_empty(text, self.inner.empty)

    def _shown(self, number: float) -> str:
        shown = shown_date(self.origin + self.ticks * round(number), self.type)
        return shown.split("T")[0] if self.resolution == "day" else shown

    def codes(self, column: Column) -> Values:
        """Return multiples of the resolution since the first date."""
        return self.inner.codes(self._numbers(column))

    def column(self, name: str, codes: Values) -> Column:
        return self._dates(self.inner.column(name, codes))

    def encode(self, column: Column) -> Parts:
        return self.inner.encode(self._numbers(column))

    def scores(self, column: Column) -> Parts:
        return self.inner.scores(self._numbers(column))

    def unusual(self, column: Column) -> str:
        values = self._numbers(column).present
        far = int(is_far(values, self.inner.seen, self.inner.bounds).sum())
        finer = int((np.abs(values - np.round(values)) > OFF_GRID).sum())
        words = [f"{far:,} far from all dates that were seen"] * bool(far)
        words += [f"{finer:,} not by the {self.resolution}, taken as the nearest"] * bool(finer)
        return " and ".join(words)

    def expected(self, column: Column) -> str:
        values = self._numbers(column).present
        lattice = self.inner.lattice if isinstance(self.inner, Grid) else Lattice(0, 1, 0)
        near = lattice.between(values[0]) if len(values) else ()
        if not near:
            return ""
        first, last = arrow_cells(self.column(column.name, np.array(near))).to_pylist()
        return f"one by the {self.resolution}, such as {first} or {last}"

    def _numbers(self, column: Column) -> Column:
        """Return multiples of the resolution since the first date.

        Raises:
            TableError: If it holds no dates.
        """
        if column.empty.all():
            return Column(column.name, "float64", np.full(len(column), np.nan), column.empty)
        column = as_dates(column)
        factor = UNITS[date_unit(self.type)] / UNITS[date_unit(column.type)]
        if factor == 1:
            return _since(column, self.origin, self.ticks)
        ticks = np.where(column.empty, 0, column.values) * factor
        found = _since(replace(column, values=ticks), self.origin, self.ticks)
        whole = np.round(found.values)
        astray = np.abs(found.values - whole) > OFF_GRID  # others but for rounding errors
        return replace(found, values=np.where(astray, found.values, whole))

    def snap(self, x: Values) -> Snapped:
        return self.inner.snap(x)

    def decode(
        self,
        name: str,
        rows: int,
        level: Values | None,
        number: Values | None,
        generator: np.random.Generator,
    ) -> Column:
        return self._dates(self.inner.decode(name, rows, level, number, generator))

    def _dates(self, found: Column) -> Column:
        """Return the dates that multiples of the resolution stand for."""
        multiples = np.round(np.where(found.empty, 0.0, found.values))
        least, most = ((end - self.origin) // self.ticks for end in (-MOST_TICKS, MOST_TICKS))
        ticks = self.origin + self.ticks * np.clip(multiples, least, most).astype(np.int64)
        return Column(found.name, self.type, ticks, found.empty)

    def as_dict(self) -> dict[str, Any]:
        return {
            "inner": {"kind": self.inner.name, **self.inner.as_dict()},
            "resolution": self.resolution,
            "ticks": self.ticks,
            "origin": self.origin,
            "type": self.type,
        }

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> "Date":
        kind, resolution = text_of(stored, "type"), text_of(stored, "resolution", (*RESOLUTIONS,))
        try:
            date_type(kind)
        except ValueError:
            raise refused("type", "a type of dates", kind) from None
        inner = entry(stored, "inner")
        classes: dict[str, type[Grid | Number]] = {Grid.name: Grid, Number.name: Number}
        if not isinstance(inner, Mapping):
            raise StorageError(f"A column of dates expects its numbers, got {inner!r:.40}.")
        found = classes[text_of(inner, "kind", (*classes,))].from_dict(inner)
        return cls(
            found,
            resolution,
            whole_of(stored, "ticks", 1, 2**50),
            whole_of(stored, "origin", -MOST_TICKS, MOST_TICKS),
            kind,
        )


def shown_date(ticks: int, kind: str) -> str:
    """Return ticks of a type as a date and its second, or as a time of day.

    Example:
        >>> shown_date(19_723, "date32[day]"), shown_date(3600, "time32[s]")
        ('2024-01-01', '01:00:00')
    """
    seconds = math.floor(ticks / UNITS[date_unit(kind)])
    shown = str(np.datetime64(seconds, "s"))
    if kind.startswith(TIMES):
        return shown.partition("T")[2]
    if kind.startswith("duration"):
        return f"{seconds} s"
    return shown.split("T")[0] if date_unit(kind) == "day" else shown


def date_unit(kind: str) -> str:
    """Return the unit of the ticks of a type.

    Example:
        >>> date_unit("timestamp[us, tz=UTC]")
        'us'
    """
    return kind.partition("[")[2].rstrip("]").partition(",")[0]


def _resolution(ticks: np.ndarray, kind: str) -> tuple[str, int]:
    """Return the coarsest resolution that all ticks are multiples of, and its ticks."""
    for name, seconds in RESOLUTIONS.items():
        if name == "day" and kind.startswith(TIMES):
            continue
        size = round(seconds * UNITS[date_unit(kind)])
        if size <= 1 or not (ticks % size).any():
            return name, max(size, 1)
    raise AssertionError("one tick divides all")


def _bounds_of_day(kind: str, origin: int, ticks: int, beyond: float) -> Bounds:
    """Return the first and the last multiple of a day, and so far beyond; none of dates."""
    if not kind.startswith(TIMES):
        return None, None
    day = round(RESOLUTIONS["day"] * UNITS[date_unit(kind)])
    return -origin // ticks - beyond, (day - 1 - origin) // ticks + beyond


def _since(column: Column, origin: int, ticks: int) -> Column:
    values = (np.where(column.empty, origin, column.values) - origin) / ticks
    values = np.where(column.empty, np.nan, values)
    return Column(column.name, "int64", values, column.empty)
