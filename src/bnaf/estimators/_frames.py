"""Rows of every kind, as scikit-learn's users hold them: frames, arrays of text, empty cells."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float64

from bnaf.columns.detection import is_marks
from bnaf.errors import SettingsError, ShapeError, TableError
from bnaf.model.model import Model
from bnaf.tables.column import Column
from bnaf.tables.frames import Frame, read_frame
from bnaf.tables.sources import has_names


class WeighedFrame(NamedTuple):
    """Rows of a frame, how much each counts, and what some columns are told to mean, by name."""

    rows: Frame
    weights: Float64[np.ndarray, " rows"]
    kinds: Mapping[str, str] = MappingProxyType({})

    def take(self, chosen: Bool[np.ndarray, " rows"]) -> "WeighedFrame":
        """Return some of the rows."""
        return WeighedFrame(self.rows.take(chosen), self.weights[chosen], self.kinds)


def as_rows(X: Any) -> Any:
    """Return columns by name, or a list of rows by name, as a frame; other rows as they are."""
    return read_frame(X).to_pandas() if has_names(X) else X


def mixed_frame(X: Any) -> Frame | None:
    """Return rows as a frame if columns are of several kinds or cells are empty; none if not.

    A frame of numbers alone, all of them there, is what its array is, as scikit-learn asks; other
    frames are read by what their columns hold. Arrays are of text, or of numbers with nan where a
    cell is empty.
    """
    if hasattr(X, "columns") and not isinstance(X, np.ndarray):
        frame = _whole_frame(X)
        return None if all(_is_amount(column) for column in frame.columns) else frame
    if not isinstance(X, np.ndarray | list | tuple):
        return None
    try:
        values = np.asarray(X)
    except ValueError:  # rows of several lengths, which scikit-learn tells of
        return None
    if values.ndim != 2 or not values.size:
        return None
    if values.dtype.kind in "OUS":
        return None if _is_numeric(values) else _text_frame(values)
    if values.dtype.kind == "f" and np.isnan(values).any() and not np.isinf(values).any():
        return read_frame(values.astype(np.float64))
    return None


def _whole_frame(X: Any) -> Frame:
    """Return all columns of a frame, one that numbers the rows too, for scikit-learn counts it."""
    labels = X.columns if hasattr(X, "iloc") else getattr(X, "column_names", X.columns)
    if all(isinstance(label, str) for label in labels):
        return read_frame(X, columns=list(labels))
    return read_frame(X)


def array_kinds(X: Any, frame: Frame) -> dict[str, str]:
    """Return the kinds that are told: numbers of an array have a density, however they repeat."""
    if hasattr(X, "columns"):
        return {}
    return {
        column.name: "number"
        for column in frame.columns
        if column.holds == "numbers" and len(np.unique(column.present)) > 1
    }


def named_frame(X: Any, names: Sequence[str]) -> Frame:
    """Return rows as a frame with the columns of a fit.

    Raises:
        ShapeError: If there are fewer or more columns.
        TableError: If a frame lacks one.
    """
    if hasattr(X, "columns") and not isinstance(X, np.ndarray):
        frame = _whole_frame(X)
        if {*names} <= {*frame.names} or len(frame.names) != len(names):
            return frame.select(names)
        return frame.renamed(names)  # names that are no text, which scikit-learn passes over
    values = np.asarray(X)
    if values.ndim != 2 or values.shape[1] != len(names):
        raise ShapeError(
            f"X must have the {len(names)} columns given to fit, got shape {values.shape}."
        )
    text = values.dtype.kind in "OUS"
    frame = _text_frame(values) if text else read_frame(values.astype(np.float64))
    return frame.renamed(names)


def join_frames(*frames: Frame) -> Frame:
    """Return the columns of several frames side by side.

    Raises:
        TableError: If they have different numbers of rows.
    """
    if len({len(frame) for frame in frames}) > 1:
        raise TableError(
            f"X and y must have as many rows, got {' and '.join(str(len(f)) for f in frames)}."
        )
    return Frame(tuple(column for frame in frames for column in frame.columns))


def target_frame(y: Any, names: Sequence[str]) -> Frame:
    """Return what is modelled as a frame of these names."""
    if hasattr(y, "columns") and not isinstance(y, np.ndarray):
        frame = read_frame(y)
    else:
        values = y if hasattr(y, "dtype") else np.asarray(y)
        columns: Mapping[str, Any] = {names[0]: values}
        if getattr(values, "ndim", 1) == 2:
            columns = {name: values[:, place] for place, name in enumerate(names)}
        frame = read_frame(columns)
    return frame.renamed(names)


def target_names(y: Any, count: int, taken: Sequence[str]) -> list[str]:
    """Return the names of the columns of y; others where they have none or they are taken."""
    named = list(getattr(y, "columns", [getattr(y, "name", None)]))
    usable = len(named) == count and all(isinstance(name, str) and name for name in named)
    if usable and len({*named, *taken}) == count + len(taken):
        return named
    letter = "y"
    while any(f"{letter}{index}" in taken for index in range(count)):
        letter += "_"
    return [f"{letter}{index}" for index in range(count)]


def label_kinds(modelled: Frame, *, alone: bool) -> dict[str, str]:
    """Return the kinds of columns of y that are told: text, and true and false, are categories.

    One column of few numbers, such as marks, is one of cells, so that it has quantiles.

    Args:
        modelled: The columns.
        alone: Whether the one column there is holds levels, whatever they look like.

    Raises:
        TableError: If a cell is empty.
    """
    if not modelled.complete.all():
        raise TableError(
            f"y has {int((~modelled.complete).sum()):,} empty cells, expected none; leave out "
            "these rows."
        )
    labels = [
        column.name
        for column in modelled.columns
        if alone or column.holds == "texts" or column.type == "bool"
    ]
    kinds = dict.fromkeys(labels, "category")
    if not labels and len(modelled.columns) == 1 and is_marks(modelled.columns[0]):
        kinds[modelled.columns[0].name] = "grid"
    return kinds


def holds_dates(model: Model) -> bool:
    """Tell whether some modelled column is of dates."""
    schema = model.encoding.schema
    return schema is not None and any(kind.name == "date" for kind in schema.kinds)


def expect_no_dates(model: Model, name: str) -> None:
    """Refuse what is of numbers alone.

    Raises:
        SettingsError: If some modelled column is of dates.
    """
    if holds_dates(model):
        raise SettingsError(f"{name} is of numbers, got dates as y; sample draws some.")


def as_held(model: Model, codes: np.ndarray) -> np.ndarray:
    """Return draws as the columns of y hold them, where these are not all numbers.

    Args:
        model: Whose draws they are.
        codes: What stands for them, the columns last where there are several.
    """
    if not (model.encoding.labels or holds_dates(model)):
        return codes
    rows = torch.from_numpy(codes.reshape(-1, len(model.columns)))
    frame = model.encoding.table(rows).to_pandas()
    values = frame.to_numpy(object) if len(model.columns) > 1 else frame.iloc[:, 0].to_numpy()
    return np.asarray(values).reshape(codes.shape)


def is_categorical(y: Any) -> bool:
    """Tell whether one column of targets is of levels: text, a category or true and false."""
    if y is None:  # which scikit-learn tells of
        return False
    kind = getattr(getattr(y, "dtype", None), "name", "") or np.asarray(y).dtype.name
    if kind in ("category", "bool", "boolean", "string") or kind.startswith(("str", "bytes")):
        return True
    if kind != "object":
        return False
    return not _is_numeric(np.asarray(y, dtype=object).reshape(len(y), -1))


def _is_amount(column: Column) -> bool:
    """Tell whether a column holds numbers, not true and false, and no cell is empty."""
    return column.holds == "numbers" and column.type != "bool" and not column.empty.any()


def _is_numeric(values: np.ndarray) -> bool:
    try:
        values.astype(np.float64)
    except (TypeError, ValueError):
        return False
    return values.dtype.kind == "O" and not any(isinstance(cell, str) for cell in values.flat)


def _text_frame(values: np.ndarray) -> Frame:
    """Return an array of text, or of objects, column by column; numbers among them stay."""
    return read_frame({f"x{place}": list(values[:, place]) for place in range(values.shape[1])})
