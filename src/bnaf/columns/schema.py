"""What all columns of a table mean, and how its rows become rows of a flow and come back."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float64
from torch import Tensor

from bnaf._text import plain_name
from bnaf.columns.detection import fit_column
from bnaf.columns.kind import Bounds, Kind, Parts, Snapped
from bnaf.columns.registry import KINDS
from bnaf.columns.stored import entry, flag_of, refused, text_of
from bnaf.columns.text import LeftOut
from bnaf.errors import Argument, BnafError, StorageError, TableError
from bnaf.tables.cells import arrow_cells
from bnaf.tables.column import Column
from bnaf.tables.frames import Frame, read_frame
from bnaf.tables.marks import told_marks
from bnaf.tables.names import check_names, find_columns
from bnaf.tables.table import TYPES

MOST_COLUMNS = 2**16


class Encoded(NamedTuple):
    """Rows as a flow sees them.

    Args:
        rows: Levels, then middles, then distances of the lower and of the upper ends.
        shift: Per row and column, what is to be added to the log-density of the flow so that it
            is in the units of the table; minus infinity where a cell is impossible.
    """

    rows: Float64[Tensor, "rows width"]
    shift: Float64[Tensor, "rows columns"]


@dataclass(frozen=True, eq=False)
class Schema:
    """Kinds of the columns of a table, fitted to it.

    Args:
        names: Names of the columns.
        kinds: What each means.
        left_out: Columns that are no part of it, with reasons.
        nullable: Names of the columns that came in a nullable type of pandas.
    """

    names: tuple[str, ...]
    kinds: tuple[Kind, ...]
    left_out: tuple[LeftOut, ...] = ()
    nullable: tuple[str, ...] = ()

    @classmethod
    def fit(
        cls,
        frame: Any,
        *,
        kinds: Mapping[str, str] | None = None,
        bounds: Mapping[str, Bounds] | None = None,
        weights: Any = None,
        seen: Frame | None = None,
        given: bool = False,
    ) -> "Schema":
        """Return what the columns of a frame mean.

        Args:
            frame: The rows: a frame of any library, a file, or columns by name.
            kinds: Kinds of some columns, by name: "category", "whole", "grid", "number", "date",
                or "text" (left out); the others are found by what they hold.
            bounds: Bounds of some columns of numbers, by name; ``None`` where there is none.
            weights: What each row counts for.
            seen: Rows that kinds are found by, where there are more than are fitted.
            given: Whether the columns are to be conditioned on; none is then left out.

        Raises:
            TableError: If a column cannot be what it is told to be, or none is left.
        """
        frame = frame if isinstance(frame, Frame) else read_frame(frame)
        kinds, bounds = dict(kinds or {}), dict(bounds or {})
        find_columns([*kinds], frame.names)
        find_columns([*bounds], frame.names)
        counts = None if weights is None else np.asarray(weights, dtype=np.float64)
        if counts is not None and counts.shape != (len(frame),):
            raise TableError(
                f"Expected one weight per row ({len(frame):,}), got shape {counts.shape}."
            )
        found = [
            fit_column(
                column,
                kinds.get(column.name),
                bounds.get(column.name),
                counts,
                None if seen is None else seen[column.name],
                (frame if seen is None else seen).numbers,
            )
            for column in frame.columns
        ]
        kept = [
            (name, kind)
            for name, kind in zip(frame.names, found, strict=True)
            if isinstance(kind, Kind)
        ]
        left_out = tuple(kind for kind in found if isinstance(kind, LeftOut))
        if given and left_out:
            raise TableError(
                f"Column {left_out[0].name!r} cannot be conditioned on, it is left out "
                f"({left_out[0].reason}); choose another, or say of what kind it is."
            )
        if not any(kind.levels or kind.numbers for _, kind in kept):
            purpose = "condition on" if given else "model"
            raise TableError(
                f"No column is left to {purpose}: all are constant, identifiers or free text; "
                "expected one that varies. Say what a column is with its kind."
            )
        return cls(
            tuple(name for name, _ in kept),
            tuple(kind for _, kind in kept),
            left_out,
            tuple(name for name, _ in kept if frame[name].nullable),
        )

    def __getitem__(self, name: str) -> Kind:
        return self.kinds[find_columns([name], self.names)[0]]

    def select(self, names: Sequence[str]) -> "Schema":
        """Return the schema of some of the columns, in that order.

        Raises:
            TableError: If one of them is not there.
        """
        places = find_columns(names, self.names)
        nullable = tuple(name for name in names if name in self.nullable)
        return Schema(tuple(names), tuple(self.kinds[p] for p in places), (), nullable)

    @property
    def texts(self) -> tuple[str, ...]:
        """Names of the columns whose cells are text, also those that look like something else."""
        pairs = zip(self.names, self.kinds, strict=True)
        return tuple(name for name, kind in pairs if kind.textual)

    @property
    def levels(self) -> tuple[int, ...]:
        """Number of levels of each discrete part."""
        return tuple(kind.levels for kind in self.kinds if kind.levels)

    @property
    def numbers(self) -> int:
        """Number of number parts."""
        return sum(kind.numbers for kind in self.kinds)

    @property
    def given_numbers(self) -> int:
        """Number of number parts of rows that are conditioned on."""
        return sum(kind.given_numbers for kind in self.kinds)

    @property
    def width(self) -> int:
        """Width of an encoded row."""
        return len(self.levels) + 3 * self.numbers

    @property
    def level_columns(self) -> tuple[int, ...]:
        """Of each discrete part, the column that it belongs to."""
        return tuple(place for place, kind in enumerate(self.kinds) if kind.levels)

    @property
    def number_columns(self) -> tuple[int, ...]:
        """Of each number part, the column that it belongs to."""
        return tuple(place for place, kind in enumerate(self.kinds) if kind.numbers)

    @property
    def statuses(self) -> tuple[int, ...]:
        """Of each number part, the discrete part that says whether there is one; -1 if none."""
        discrete = {place: part for part, place in enumerate(self.level_columns)}
        return tuple(discrete.get(place, -1) for place in self.number_columns)

    @property
    def empty_levels(self) -> tuple[int, ...]:
        """Of each discrete part, the level of an empty cell; -1 where there is none."""
        return tuple(kind.empty_level for kind in self.kinds if kind.levels)

    @property
    def ranges(self) -> Float64[Tensor, "2 columns"]:
        """Least and largest code of each column that was seen; none of texts."""
        return torch.tensor([kind.range for kind in self.kinds], dtype=torch.float64).T

    @property
    def hollow(self) -> Bool[Tensor, " columns"]:
        """Which columns are empty throughout."""
        return torch.tensor([k.may_be_empty and not (k.levels or k.numbers) for k in self.kinds])

    def by_column(self, shares: Float64[Tensor, "rows parts"]) -> Float64[Tensor, "rows columns"]:
        """Return numbers of discrete and of number parts, added up by column."""
        places = torch.tensor([*self.level_columns, *self.number_columns], dtype=torch.long)
        total = shares.new_zeros(len(shares), len(self.kinds))
        return total.index_add_(1, places, shares)

    def codes(self, frame: Frame) -> Float64[Tensor, "rows columns"]:
        """Return one number per cell, nan where it is empty.

        Numbers are themselves, dates multiples of their resolution since the first that was seen,
        and texts the places of their levels, a level never seen the place after the last.

        Raises:
            TableError: If a column is missing, or cells cannot be of its kind.
        """
        columns = [
            kind.codes(frame[name]) for name, kind in zip(self.names, self.kinds, strict=True)
        ]
        return _stack(columns, len(frame))

    def frame(self, codes: Float64[Tensor, "rows columns"]) -> Frame:
        """Return the rows of a table that codes stand for."""
        values = codes.detach().cpu().numpy().T
        return self._frame(
            kind.column(name, cells)
            for name, kind, cells in zip(self.names, self.kinds, values, strict=True)
        )

    def _frame(self, columns: Iterable[Column]) -> Frame:
        """Return columns as a frame of the types that pandas had, or needs for empty cells."""
        pairs = zip(columns, self.kinds, strict=True)
        return Frame(
            tuple(
                replace(column, nullable=column.name in self.nullable or _needs_null(kind))
                for column, kind in pairs
            )
        )

    def encode(self, frame: Frame) -> Encoded:
        """Return the rows of a frame as a flow sees them.

        Raises:
            TableError: If a column is missing, or cells cannot be of its kind.
        """
        parts = [
            kind.encode(frame[name]) for name, kind in zip(self.names, self.kinds, strict=True)
        ]
        levels, numbers = _sorted_parts(parts)
        rows = [*levels]
        for part in range(3):
            rows += [number[part] for number in numbers]
        shift = np.stack([part.shift for part in parts], 1)
        return Encoded(_stack(rows, len(frame)), torch.from_numpy(shift))

    def encode_given(self, frame: Frame) -> Float64[Tensor, "rows width"]:
        """Return rows to be conditioned on: levels, then numbers of order one; without nan.

        An empty cell where none was is one of the pooled levels, and its number zero.

        Raises:
            TableError: If a column is missing, or cells cannot be of its kind.
        """
        parts = [
            kind.scores(frame[name]) for name, kind in zip(self.names, self.kinds, strict=True)
        ]
        levels, numbers = _sorted_parts(parts)
        return _stack([*levels, *(number.middle for number in numbers)], len(frame))

    def decode(self, rows: Tensor, *, seed: int = 0) -> Frame:
        """Return the rows of a table that rows of a flow stand for.

        Args:
            rows: Encoded rows, or draws of a flow.
            seed: Seed of the choice among levels that were pooled.
        """
        values = rows.detach().to("cpu", torch.float64).numpy()
        generator = np.random.default_rng(seed)
        discrete, columns, level, number = len(self.levels), [], 0, 0
        for name, kind in zip(self.names, self.kinds, strict=True):
            codes = values[:, level] if kind.levels else None
            middles = values[:, discrete + number] if kind.numbers else None
            columns.append(kind.decode(name, len(values), codes, middles, generator))
            level, number = level + bool(kind.levels), number + kind.numbers
        return self._frame(columns)

    def snap(self, part: int, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the cells that draws of a number part lie in: middle, below and above.

        Args:
            part: Which number part.
            x: Draws in the scale of the flow.
        """
        kind = self.kinds[self.number_columns[part]]
        flat: Snapped = kind.snap(x.detach().to("cpu", torch.float64).reshape(-1).numpy())
        middle, below, above = (torch.from_numpy(end).to(x).reshape(x.shape) for end in flat)
        return middle, below, above

    def describe(self) -> dict[str, str]:
        """Return how each column was read, by name; those left out are among them."""
        told = {
            name: kind.describe() + told_marks(name, kind.labels)
            for name, kind in zip(self.names, self.kinds, strict=True)
        }
        return told | {column.name: f"left out: {column.reason}" for column in self.left_out}

    def unusual(self, frame: Frame, *, given: bool = False) -> dict[str, str]:
        """Return what is far from all that was seen, by name of the column, in words.

        Args:
            frame: The rows.
            given: Whether they are conditioned on, so that empty cells where none was matter.
        """
        told = {
            name: kind.unusual(frame[name])
            or (_told_empty(frame[name]) if given and not kind.may_be_empty else "")
            for name, kind in zip(self.names, self.kinds, strict=True)
        }
        return {name: words for name, words in told.items() if words}

    def check_given(self, frame: Frame) -> None:
        """Check that one row of some of the columns can be given.

        Raises:
            TableError: If a value has no probability of its own.
        """
        for column in frame.columns:
            kind = self[column.name]
            wanted = kind.expected(column)
            if column.empty.any() and not kind.may_be_empty:
                wanted = "a value, for no cell was empty"
            if wanted:
                (cell,) = arrow_cells(column).to_pylist()
                got = "an empty cell" if cell is None else repr(plain_name(str(cell), 20))
                raise TableError(
                    f"Column {column.name!r} expects {wanted}, got {got}; give another value, or "
                    "leave it out of ",
                    Argument("given"),
                    ".",
                )

    def as_dict(self) -> dict[str, Any]:
        """Return all of it as JSON holds it."""
        return {
            "columns": [
                {"name": name, "kind": kind.name, **kind.as_dict(), **self._marks(name)}
                for name, kind in zip(self.names, self.kinds, strict=True)
            ],
            "left_out": [column.__dict__ for column in self.left_out],
        }

    def _marks(self, name: str) -> dict[str, bool]:
        return {"nullable": True} if name in self.nullable else {}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> "Schema":
        """Return what :meth:`as_dict` has made.

        Raises:
            StorageError: If it is something else; model files may be anybody's.
        """
        columns, left_out = entry(stored, "columns"), entry(stored, "left_out")
        for key, value in (("columns", columns), ("left_out", left_out)):
            if not isinstance(value, list) or len(value) > MOST_COLUMNS:
                raise refused(key, "a list of columns", value)
        names = tuple(text_of(column, "name") for column in columns)
        try:
            check_names(names)
            kinds = tuple(
                KINDS[text_of(column, "kind", (*KINDS,))].from_dict(column) for column in columns
            )
        except StorageError:
            raise
        except (BnafError, LookupError, TypeError, ValueError, ArithmeticError) as error:
            raise StorageError(f"A model expects columns that can be: {error}") from None
        reasons = [(text_of(item, "name"), text_of(item, "reason")) for item in left_out]
        nullable = [
            name
            for name, column in zip(names, columns, strict=True)
            if flag_of({"nullable": False, **column}, "nullable")
        ]
        return cls(names, kinds, tuple(LeftOut(*reason) for reason in reasons), tuple(nullable))


def _needs_null(kind: Kind) -> bool:
    """Return whether cells may be empty, of a type that NumPy has no such value of."""
    return kind.may_be_empty and kind.type in TYPES and not kind.type.startswith("float")


def _told_empty(column: Column) -> str:
    empty = int(column.empty.sum())
    return f"{empty:,} empty, where none was" if empty else ""


def _sorted_parts(parts: Sequence[Parts]) -> tuple[list[np.ndarray], list[Snapped]]:
    """Return the discrete parts and the number parts."""
    levels = [part.level for part in parts if part.level is not None]
    return levels, [part.number for part in parts if part.number is not None]


def _stack(columns: list[np.ndarray], rows: int) -> Tensor:
    if not columns:
        return torch.empty(rows, 0, dtype=torch.float64)
    return torch.from_numpy(np.stack(columns, 1))
