"""What a kind of column has to offer."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
from jaxtyping import Float64

from bnaf.tables.column import Column

Values = Float64[np.ndarray, " rows"]
Bounds = tuple[float | None, float | None]
UNKNOWN = "\ufffd"  # what a level that was never seen is written as


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
            one per atom. It is nan where the cell is empty and no cell was in the fit: such a cell
            is integrated out. ``None`` where the column has no levels.
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

    type: str
    """Type of the column."""

    @property
    @abstractmethod
    def levels(self) -> int:
        """Number of levels of its discrete part; zero where it has none."""

    @property
    @abstractmethod
    def numbers(self) -> int:
        """Whether it has a number, as 0 or 1."""

    @property
    @abstractmethod
    def may_be_empty(self) -> bool:
        """Whether some cells were empty, so that this has a probability."""

    @property
    def empty_level(self) -> int:
        """The level that an empty cell is; -1 where there is none."""
        return 1 if self.may_be_empty else -1

    @property
    def given_numbers(self) -> int:
        """Whether it has a number when it is conditioned on, as 0 or 1."""
        return self.numbers

    @abstractmethod
    def describe(self) -> str:
        """Return how it was read, in a few words."""

    @property
    def range(self) -> tuple[float, float]:
        """Least and largest code that was seen, where codes have an order; else no limits."""
        return -math.inf, math.inf

    @property
    def textual(self) -> bool:
        """Whether cells are text, also those that look like something else."""
        return False

    @property
    def labels(self) -> tuple[str, ...]:
        """Texts that codes of cells stand for; none where codes are the numbers themselves."""
        return ()

    def codes(self, column: Column) -> Values:
        """Return one number per cell, nan where it is empty: the number itself, by default.

        Raises:
            TableError: If cells cannot be of this kind.
        """
        column = column.as_numbers()
        return np.where(column.empty, np.nan, column.values)

    def column(self, name: str, codes: Values) -> Column:
        """Return the cells that codes stand for."""
        return Column(name, self.type, codes, np.isnan(codes))

    @abstractmethod
    def encode(self, column: Column) -> Parts:
        """Return cells as a flow sees them; an empty one, where none was, has mass one.

        Raises:
            TableError: If they cannot be of this kind.
        """

    @abstractmethod
    def decode(
        self,
        name: str,
        rows: int,
        level: Values | None,
        number: Values | None,
        generator: np.random.Generator,
    ) -> Column:
        """Return the cells that codes and numbers of a flow stand for.

        Args:
            name: What to call the column.
            rows: How many cells it has.
            level: Codes of its levels, if it has some.
            number: Middles of its numbers, if it has some; nan where there is none.
            generator: Chooses among levels that were pooled.
        """

    def snap(self, x: Values) -> Snapped:
        """Return the cells that draws in the flow's scale lie in; points stay where they are."""
        return Snapped(x, np.zeros_like(x), np.zeros_like(x))

    def scores(self, column: Column) -> Parts:
        """Return cells to be conditioned on: numbers of order one, zero where there is none.

        An empty cell where none was is one of the pooled levels, for a flow knows no other that
        stands for what it has not seen.
        """
        parts = self.encode(column)
        if parts.number is None:
            return parts
        middle = np.nan_to_num(parts.number.middle, nan=0.0)
        return parts._replace(number=parts.number._replace(middle=middle))

    def unusual(self, column: Column) -> str:
        """Return what is far from all that was seen, in a few words; nothing where all is near."""
        del column
        return ""

    def expected(self, column: Column) -> str:
        """Return what the one cell of a column should be if it cannot be given, in a few words.

        Nothing where it can, for it has a probability or a density of its own.
        """
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


def label_codes(column: Column, labels: Sequence[str]) -> Values:
    """Return the places of texts among labels, the one after the last for others.

    Raises:
        TableError: If cells are no texts.
    """
    column = column.as_texts()
    places = {label: place for place, label in enumerate(labels)}
    found = np.array([places.get(level, len(labels)) for level in (*column.levels, "")])
    return np.where(column.empty, np.nan, found[np.where(column.empty, -1, column.values)])


def labelled(
    name: str, codes: Values, labels: Sequence[str], kind: str = "text", of: str = "text"
) -> Column:
    """Return the texts at places among labels; a place after the last is an unknown one."""
    empty = np.isnan(codes)
    places = np.where(empty, 0, codes).astype(np.int64)
    texts = (*labels, UNKNOWN) if (places >= len(labels)).any() else tuple(labels)
    return Column(name, kind, np.minimum(places, len(labels)), empty, texts, of)


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
