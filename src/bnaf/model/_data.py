"""What a fit takes from a table or a stream: encoded rows, and how they became so."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from bnaf.columns.opening import Opening
from bnaf.errors import SettingsError, TableError
from bnaf.model._shifts import mean_shift, warn_of_impossible
from bnaf.model._streams import StreamParts
from bnaf.model._wish import Wish
from bnaf.model.encoding import Encoding
from bnaf.model.numbers import NumberEncoding
from bnaf.model.openings import Openings
from bnaf.model.standardisation import Standardisation
from bnaf.model.whitening import whiten
from bnaf.tables.reading import read_table
from bnaf.tables.splits import RowSplit
from bnaf.tables.streams import ParquetStream
from bnaf.tables.table import Table
from bnaf.training.arrays import sorted_order
from bnaf.training.batches import Batch, worth_of
from bnaf.training.progress import InUnits
from bnaf.training.recipe import Division, TableFacts, is_small
from bnaf.training.streams import StreamRows

WHITENED_COLUMNS = 2048  # up to which a small table is whitened: its matrices take their square


@dataclass(frozen=True)
class FitData:
    """Rows of a table as a flow sees them.

    Args:
        encoding: How they became so.
        facts: What the recipe goes by.
        members: Number of flows that are averaged.
        split: Which rows of the table these are.
        train: Encoded rows to train on, or a stream of them.
        valid: Those to validate on, if any.
        shifts: What log-densities of training and validation rows gain in the mean to be in the
            units of the table, where they do not all gain the same.
        sample: Encoded rows that columns of a stream were read off.
        notes: What else there is to say of how the table was read.
    """

    encoding: Encoding
    facts: TableFacts
    members: int
    split: RowSplit
    train: Batch | StreamRows
    valid: Batch | StreamRows | None
    shifts: Mapping[str, float] = field(default_factory=dict)
    sample: Batch | None = None
    notes: tuple[str, ...] = ()

    @property
    def known(self) -> Batch:
        """Rows that a flow may look at before it is trained, of a stream some of them."""
        if isinstance(self.train, Batch):
            return self.train
        return self.sample or next(self.train.batches(0))

    @property
    def told(self) -> list[str]:
        """How every column was read, and off what; a line for each, or for those alike."""
        lines = [f"{name}: {words}" for name, words in self.encoding.read_as.items()]
        notes = [*self.notes]
        if self.encoding.schema is None:  # alike, most of them
            alike: dict[str, list[str]] = {}
            for name, words in self.encoding.read_as.items():
                alike.setdefault(words, []).append(name)
            return notes + [f"{', '.join(names)}: {words}" for words, names in alike.items()]
        if isinstance(self.train, Batch) and self.split.valid + self.split.test:
            trained = f"the {len(self.train.rows):,} rows to train on"
            lines.insert(0, f"empty cells and ranges below are those of {trained}.")
        if self.sample is None or len(self.sample.rows) == self.facts.rows:
            return notes + lines
        found = f"{len(self.sample.rows):,} of {self.facts.rows:,} rows"
        return [*notes, f"columns are read off a random sample, {found}.", *lines]

    @property
    def units(self) -> InUnits:
        """Units in which the course of the fit is shown: those of the table."""
        shared = self.encoding.shift
        return InUnits(self.shifts.get("loss", shared), self.shifts.get("valid", shared))

    def spread(self, seed: int) -> "FitData":
        """Return numbers drawn evenly from their cells, for flows that do not take cells."""
        train, valid = (_spread(part, seed) for part in (self.train, self.valid))
        return replace(self, train=train, valid=train if self.valid is self.train else valid)

    @property
    def arguments(self) -> dict[str, Any]:
        """Arguments of :func:`bnaf.fit`."""
        found: dict[str, Any] = {}
        if isinstance(self.train, Batch) and self.train.more:
            return {"rows": self.train, "valid": self.valid}
        for part, prefix, name in ((self.train, "", "rows"), (self.valid, "valid_", "valid")):
            if isinstance(part, Batch):
                found |= {name: part.rows, f"{prefix}context": part.context}
                found[f"{prefix}weights"] = part.weights
            else:
                found[name] = part
        return found

    @classmethod
    def read(
        cls, source: Any, wish: Wish, openings: Mapping[str, Opening] | None = None
    ) -> "FitData":
        """Read a table or open a stream, split it, and standardise its columns.

        Args:
            source: The rows.
            wish: What of them is to be fitted.
            openings: How columns of a table that have bounds are opened first, by name.
        """
        if not isinstance(source, Table | ParquetStream):
            source = read_table(source)
        names, given = wish.choose_columns(source.columns)
        chosen = [*names, *given]
        if isinstance(source, ParquetStream):
            stream = source.view(columns=chosen, rank=0, world_size=1)
            division = wish.divide(stream.rows, len(names), len(given), members=1)
            if not is_small(division.counted):
                if wish.members not in (None, 1):
                    raise SettingsError(
                        f"members must be 1 for a stream, got {wish.members}; averages are of "
                        "rows in memory."
                    )
                return _from_stream(stream, tuple(names), wish, division)
            source = _gather(stream)
        found = {names.index(name): opening for name, opening in (openings or {}).items()}
        return _from_table(source.select(chosen), tuple(names), wish, Openings(found))


def _from_table(table: Table, names: tuple[str, ...], wish: Wish, openings: Openings) -> FitData:
    known_columns = table.features - len(names)
    division = wish.divide(len(table), len(names), known_columns, members=wish.members)
    _check_members(division.members, len(table), len(names))
    counts = wish.weigh(len(table))
    split, held_out = _plan(table.columns, len(table), wish, division, table)
    sets = split.sets()
    # without rows set aside the order is that of the table, which all sums follow
    train = sets.train if split.valid or split.test else torch.arange(len(table))
    rows, weighed = table.rows[train], None if counts is None else counts[train]
    small = is_small(division.counted)
    if small:  # in an order of their own, so that the one they came in does not matter
        order = sorted_order([rows] if weighed is None else [rows, weighed])
        rows, weighed = rows[order], None if weighed is None else weighed[order]
    features = len(names)
    opened = openings.apply(rows[:, :features])[0] if openings else rows[:, :features]
    moments = Standardisation.from_rows(opened, weighed)
    given = None
    if known_columns:
        given = Standardisation.from_rows(rows[:, features:], weighed)
    white = small and table.features <= WHITENED_COLUMNS
    if white:
        known = None if given is None else given.apply(rows[:, features:])
        moments = whiten(moments, opened, known, weighed)
    counting = rows if weighed is None else rows[weighed > 0]
    ranges = torch.stack(torch.aminmax(counting[:, :features], dim=0))
    encoding = _encoding(table.columns, table.types, ranges, moments, given, openings)
    validation, judging = None, held_out.rows if held_out is not None else None
    kept = None
    if judging is None and len(sets.valid):
        judging = table.rows[sets.valid]
        kept = None if counts is None else counts[sets.valid]
    if judging is not None:
        validation = as_batch(encoding, judging, kept)
    shifts = {}
    if openings and judging is not None:
        warn_of_impossible(encoding.row_shift(judging[:, :features]))
    if openings:
        shifts = {
            part: mean_shift(encoding.row_shift(codes[:, :features]), weights)
            for part, codes, weights in (("loss", rows, weighed), ("valid", judging, kept))
            if codes is not None
        }
    standardised = as_batch(encoding, rows, weighed)
    if table.cells:
        ends = _ends(table, names)
        standardised = _with_cells(standardised, encoding, rows, ends)
        if validation is not None and judging is not None:
            validation = _with_cells(validation, encoding, judging, ends)
    if division.members > 1 and validation is None:  # the folds judge each other
        generator = torch.Generator().manual_seed(wish.seed)
        fold = torch.randperm(len(rows), generator=generator) % division.members
        more = {**standardised.more, "fold": fold}
        validation = standardised = replace(standardised, more=more)
        shifts |= {"valid": shifts["loss"]} if shifts else {}
    facts = TableFacts(
        rows=len(train),
        columns=table.features,
        given=known_columns,
        worth=len(train) if weighed is None else worth_of(weighed),
        valid_rows=None if validation is None else len(validation.rows),
        standardised=True,
        white=white,
        counted=division.counted,
    )
    return FitData(encoding, facts, division.members, split, standardised, validation, shifts)


def _ends(table: Table, names: tuple[str, ...]) -> Tensor:
    """Return the ends of the cells of the one modelled column.

    Raises:
        SettingsError: If others have cells, or there are others.
    """
    if [*table.cells] != [*names]:
        raise SettingsError(
            f"Cells are of one column that is modelled alone, got those of "
            f"{', '.join(table.cells)} where {', '.join(names)} are modelled."
        )
    return table.cells[names[0]]


def _with_cells(batch: Batch, encoding: NumberEncoding, codes: Tensor, ends: Tensor) -> Batch:
    """Return rows of one column with the distances to the ends of their cells.

    Raises:
        TableError: If some lie in none.
    """
    value = codes[:, 0].contiguous()
    outside = int(((value < ends[0]) | (value > ends[-1])).sum())
    if outside:
        raise TableError(
            f"{encoding.columns[0]} has {outside:,} values beyond the ends of its cells, from "
            f"{float(ends[0]):g} to {float(ends[-1]):g}; leave these rows out, or widen the cells."
        )
    cell = torch.bucketize(value, ends[1:-1])
    reach = torch.stack([value - ends[cell], ends[cell + 1] - value], -1)
    cells = (reach * math.exp(encoding.standardisation.log_det)).clamp(min=0)
    return replace(batch, more={**batch.more, "cells": cells})


def _from_stream(
    stream: ParquetStream, names: tuple[str, ...], wish: Wish, division: Division
) -> FitData:
    split, held_out = _plan(stream.columns, stream.rows, wish, division, stream)
    weights = wish.weigh(stream.rows)
    assert len(stream.survey.complete) == len(stream.chosen)  # it refuses what is not complete
    parts = StreamParts.divide(stream, stream.chosen, split, weights)
    features = len(names)
    given_names = stream.columns[features:]
    given = None
    if given_names:
        given = Standardisation.from_moments(parts.train.moments(given_names, parts.counts))
    found = parts.train.moments(names, parts.counts)
    moments, ranges = (
        Standardisation.from_moments(found),
        torch.stack([found.least, found.largest]),
    )
    encoding = _encoding(stream.columns, stream.types, ranges, moments, given)
    scales = (encoding.standardisation, encoding.given_standardisation)
    train, validation = parts.sources(
        partial(as_batch, encoding),
        [part.numpy().data for each in scales for part in (each.location, each.scale)],
    )
    facts = parts.facts(
        len(stream.columns),
        len(given_names),
        split.valid if held_out is None else len(held_out),
        standardised=True,
        counted=division.counted,
    )
    held = validation if held_out is None else as_batch(encoding, held_out.rows)
    return FitData(encoding, facts, 1, split, train, held)


def as_batch(encoding: Encoding, codes: Tensor, weights: Tensor | None = None) -> Batch:
    """Return rows as a flow sees them, from codes of modelled columns followed by given ones."""
    count = len(encoding.columns)
    context = encoding.contexts(codes[:, count:]) if encoding.given_columns else None
    return Batch(encoding.encode(codes[:, :count], context).rows, context, weights)


def _encoding(
    names: Sequence[str],
    types: Sequence[str],
    ranges: Tensor,
    moments: Standardisation,
    given: Standardisation | None,
    openings: Openings | None = None,
) -> NumberEncoding:
    features = ranges.shape[1]
    return NumberEncoding(
        names[:features],
        names[features:],
        moments,
        Standardisation.identity(0) if given is None else given,
        types[:features],
        openings,
        ranges,
    )


def _check_members(members: int, rows: int, columns: int) -> None:
    """Check how many flows are averaged.

    Raises:
        SettingsError: If there are to be several of a table that one flow must do.
    """
    if members > 1 and columns > 1:
        raise SettingsError(
            f"members must be 1 for {columns} columns, got {members}; averages are of one column."
        )
    if members > rows:
        raise SettingsError(f"members must be at most the {rows} rows, got {members}.")


def _gather(stream: ParquetStream) -> Table:
    """Return the rows of a short stream as a table."""
    rows = torch.cat(list(stream.view(shuffle=False, drop_last=False)))
    return Table(rows, stream.columns, stream.types, stream.grid)


def _plan(
    columns: Sequence[str],
    rows: int,
    wish: Wish,
    division: Division,
    source: Table | ParquetStream,
) -> tuple[RowSplit, Table | None]:
    """Return which rows are set aside, and other rows to validate on, where they are given."""
    split = RowSplit.plan(rows, division.valid, wish.test, seed=wish.seed)
    if not wish.brings_rows:
        return split, None
    valid = wish.valid
    held_out = valid if isinstance(valid, Table) else read_table(valid, dequantise=source.grid)
    return split, held_out.select(columns)


def _spread(part: Any, seed: int) -> Any:
    """Return a batch whose rows are drawn evenly from their cells; anything else as it is."""
    if not isinstance(part, Batch) or "cells" not in part.more:
        return part
    more = dict(part.more)
    below, above = more.pop("cells").split(1, -1)
    share = torch.rand(below.shape, generator=torch.Generator().manual_seed(seed)).to(below)
    return replace(part, rows=part.rows - below + share * (below + above), more=more)
