"""Rows of plain numbers as rows of a flow: standardised, and whitened where they are few."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float64
from torch import Tensor

from bnaf.columns.bounds import outside
from bnaf.errors import Argument, SettingsError, TableError
from bnaf.flows.flow import Flow
from bnaf.model._chunks import common_batch
from bnaf.model.encoding import SAME, Encoded, Encoding, GivenCells
from bnaf.model.openings import Openings
from bnaf.model.standardisation import Standardisation
from bnaf.tables.frames import Frame, read_frame
from bnaf.tables.reading import read_table
from bnaf.tables.sources import has_names
from bnaf.tables.table import Table, check_types

FAR = 20.0  # deviations from which on a value is far from all that was seen


class NumberEncoding(Encoding):
    """Columns of numbers, standardised, those of a small table whitened.

    Args:
        columns: Names of the columns that are modelled.
        given_columns: Names of those that are conditioned on.
        standardisation: Location and scale of the former.
        given_standardisation: Location and scale of the latter.
        types: Element types of the former in the table, by NumPy's names.
        openings: Bounds of the former: these columns are opened first.
        ranges: Least and largest value of each that was seen, where that is known.

    Raises:
        SettingsError: If names, types and scales do not agree.
    """

    noisy = True

    def __init__(
        self,
        columns: Sequence[str],
        given_columns: Sequence[str],
        standardisation: Standardisation,
        given_standardisation: Standardisation,
        types: Sequence[str],
        openings: Openings | None = None,
        ranges: Float64[Tensor, "2 columns"] | None = None,
    ) -> None:
        super().__init__(columns, given_columns)
        self.ranges = ranges
        self.openings = openings or Openings()
        self.standardisation, self.given_standardisation = standardisation, given_standardisation
        self.types = tuple(types)
        check_types(self.types)
        count, given = len(self.columns), len(self.given_columns)
        _agree("standardisation", standardisation.features, count)
        _agree("types", len(self.types), count)
        _agree("given_standardisation", given_standardisation.features, given)
        if ranges is not None:
            _agree("ranges", ranges.shape[1], count)
        if standardisation.slopes is not None:
            _agree("slopes of standardisation", standardisation.slopes.shape[1], given)

    @property
    def features(self) -> int:
        """Number of modelled columns."""
        return len(self.columns)

    @property
    def context_features(self) -> int:
        """Number of given columns."""
        return len(self.given_columns)

    def codes(self, source: Any, name: str) -> Float64[Tensor, "*batch columns"]:
        if isinstance(source, Tensor | np.ndarray):
            return self._checked(source, name)
        try:
            if isinstance(source, Frame) or has_names(source):  # maybe a row of values, or text
                source = read_frame(source, columns=self._names(name)).as_table()
            if not isinstance(source, Table):
                source = read_table(source, columns=self._names(name), warn=False)
        except TableError as error:
            if Argument("drop_missing", True) not in error.remedies:
                raise
            raise without_empty(str(error).partition(";")[0]) from None
        table: Table = source.select(self._names(name))
        return table.rows

    def contexts(self, given: Float64[Tensor, "*batch given"]) -> Float64[Tensor, "*batch _"]:
        return self.given_standardisation.apply(given)

    def encode(
        self, rows: Float64[Tensor, "*batch columns"], context: Float64[Tensor, "*_ _"] | None
    ) -> Encoded:
        if context is not None:
            common_batch(rows, context)
        if not self.openings:
            return Encoded(self.standardisation.apply(rows, context), self.shift)
        opened = self.openings.apply(rows)[0]
        return Encoded(self.standardisation.apply(opened, context), self.row_shift(rows))

    def row_shift(self, rows: Float64[Tensor, "*batch columns"]) -> Float64[Tensor, "*batch"]:
        """Return what the log-density of each row gains."""
        return self.standardisation.log_det + self.openings.apply(rows)[1]

    def draw(
        self,
        law: Any,
        count: int,
        context: Float64[Tensor, "*_ _"] | None,
        *,
        outside: str,
        partial: GivenCells | None = None,
        complete: bool = False,
    ) -> Float64[Tensor, "count *batch columns"]:
        drawn = law.sample((count,), outside=outside)
        return self.openings.undo(self.standardisation.invert(drawn, context))

    def from_noise(
        self, law: Any, z: Float64[Tensor, "*all_batch _"], context: Float64[Tensor, "*_ _"] | None
    ) -> Float64[Tensor, "*all_batch columns"]:
        rows = self.standardisation.invert(law.at_normal_scores(z), context)
        return self.openings.undo(rows)

    @property
    def scales(self) -> tuple[Standardisation, Standardisation]:
        """Location and scale of each modelled column, once opened, and of each given one."""
        return self.standardisation, self.given_standardisation

    @property
    def shift(self) -> float:
        """Log-Jacobian of the standardisation, where no column is opened."""
        return 0.0 if self.openings else self.standardisation.log_det

    @property
    def read_as(self) -> dict[str, str]:
        told = {
            name: f"numbers{self.openings.told(place)}" for place, name in enumerate(self.columns)
        }
        return told | dict.fromkeys(self.given_columns, "given, numbers")

    def describe(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        columns = _moments(self.columns, self.standardisation)
        typed = [
            {"name": column.pop("name"), "type": kind, **column}
            for column, kind in zip(columns, self.types, strict=True)
        ]
        for place in self.openings.of:
            typed[place]["bounds"] = list(self.openings.bounds(place))
        return typed, _moments(self.given_columns, self.given_standardisation)

    def is_of(self, rows: Float64[Tensor, "rows all_columns"]) -> bool:
        """Tell whether rows have the moments that columns are standardised by."""
        for part, scales in (
            (self._opened(rows[:, : self.features]), self.standardisation),
            (rows[:, self.features :], self.given_standardisation),
        ):
            found = Standardisation.from_rows(part)
            apart = (found.location - scales.location).abs() / scales.scale
            stretched = (found.scale / scales.scale - 1).abs()
            if bool((apart > SAME).any()) or bool((stretched > SAME).any()):
                return False
        return True

    def values(self, rows: Float64[Tensor, "rows all_columns"]) -> list[list[Any]]:
        found: list[list[Any]] = rows.tolist()
        return found

    def unusual(self, codes: Float64[Tensor, "rows columns"], name: str) -> dict[str, str]:
        scales = self.standardisation if name == "rows" else self.given_standardisation
        if scales.is_identity:  # then nothing is known of the columns
            return {}
        numbers = self._opened(codes) if name == "rows" else codes
        far = ((numbers - scales.location) / scales.scale).abs() > FAR
        return self._outside(codes, name) | {
            column: f"{int(far[:, index].sum()):,} more than {FAR:g} deviations from the mean"
            for index, column in enumerate(self._names(name))
            if far[:, index].any()
        }

    def _opened(self, rows: Tensor) -> Tensor:
        return self.openings.apply(rows)[0] if self.openings else rows

    def _outside(self, codes: Tensor, name: str) -> dict[str, str]:
        """Return of which columns values lie outside of the bounds, in words."""
        if name != "rows":
            return {}
        wrong = {
            place: int(outside(codes[:, place].numpy(), self.openings.bounds(place)).sum())
            for place in self.openings.of
        }
        return {
            self.columns[place]: f"{count:,} outside of the bounds{self.openings.told(place)}"
            for place, count in wrong.items()
            if count
        }

    def read(self, source: Any, *, drop_missing: bool, **reading: Any) -> Table:
        columns = [*self.columns, *self.given_columns]
        if isinstance(source, Frame):
            source = source.select(columns).to_arrow()
        reading |= {"given": self.given_columns, "warn": False}
        return read_table(source, columns=columns, drop_missing=drop_missing, **reading)

    def table(self, codes: Float64[Tensor, "rows columns"], given: Any = None) -> Table:
        return Table(codes, self.columns, self.types)


def without_empty(found: str) -> TableError:
    """Return the error of empty cells where a model was fitted to numbers without any.

    Args:
        found: What was found.
    """
    return TableError(
        f"{found}; this model knows numbers without empty cells alone. Fill them in, leave these "
        "rows out, or fit anew to a table with such cells or with ",
        Argument("flow", "mixed"),
        ", which integrates them out.",
    )


def plain_encoding(
    flow: Flow,
    columns: Sequence[str] | None,
    standardisation: Standardisation | None,
    types: Sequence[str] | None,
    given_columns: Sequence[str] | None,
    given_standardisation: Standardisation | None,
) -> NumberEncoding:
    """Return the encoding of numbers for a flow, with names and scales where none are given.

    Raises:
        SettingsError: If names, types or scales do not agree with the flow.
    """
    features, given = flow.features, flow.context_features
    return NumberEncoding(
        _choose_names("columns", columns, features, "x"),
        _choose_names("given_columns", given_columns, given, "c"),
        standardisation or Standardisation.identity(features),
        given_standardisation or Standardisation.identity(given),
        types if types is not None else ("float64",) * features,
    )


def _moments(names: Sequence[str], scales: Standardisation) -> list[dict[str, Any]]:
    moments = zip(names, scales.location.tolist(), scales.scale.tolist(), strict=True)
    return [{"name": name, "mean": mean, "deviation": scale} for name, mean, scale in moments]


def _choose_names(
    setting: str, names: Sequence[str] | None, count: int, letter: str
) -> tuple[str, ...]:
    if names is None:
        return tuple(f"{letter}{index}" for index in range(count))
    _agree(setting, len(names), count)
    return tuple(names)


def _agree(setting: str, got: int, expected: int) -> None:
    if got != expected:
        raise SettingsError(
            f"{setting} must have one entry per column of the flow ({expected}), got {got}."
        )
