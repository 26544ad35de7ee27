"""Columns of one value: nothing is to be learned of them, and they come back with samples."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from bnaf._text import plain_name
from bnaf.columns.date import MOST_TICKS, UNITS, date_unit, shown_date
from bnaf.columns.kind import Kind, Parts, Values, label_codes, labelled
from bnaf.columns.stored import LARGEST, entry, refused, text_of
from bnaf.errors import StorageError
from bnaf.tables.cells import as_dates, date_type
from bnaf.tables.column import TEXTS, Column, number_text
from bnaf.tables.table import TYPES


@dataclass(frozen=True, eq=False)
class Constant(Kind):
    """One value in all rows, or none in any: it has mass one, and another value has none.

    An empty cell is integrated out, and has mass one as well.

    Args:
        value: The number, text or tick; ``None`` where all cells are empty.
        type: Type of the column.
        of: Element type of the levels of a category.
    """

    name: ClassVar[str] = "constant"
    value: float | int | str | None
    type: str
    of: str = "text"

    @classmethod
    def fit(cls, column: Column) -> "Constant":
        """Return the one value of a column."""
        if not len(column.present):
            kind = "float64" if column.holds == "objects" else column.type
            return cls(None, kind, column.of)
        value = column.present[0].item()
        if column.holds == "texts":
            value = column.levels[value]
        return cls(value, column.type, column.of)

    @property
    def levels(self) -> int:
        return 0

    @property
    def numbers(self) -> int:
        return 0

    @property
    def may_be_empty(self) -> bool:
        return self.value is None

    def describe(self) -> str:
        if self.value is None:
            return "empty throughout"
        shown = self.value if isinstance(self.value, str) else self._shown(self.value)
        return f"constant: {plain_name(shown, 20) or repr('')}"

    def _shown(self, value: float | int) -> str:
        return shown_date(int(value), self.type) if self._dated else number_text(value, self.type)

    @property
    def textual(self) -> bool:
        return self.type in TEXTS and self.of == "text"

    @property
    def labels(self) -> tuple[str, ...]:
        return (self.value,) if isinstance(self.value, str) else ()

    @property
    def _dated(self) -> bool:
        return self.value is not None and self.type not in (*TYPES, *TEXTS)

    def codes(self, column: Column) -> Values:
        """Return numbers as they are, of texts the levels, and of dates ticks from the one."""
        if isinstance(self.value, str):
            return label_codes(column, self.labels)
        if column.empty.all():
            return np.full(len(column), np.nan)
        if self._dated:
            return np.where(column.empty, np.nan, self._ticks_apart(column))
        if self.type in TYPES:
            column = column.as_numbers()
        return np.where(column.empty, np.nan, column.values.astype(np.float64))

    def _ticks_apart(self, column: Column) -> Values:
        """Return how many ticks of its type dates lie from the one; none is closer than one."""
        assert isinstance(self.value, int)
        column = as_dates(column)
        own, other = (round(86400 * UNITS[date_unit(kind)]) for kind in (self.type, column.type))
        ticks, places = np.unique(np.where(column.empty, 0, column.values), return_inverse=True)
        gaps = [int(tick) * own - self.value * other for tick in ticks]  # exact, of any size
        apart = [math.copysign(max(abs(gap) / other, 1.0), gap) if gap else 0.0 for gap in gaps]
        return np.array(apart)[places]

    def column(self, name: str, codes: Values) -> Column:
        if isinstance(self.value, str):
            return labelled(name, codes, self.labels, self.type, self.of)
        values = np.where(np.isnan(codes), 0, codes)
        if self.type not in TYPES:
            first = self.value if isinstance(self.value, int) else 0
            reach = MOST_TICKS - abs(first)
            values = first + np.clip(values, -reach, reach).astype(np.int64)
        return Column(name, self.type, values, np.isnan(codes), of=self.of)

    def encode(self, column: Column) -> Parts:
        return Parts(None, None, np.where(self._differs(column), -np.inf, 0.0))

    def _differs(self, column: Column) -> np.ndarray:
        """Return which cells hold another value."""
        if self.value is None or column.empty.all():
            return ~column.empty
        same: Any
        if isinstance(self.value, str):
            column = column.as_texts()
            places = [place for place, level in enumerate(column.levels) if level == self.value]
            same = np.isin(column.values, places)
        elif self.type in TYPES:
            apart = 1e-6 if self.type.startswith("float") else 0.0
            same = np.isclose(column.as_numbers().values, self.value, rtol=apart, atol=0.0)
        else:
            same = self._ticks_apart(column) == 0
        return np.asarray(~same & ~column.empty)

    def decode(
        self,
        name: str,
        rows: int,
        level: Values | None,
        number: Values | None,
        generator: np.random.Generator,
    ) -> Column:
        empty = np.full(rows, self.value is None)
        if isinstance(self.value, str):
            return Column(name, self.type, np.zeros(rows, np.int64), empty, (self.value,), self.of)
        kind = np.float64 if self.type in TYPES else np.int64
        values = np.full(rows, 0 if self.value is None else self.value, dtype=kind)
        return Column(name, self.type, values, empty, of=self.of)

    def unusual(self, column: Column) -> str:
        other = int(self._differs(column).sum())
        return f"{other:,} that differ from the one value that was seen" if other else ""

    def expected(self, column: Column) -> str:
        one = "nothing" if self.value is None else self.describe().partition(": ")[2]
        return f"its one value, {one}" if self._differs(column).any() else ""

    def as_dict(self) -> dict[str, Any]:
        return {"value": self.value, "type": self.type, "of": self.of}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> "Constant":
        value, kind = entry(stored, "value"), text_of(stored, "type")
        of = text_of(stored, "of", ("text", *TYPES))
        if kind not in (*TYPES, *TEXTS):
            try:
                date_type(kind)
            except ValueError:
                raise refused("type", "a type of columns", kind) from None
        plain = isinstance(value, int | float) and not isinstance(value, bool)
        fits = isinstance(value, str) if kind in TEXTS else plain
        if kind not in (*TYPES, *TEXTS):
            fits = isinstance(value, int) and abs(value) < 2**63
        elif plain and not abs(value) <= LARGEST:
            fits = False
        if value is not None and not fits:
            raise StorageError(
                f"A constant column of {kind} expects such a value, got {value!r:.40}."
            )
        return cls(value, kind, of)
