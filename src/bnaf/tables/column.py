"""One column of a frame: its values as an array, and which of its cells are empty."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Shaped

from bnaf.errors import TableError
from bnaf.tables.arrow import LARGEST_WHOLE
from bnaf.tables.marks import currencies, read_number
from bnaf.tables.names import list_columns
from bnaf.tables.table import TYPES

TEXTS = ("text", "category", "ordered")
DATES = ("timestamp", "date32", "date64", "time32", "time64", "duration")
BOOLEANS = {"true": "1", "false": "0"}


@dataclass(frozen=True, eq=False)
class Column:
    """Cells of one column.

    Args:
        name: Its name.
        type: NumPy's name of a type of numbers; "text", "category" or "ordered" (a category whose
            levels have an order); Arrow's name of a type of dates or times; or of what is none
            of these and has no values here.
        values: Numbers in float64, codes of texts or ticks of dates in int64; anything at all
            where a cell is empty.
        empty: Which cells are empty.
        levels: The texts that codes stand for, each once.
        of: What the levels of a category are: "text", or NumPy's name of a type of numbers.
        nullable: Whether pandas is to have it in a type that has a value for empty cells.
    """

    name: str
    type: str
    values: Shaped[np.ndarray, " rows"]
    empty: Bool[np.ndarray, " rows"]
    levels: tuple[str, ...] = ()
    of: str = "text"
    nullable: bool = False

    def __len__(self) -> int:
        return len(self.values)

    @property
    def holds(self) -> str:
        """What its cells hold: "numbers", "texts", "dates" or "objects"."""
        if self.type in TYPES:
            return "numbers"
        if self.type in TEXTS:
            return "texts"
        return "dates" if self.type.startswith(DATES) else "objects"

    @property
    def present(self) -> Shaped[np.ndarray, " cells"]:
        """Values of the cells that are not empty."""
        found: np.ndarray = self.values[~self.empty]
        return found

    @property
    def finite(self) -> Bool[np.ndarray, " rows"]:
        """Which cells are neither empty nor infinite."""
        known: np.ndarray = ~self.empty
        return known & np.isfinite(self.values) if self.holds == "numbers" else known

    @property
    def pandas_type(self) -> str | None:
        """Type of pandas that has a value for empty cells, where it is to be one."""
        if self.type == "text":
            return "string" if self.nullable else None
        if self.holds != "numbers":
            return None
        if not self.nullable and (self.type.startswith("float") or not self.empty.any()):
            return None
        named = {"bool": "boolean", "float16": None}
        return named.get(self.type, self.type.capitalize().replace("Ui", "UI"))

    @property
    def rounded(self) -> bool:
        """Whether whole numbers are so large that float64 has not all of them."""
        whole = self.type in ("int64", "uint64")
        return whole and bool((np.abs(self.present) >= LARGEST_WHOLE).any())

    @property
    def constant(self) -> bool:
        """Whether it says nothing: one value in all cells, or none in any."""
        present = self.present
        varies = len(present) and bool((present != present[0]).any())
        return not varies and (not len(present) or not self.empty.any())

    def take(self, indices: Any) -> "Column":
        """Return the cells at some indices."""
        return replace(self, values=self.values[indices], empty=self.empty[indices])

    def as_numbers(self) -> "Column":
        """Return the same cells as numbers: texts are parsed, 1,234, $3.50 and 16% among them.

        Raises:
            TableError: If a cell is no number, or some are amounts of other currencies.
        """
        if self.holds == "numbers":
            return self
        if self.holds != "texts":
            raise TableError(
                f"{list_columns([self.name])} holds {self.type}, expected numbers; give numbers, "
                "or an empty cell."
            )
        parsed = np.full(len(self.levels) + 1, np.nan)  # the last stands for empty cells
        for index, level in enumerate(self.levels):
            number = read_number(BOOLEANS.get(level.lower(), level))
            if number is None and bool((self.present == index).any()):
                raise TableError(
                    f"{list_columns([self.name])} holds text such as {level[:20]!r}, expected "
                    "numbers; give numbers, or an empty cell."
                )
            parsed[index] = np.nan if number is None else number
        signs = currencies(self.levels)
        if len(signs) > 1:
            raise TableError(
                f"{list_columns([self.name])} holds amounts of several currencies "
                f"({', '.join(sorted(signs))}), expected one; give them in one."
            )
        values = parsed[np.where(self.empty, -1, self.values)]
        return Column(self.name, "float64", values, np.isnan(values))

    def as_texts(self) -> "Column":
        """Return the same cells as texts: numbers are written as short as they can be.

        Raises:
            TableError: If cells are dates or objects.
        """
        if self.holds == "texts":
            return self
        if self.holds != "numbers":
            raise TableError(
                f"{list_columns([self.name])} holds {self.type}, expected text; give text, or an "
                "empty cell."
            )
        found, codes = np.unique(np.where(self.empty, 0.0, self.values), return_inverse=True)
        levels = tuple(number_text(value, self.type) for value in found)
        return Column(self.name, "text", codes.astype(np.int64), self.empty, levels, self.type)


def number_text(value: float, kind: str = "float64") -> str:
    """Return a number as a file would have it.

    Example:
        >>> number_text(3.0), number_text(0.25), number_text(1.0, "bool")
        ('3', '0.25', 'true')
    """
    if kind == "bool":
        return "true" if value else "false"
    if value == round(value) and abs(value) < 1e15:
        return str(int(value))
    return repr(float(value))
