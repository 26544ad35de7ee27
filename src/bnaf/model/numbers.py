"""Rows of plain numbers as rows of a flow: standardised, and whitened where they are few."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float64
from torch import Tensor

from bnaf.errors import SettingsError
from bnaf.flows.flow import Flow
from bnaf.model._chunks import common_batch
from bnaf.model.encoding import SAME, Encoded, Encoding, GivenCells
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
    ) -> None:
        super().__init__(columns, given_columns)
        self.standardisation, self.given_standardisation = standardisation, given_standardisation
        self.types = tuple(types)
        check_types(self.types)
        count, given = len(self.columns), len(self.given_columns)
        _agree("standardisation", standardisation.features, count)
        _agree("types", len(self.types), count)
        _agree("given_standardisation", given_standardisation.features, given)
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
        if isinstance(source, Frame) or has_names(source):  # maybe a row of single values, text
            source = read_frame(source, columns=self._names(name)).as_table()
        if not isinstance(source, Table):
            source = read_table(source, columns=self._names(name), warn=False)
        table: Table = source.select(self._names(name))
        return table.rows

    def contexts(self, given: Float64[Tensor, "*batch given"]) -> Float64[Tensor, "*batch _"]:
        return self.given_standardisation.apply(given)

    def encode(
        self, rows: Float64[Tensor, "*batch columns"], context: Float64[Tensor, "*_ _"] | None
    ) -> Encoded:
        if context is not None:
            common_batch(rows, context)
        return Encoded(self.standardisation.apply(rows, context), self.standardisation.log_det)

    def draw(
        self,
        law: Any,
        count: int,
        context: Float64[Tensor, "*_ _"] | None,
        *,
        outside: str,
        partial: GivenCells | None = None,
    ) -> Float64[Tensor, "count *batch columns"]:
        drawn = law.sample((count,), outside=outside)
        return self.standardisation.invert(drawn, context)

    def from_noise(
        self, law: Any, z: Float64[Tensor, "*all_batch _"], context: Float64[Tensor, "*_ _"] | None
    ) -> Float64[Tensor, "*all_batch columns"]:
        return self.standardisation.invert(law.at_normal_scores(z), context)

    @property
    def scales(self) -> tuple[Standardisation, Standardisation]:
        """Location and scale of each modelled column, and of each given one."""
        return self.standardisation, self.given_standardisation

    @property
    def shift(self) -> float:
        """Log-Jacobian of the standardisation."""
        return self.standardisation.log_det

    def describe(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        columns = _moments(self.columns, self.standardisation)
        typed = [
            {"name": column.pop("name"), "type": kind, **column}
            for column, kind in zip(columns, self.types, strict=True)
        ]
        return typed, _moments(self.given_columns, self.given_standardisation)

    def is_of(self, rows: Float64[Tensor, "rows all_columns"]) -> bool:
        """Tell whether rows have the moments that columns are standardised by."""
        for part, scales in (
            (rows[:, : self.features], self.standardisation),
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
        far = ((codes - scales.location) / scales.scale).abs() > FAR
        return {
            column: f"{int(far[:, index].sum()):,} more than {FAR:g} deviations from the mean"
            for index, column in enumerate(self._names(name))
            if far[:, index].any()
        }

    def read(self, source: Any, *, drop_missing: bool, **reading: Any) -> Table:
        columns = [*self.columns, *self.given_columns]
        if isinstance(source, Frame):
            source = source.select(columns).to_arrow()
        reading |= {"given": self.given_columns, "warn": False}
        return read_table(source, columns=columns, drop_missing=drop_missing, **reading)

    def table(self, codes: Float64[Tensor, "rows columns"], given: Any = None) -> Table:
        return Table(codes, self.columns, self.types)


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
