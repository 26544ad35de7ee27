"""Which kind a column is of, by what it holds."""

import re
from collections.abc import Mapping, Sequence

import numpy as np

from bnaf.columns.bounds import choose_bounds
from bnaf.columns.category import Category
from bnaf.columns.constant import Constant
from bnaf.columns.date import Date
from bnaf.columns.grid import Grid
from bnaf.columns.kind import Bounds, Kind, Values
from bnaf.columns.lattice import ROWS_PER_VALUE, is_gridded
from bnaf.columns.number import Number
from bnaf.columns.opening import Opening
from bnaf.columns.ranges import finite_numbers
from bnaf.columns.text import LeftOut
from bnaf.errors import Argument, SettingsError, TableError
from bnaf.tables.cells import is_dated
from bnaf.tables.column import Column
from bnaf.tables.frames import Frame
from bnaf.tables.marks import told_marks
from bnaf.tables.names import list_columns

CHOICES = ("category", "whole", "grid", "number", "date", "text")
ALIASES = {"yes/no": "category", "identifier": "text"}  # as descriptions have it
FEW_LEVELS, ROWS_PER_LEVEL = 20, 20  # up to which numbers are categories, and what each needs
MOST_TIED = 100  # numbers without a grid that repeat and are still categories
FREE_TEXT = 0.5  # distinct texts in a row from which on they are no levels
IDENTIFIER = re.compile(r"(?i:(^|[\W_])(id|uuid|guid|identifier)($|[\W_\d]))|[a-z]I[dD]$")


def fit_column(
    column: Column,
    kind: str | None = None,
    bounds: Bounds | None = None,
    weights: Values | None = None,
    seen: Column | None = None,
    numbers: np.ndarray | None = None,
) -> Kind | LeftOut:
    """Return what a column means.

    Args:
        column: Its cells.
        kind: What it is to be: "category", "whole" (numbers), "grid" (numbers on one), "number",
            "date", or "text" (left out); found by what it holds by default.
        bounds: Least and largest value, ``None`` where there is none; learned by default.
        weights: What each row counts for.
        seen: Cells that the kind is found by, where there are more than are fitted.
        numbers: Numbers of these rows in what they were read from; they are all by default.

    Raises:
        TableError: If it cannot be of that kind.
        SettingsError: If there is no such kind.
    """
    kind = ALIASES.get(kind or "", kind)
    if kind is not None and kind not in CHOICES:
        raise SettingsError(
            f"kinds must be among {', '.join(CHOICES)}, got {kind!r} for {column.name!r}."
        )
    if bounds is not None and kind in ("category", "text"):
        raise TableError(
            f"{list_columns([column.name])} is told to be of kind {kind!r}, which has no bounds; "
            "leave out one of the two."
        )
    if kind == "text":
        return LeftOut(column.name, "left out as told")
    seen = column if seen is None else seen
    if kind is None and (reason := _useless(seen, numbers)):
        if bounds is not None:
            raise TableError(
                f"{list_columns([column.name])} is left out ({reason}), and bounds were told of "
                "it; say of what kind it is, too."
            )
        return LeftOut(column.name, reason)
    if not len(column.present):
        return Constant.fit(column)
    kind = kind or find_kind(seen)
    if _distinct(column) == 1:
        varies = _distinct(seen) > 1 and kind != "date"  # in rows that are not fitted
        if not varies and not column.empty.any():
            return Constant.fit(column)
        if kind != "date" and bounds is None:
            return Category.fit(column, weights)
    if kind == "category" and bounds is not None:
        kind = _bounded(column)
    if kind == "category":
        return Category.fit(column, weights)
    if kind == "date":
        return Date.fit(column, weights, bounds)
    column = column.as_numbers()
    # of all rows, so that none of those that are not fitted is impossible
    bounds = choose_bounds(column.name, finite_numbers(seen.as_numbers()), bounds)
    if kind == "number":
        return Number.fit(column, weights, bounds)
    return Grid.fit(column, weights, bounds, whole=kind == "whole")


