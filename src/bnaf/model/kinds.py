"""Rows of every kind as rows of a flow: levels, points, intervals and empty cells."""

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float64
from torch import Tensor

from bnaf.columns.kind import UNKNOWN
from bnaf.columns.schema import Schema
from bnaf.errors import SettingsError, ShapeError
from bnaf.flows.flow import Flow
from bnaf.laws.mixed import MixedLaw
from bnaf.laws.normal import normal_cdf
from bnaf.model.encoding import SAME, Encoded, Encoding, GivenCells, warn_of_unusual
from bnaf.tables.column import Column
from bnaf.tables.frames import Frame, read_frame
from bnaf.tables.moments import RunningMoments
from bnaf.tables.names import find_columns
from bnaf.tables.table import Table

UNIT = 4.0  # of codes in their moments, so that no difference of two overflows


class KindEncoding(Encoding):
    """Columns of every kind, as a schema says.

    The codes of a row are those of :meth:`bnaf.columns.schema.Schema.codes`, and a
    :class:`bnaf.tables.table.Table` of its columns is one of codes.

    Args:
        schema: What the columns that are modelled mean.
        given_schema: What those mean that are conditioned on, if any.
        location: Mean of the codes of each column, given ones last, over rows where they are.
        scale: Their deviation.
    """

    noisy = False
    schema: Schema

    def __init__(
        self,
        schema: Schema,
        given_schema: Schema | None,
        location: Float64[Tensor, " all_columns"],
        scale: Float64[Tensor, " all_columns"],
    ) -> None:
        super().__init__(schema.names, () if given_schema is None else given_schema.names)
        self.schema, self.given_schema = schema, given_schema
        self.location, self.scale = location, scale
        self.ranges = schema.ranges
        self.types = ("float64",) * len(self.columns)
        self.continuous = not schema.levels and schema.numbers == len(self.columns)

    @property
    def features(self) -> int:
        """Width of a packed row."""
        return self.schema.width

    @property
    def context_features(self) -> int:
        """Width of a packed context."""
        if self.given_schema is None:
            return 0
        return len(self.given_schema.levels) + self.given_schema.given_numbers

    @property
    def hollow(self) -> Bool[Tensor, " columns"]:
        return self.schema.hollow

    @property
    def parts(self) -> dict[str, Any]:
        """What a flow of such rows is made of, as arguments of :class:`bnaf.flows.mixed.Mixed`."""
        given = self.given_schema
        return {
            "levels": list(self.schema.levels),
            "numbers": self.schema.numbers,
            "statuses": list(self.schema.statuses),
            "context_levels": [] if given is None else list(given.levels),
            "context_numbers": 0 if given is None else given.given_numbers,
        }

    @property
    def shift(self) -> float:
        """None that all rows share."""
        return 0.0

    @property
    def read_as(self) -> dict[str, str]:
        """How every column was read, in words."""
        given = {} if self.given_schema is None else self.given_schema.describe()
        return self.schema.describe() | {name: f"given, {words}" for name, words in given.items()}

    @property
    def labels(self) -> dict[str, tuple[str, ...]]:
        """Levels of columns of text, by name."""
        pairs = zip(self.schema.names, self.schema.kinds, strict=True)
        return {name: kind.labels for name, kind in pairs if kind.labels}

    def codes(self, source: Any, name: str) -> Float64[Tensor, "*batch columns"]:
        if isinstance(source, Tensor | np.ndarray):
            return self._checked(source, name)
        schema = self.schema if name == "rows" else self.given_schema
        assert schema is not None
        if isinstance(source, Table):
            return source.select(schema.names).rows
        return schema.codes(read_frame(source, columns=schema.names, texts=schema.texts))

    def contexts(self, given: Float64[Tensor, "*batch given"]) -> Float64[Tensor, "*batch _"]:
        assert self.given_schema is not None
        flat = given.reshape(-1, given.shape[-1])
        packed = self.given_schema.encode_given(self.given_schema.frame(flat))
        return packed.to(given.device).reshape(*given.shape[:-1], -1)

    def encode(
        self, rows: Float64[Tensor, "*batch columns"], context: Float64[Tensor, "*_ _"] | None
    ) -> Encoded:
        batch = rows.shape[:-1]
        packed, shift = self.schema.encode(self.schema.frame(rows.reshape(-1, rows.shape[-1])))
        return Encoded(
            packed.to(rows.device).reshape(*batch, -1),
            shift.sum(-1).to(rows.device).reshape(batch),
        )

    def log_shares(
        self, law: MixedLaw, rows: Float64[Tensor, "rows columns"]
    ) -> Float64[Tensor, "rows columns"]:
        packed, shift = self.schema.encode(self.schema.frame(rows))
        shares = law.log_shares(packed.to(rows.device))
        return self.schema.by_column(shares) + shift.to(rows.device)

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
        row = None if partial is None else partial.row
        barred = self.schema.empty_levels if complete and row is None else None
        packed = law.sample((count,), snap=self.schema.snap, given=row, barred=barred)
        seed = int(torch.randint(2**31, ()))
        frame = self.schema.decode(packed.reshape(-1, packed.shape[-1]), seed=seed)
        codes = self.schema.codes(frame)
        if partial is not None:  # as it was given, not another of its pool
            codes = torch.where(partial.known, partial.codes, codes)
        return codes.to(packed.device).reshape(*packed.shape[:-1], codes.shape[-1])

    def partial(self, given: Any) -> GivenCells | None:
        """Return a packed row of which some modelled columns are given, nan for the others.

        Raises:
            TableError: If there is no such column, or its value cannot be of its kind, or has no
                probability.
            ShapeError: If there are several rows.
        """
        if given is None:
            return None
        frame = read_frame(given)
        if len(frame) != 1:
            raise ShapeError(
                f"given must be one row of modelled columns, got {len(frame):,}; draw for each."
            )
        find_columns(frame.names, self.columns)
        cells = self.schema.frame(
            torch.full((1, len(self.columns)), torch.nan, dtype=torch.float64)
        )
        known = {column.name: column for column in frame.columns}
        self.schema.check_given(frame)
        warn_of_unusual(self.schema.select(frame.names).unusual(frame), stacklevel=5)
        row = Frame(tuple(known.get(column.name, column) for column in cells.columns))
        packed = self.schema.encode(row).rows[0]
        places = [*self.schema.level_columns, *self.schema.number_columns * 3]
        free = torch.tensor([self.columns[place] not in known for place in places])
        mask = torch.tensor([name in known for name in self.columns])
        return GivenCells(packed.masked_fill(free, torch.nan), self.schema.codes(row)[0], mask)

    def from_noise(
        self,
        law: MixedLaw,
        z: Float64[Tensor, "*all_batch _"],
        context: Float64[Tensor, "*_ _"] | None,
    ) -> Float64[Tensor, "*all_batch columns"]:
        if not self.continuous:
            raise SettingsError(
                f"Columns {', '.join(self.columns)} are not numbers alone: some are discrete, "
                "have empty cells, or take a value often; expected numbers. Draw samples."
            )
        levels = z.new_empty(*z.shape[:-1], 0)
        cells = law.predictions.number_law(levels).draw(z, self.schema.snap)
        packed = torch.cat([cells.middle, cells.below, cells.above], -1)
        frame = self.schema.decode(packed.reshape(-1, packed.shape[-1]))
        return self.schema.codes(frame).reshape(*z.shape[:-1], -1)

    def cdf(self, flow: Flow, frame: Frame) -> Float64[Tensor, " rows"]:
        """Return the probability of at most the upper end of the cell, of one column of numbers.

        Args:
            flow: The flow.
            frame: Rows of the column and of those that it is given.

        Raises:
            SettingsError: If the column is no number, or may be empty.
        """
        if self.schema.levels or self.schema.numbers != 1:
            raise SettingsError(
                f"cdf is of one column of numbers, got {', '.join(self.columns)}, which is "
                "discrete, has empty cells, or takes a value often."
            )
        precise = copy.deepcopy(flow).to("cpu", torch.float64).eval()
        given = self.given_schema
        context = None if given is None else given.encode_given(frame)
        middle, _, above = self.schema.encode(frame).rows.split(1, -1)
        with torch.no_grad():
            law: Any = precise(context)
            stack = law.predictions.number_law(middle[:, :0])
            reach = torch.where(above.isinf(), 0.0, above)
            z = torch.where(above.isinf(), torch.inf, stack.map(middle + reach).rows)
        return normal_cdf(z).squeeze(-1)

    def describe(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        columns, given = (
            [
                {"name": name, "type": kind.type, "kind": kind.name, "read_as": kind.describe()}
                for name, kind in zip(schema.names, schema.kinds, strict=True)
            ]
            if schema is not None
            else []
            for schema in (self.schema, self.given_schema)
        )
        return columns, given

    def is_of(self, rows: Float64[Tensor, "rows all_columns"]) -> bool:
        """Tell whether the codes of rows have the moments that they had in the fit."""
        location, scale = code_moments(rows)
        apart = (location - self.location).abs() / self.scale
        stretched = (scale / self.scale - 1).abs()
        return not bool((apart > SAME).any() or (stretched > SAME).any())

    def values(self, rows: Float64[Tensor, "rows all_columns"]) -> list[list[Any]]:
        parts = rows.split([len(self.columns), len(self.given_columns)], -1)
        schemas = (self.schema, self.given_schema)
        columns = [
            cells
            for schema, part in zip(schemas, parts, strict=True)
            if schema is not None
            for cells in schema.frame(part).to_arrow().columns
        ]
        written = [[_written(cell) for cell in cells.to_pylist()] for cells in columns]
        return [list(cells) for cells in zip(*written, strict=True)]

    def unusual(self, codes: Float64[Tensor, "rows columns"], name: str) -> dict[str, str]:
        schema = self.schema if name == "rows" else self.given_schema
        assert schema is not None
        return schema.unusual(schema.frame(codes), given=name == "given")

    def read(self, source: Any, *, drop_missing: bool, **reading: Any) -> Table:
        columns = (*self.columns, *self.given_columns)
        given = () if self.given_schema is None else self.given_schema.texts
        texts = (*self.schema.texts, *given)
        frame = read_frame(source, columns=columns, texts=texts, **reading)
        if drop_missing:
            frame = frame.take(frame.complete)
        parts = [self.codes(frame, "rows")]
        parts += [self.codes(frame, "given")] if self.given_columns else []
        return Table(torch.cat(parts, 1), columns, numbers=torch.from_numpy(frame.numbers))

    def table(self, codes: Float64[Tensor, "rows columns"], given: Any = None) -> Frame:
        frame = self.schema.frame(codes)
        if given is None or self.given_columns:
            return frame
        told = {}
        for column in read_frame(given).columns:
            kind = self.schema[column.name]
            if kind.labels and kind.codes(column)[0] == len(kind.labels):  # never seen
                texts = column.as_texts()
                told[column.name] = texts.levels[texts.values[0]]
        return Frame(tuple(_retold(column, told) for column in frame.columns))


def _retold(column: Column, told: Mapping[str, str]) -> Column:
    """Return a column whose cells, of a level without a code, have the text that was given."""
    if column.name not in told:
        return column
    levels = tuple(told[column.name] if level == UNKNOWN else level for level in column.levels)
    return replace(column, levels=levels)


def _written(cell: Any) -> Any:
    """Return a cell as JSON can hold it: dates and times as text."""
    return cell if cell is None or isinstance(cell, str | bool | int | float) else str(cell)


class CodeMoments:
    """Mean and deviation of the codes that are there, of rows that come in chunks.

    Args:
        columns: Number of columns.
    """

    def __init__(self, columns: int) -> None:
        self._columns = [RunningMoments(1) for _ in range(columns)]

    def update(self, codes: Float64[Tensor, "rows columns"]) -> None:
        """Take in a chunk of rows, nan where a cell is empty."""
        for moments, column in zip(self._columns, codes.unbind(1), strict=True):
            there = column[~column.isnan()].unsqueeze(1) / UNIT
            moments.update(there, torch.ones_like(there[:, 0]))  # whose shares never overflow

    @property
    def location(self) -> Float64[Tensor, " columns"]:
        """The means; 0 where nothing is there."""
        return UNIT * torch.cat([moments.centre for moments in self._columns])

    @property
    def scale(self) -> Float64[Tensor, " columns"]:
        """The deviations; 1 where all codes are alike or nothing is there."""
        return torch.cat(
            [
                torch.where(moments.squares > 0, UNIT * moments.deviation, 1.0)
                for moments in self._columns
            ]
        )


def code_moments(
    codes: Float64[Tensor, "rows columns"],
) -> tuple[Float64[Tensor, " columns"], Float64[Tensor, " columns"]]:
    """Return mean and deviation of the codes that are there; 0 and 1 where that is nothing."""
    moments = CodeMoments(codes.shape[1])
    moments.update(codes)
    return moments.location, moments.scale
