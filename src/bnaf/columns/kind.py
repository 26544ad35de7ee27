"""What a kind of column has to offer."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np
from jaxtyping import Float64

from bnaf.tables.column import Column

Values = Float64[np.ndarray, " rows"]
Bounds = tuple[float | None, float | None]


class Snapped(NamedTuple):
    """Cells of a number, in the scale of the flow.

    Args:
        middle: The point, or a point within the interval, which later columns see.
        below: Distance of the lower end from there; zero of a point, infinite of half a line.
        above: Distance of the upper end.
    """

    middle: Values
    below: Values
    above: Values


class Parts(NamedTuple):
    """Cells of one column as a flow sees them.

    Args:
        level: Code of its level, or of its status: zero for an ordinary number, then empty, then
            one per atom. ``None`` where the column has no levels.
        number: Its number, nan where the cell has none. ``None`` where the column has no numbers.
        shift: What is to be added to the log-density of the flow, in the units of the table.
    """

    level: Values | None
    number: Snapped | None
    shift: Values


class Kind(ABC):
    """What the cells of one column mean, fitted to some of them."""

    name: ClassVar[str]
    """What it is called in files and in ``kinds``."""

    @property
    @abstractmethod
    def levels(self) -> int:
        """Number of levels of its discrete part; zero where it has none."""

    @property
    @abstractmethod
    def numbers(self) -> int:
        """Whether it has a number, as 0 or 1."""

    @property
    def given_numbers(self) -> int:
        """Whether it has a number when it is conditioned on, as 0 or 1."""
        return self.numbers

    @abstractmethod
    def describe(self) -> str:
        """Return how it was read, in a few words."""

    @abstractmethod
    def encode(self, column: Column) -> Parts:
        """Return cells as a flow sees them.

        Raises:
            TableError: If they cannot be of this kind.
        """

    @abstractmethod
    def decode(
        self,
        name: str,
        level: Values | None,
        number: Values | None,
        generator: np.random.Generator,
    ) -> Column:
        """Return the cells that codes and numbers of a flow stand for.

        Args:
            name: What to call the column.
            level: Codes of its levels, if it has some.
            number: Middles of its numbers, if it has some; nan where there is none.
            generator: Chooses among levels that were pooled.
        """

    def snap(self, x: Values) -> Snapped:
        """Return the cells that draws in the flow's scale lie in; points stay where they are."""
        return Snapped(x, np.zeros_like(x), np.zeros_like(x))

    def scores(self, column: Column) -> Parts:
        """Return cells to be conditioned on: numbers of order one, zero where there is none."""
        parts = self.encode(column)
        if parts.number is None:
            return parts
        middle = np.nan_to_num(parts.number.middle, nan=0.0)
        return parts._replace(number=parts.number._replace(middle=middle))

    def unusual(self, column: Column) -> str:
        """Return what is far from all that was seen, in a few words; nothing where all is near."""
        del column
        return ""

    @abstractmethod
    def as_dict(self) -> dict[str, Any]:
        """Return all of it as JSON holds it."""

    @classmethod
    @abstractmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> "Kind":
        """Return what :meth:`as_dict` has made; anything may come, for files may be anybody's.

        Raises:
            StorageError: If it is something else.
        """


def counted(count: int, what: str) -> str:
    """Return a number of things, with an s for all but one.

    Example:
        >>> counted(1, "level"), counted(1200, "level")
        ('1 level', '1,200 levels')
    """
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def told_empty(text: str, empty: int) -> str:
    """Return a description with the number of empty cells, if there are some."""
    return f"{text}, {empty:,} empty" if empty else text


def shown(value: float) -> str:
    """Return a number as a description has it.

    Example:
        >>> shown(1136870.0), shown(0.123456789)
        ('1,136,870', '0.123457')
    """
    return f"{int(value):,}" if value == round(value) and abs(value) < 1e15 else f"{value:.6g}"