def find_kind(column: Column) -> str:
    """Return the kind of a column that varies and is no identifier."""
    if column.holds == "dates" or is_dated(column):
        return "date"
    if column.holds == "texts" or column.type == "bool":
        return "category"
    distinct, rows = _distinct(column), len(column.present)
    enough = ROWS_PER_LEVEL if distinct > 2 else 2
    if distinct == 1 or (distinct <= FEW_LEVELS and rows >= enough * distinct):
        return "category"
    if is_gridded(finite_numbers(column), column.type):
        return "grid"
    tied = distinct <= MOST_TIED and rows >= ROWS_PER_VALUE * distinct
    return "category" if tied else "number"  # a density has no bound where values repeat


def is_marks(column: Column) -> bool:
    """Tell whether few numbers on a grid, which are levels by default, may be cells of it."""
    if column.holds != "numbers" or column.type == "bool" or _distinct(column) < 2:
        return False
    return find_kind(column) == "category" and is_gridded(finite_numbers(column), column.type)


def is_plain(
    frame: Frame,
    names: Sequence[str],
    given: Sequence[str],
    kinds: Mapping[str, str],
    bounds: Mapping[str, Bounds],
) -> bool:
    """Tell whether columns have a density everywhere, and given ones are complete numbers.

    Args:
        frame: The rows.
        names: Columns to model.
        given: Columns to condition on.
        kinds: What some columns are told to be, by name.
        bounds: Least and largest value of some columns, by name.
    """
    for column in frame.select([*names, *given]).columns:
        if column.holds != "numbers" or column.empty.any():
            return False
        if column.name in given and column.name not in kinds:
            continue
        if (kinds.get(column.name) or find_kind(column)) != Number.name or column.constant:
            return False
        if Number.fit(column, None, bounds.get(column.name)).levels:  # a value is taken often
            return False
    return True


def open_columns(frame: Frame, bounds: Mapping[str, Bounds]) -> dict[str, Opening]:
    """Return how plain numbers are opened that have bounds, learned or given, by name.

    Args:
        frame: The columns, all rows of them.
        bounds: Least and largest value of some columns, by name.
    """
    found = {
        column.name: Number.fit(column, None, bounds.get(column.name)).opening
        for column in frame.columns
    }
    return {name: opening for name, opening in found.items() if opening.bounds != (None, None)}


def _bounded(column: Column) -> str:
    """Return the kind of a column of few values that are told to have bounds.

    Raises:
        TableError: If it holds no numbers.
    """
    if column.holds != "numbers":
        raise TableError(
            f"{list_columns([column.name])} holds {column.type}, which has no bounds; expected "
            "numbers: leave it out of ",
            Argument("bounds"),
            ".",
        )
    return "grid" if is_gridded(finite_numbers(column), column.type) else "number"


def _distinct(column: Column) -> int:
    return len(np.unique(column.present))


def _useless(column: Column, numbers: np.ndarray | None) -> str:
    """Return why a column is to be left out, if it is."""
    if column.holds == "objects":
        return f"{column.type}: neither numbers, text nor dates"
    rows = len(column.present)
    if rows < 2 or column.holds == "dates" or is_dated(column):
        return ""
    distinct = _distinct(column)
    if column.holds == "texts":
        if distinct > FEW_LEVELS and distinct > FREE_TEXT * rows:
            told = f"identifier or free text: {distinct:,} different in {rows:,} rows"
            return told + told_marks(column.name, column.levels)
        return ""
    values = column.present
    if distinct < rows * 0.9 or rows <= FEW_LEVELS or (values != np.round(values)).any():
        return ""
    apart = 1 if numbers is None else np.diff(numbers[~column.empty])
    if rows == distinct and (np.diff(values) == apart).all():
        return "identifier: it counts the rows"
    if IDENTIFIER.search(column.name):
        return f"identifier: {distinct:,} different in {rows:,} rows"
    return ""
