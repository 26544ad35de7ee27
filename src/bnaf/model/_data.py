"""What a fit takes from a table or a stream: encoded rows, and how they became so."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bnaf.errors import SettingsError, TableError
from bnaf.model._wish import Wish
from bnaf.model.encoding import Encoding
from bnaf.model.numbers import NumberEncoding
from bnaf.model.standardisation import Standardisation
from bnaf.model.whitening import whiten
from bnaf.tables.reading import read_table
from bnaf.tables.splits import RowSets, RowSplit
from bnaf.tables.streams import NumberedRows, ParquetStream
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
    """

    encoding: Encoding
    facts: TableFacts
    members: int
    split: RowSplit
    train: Batch | StreamRows
    valid: Batch | StreamRows | None
    shifts: Mapping[str, float] = field(default_factory=dict)

    @property
    def contexts(self) -> Tensor | None:
        """Contexts as the flow sees them, of a stream those of its first batch."""
        if isinstance(self.train, Batch):
            return self.train.context
        first = next(self.train.batches(0), None)
        return None if first is None else first.context

    @property
    def units(self) -> InUnits:
        """Units in which the course of the fit is shown: those of the table."""
        shared = self.encoding.shift
        return InUnits(self.shifts.get("loss", shared), self.shifts.get("valid", shared))

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
    def read(cls, source: Any, wish: Wish) -> "FitData":
        """Read a table or open a stream, split it, and standardise its columns."""
        if not isinstance(source, Table | ParquetStream):
            source = read_table(source)
        names = tuple(wish.columns or [name for name in source.columns if name not in wish.given])
        if not names:
            raise TableError(
                f"All columns ({', '.join(wish.given)}) are given, expected one to model at "
                "least; give fewer."
            )
        chosen = [*names, *wish.given]
        if isinstance(source, ParquetStream):
            stream = source.view(columns=chosen, rank=0, world_size=1)
            division = wish.divide(stream.rows, len(names), len(wish.given), members=1)
            if not is_small(division.counted):
                if wish.members not in (None, 1):
                    raise SettingsError(
                        f"members must be 1 for a stream, got {wish.members}; averages are of "
                        "rows in memory."
                    )
                return _from_stream(stream, names, wish, division)
            source = _gather(stream)
        return _from_table(source.select(chosen), names, wish)


def _from_table(table: Table, names: tuple[str, ...], wish: Wish) -> FitData:
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
    moments = Standardisation.from_rows(rows[:, :features], weighed)
    given = None
    if known_columns:
        given = Standardisation.from_rows(rows[:, features:], weighed)
    white = small and table.features <= WHITENED_COLUMNS
    if white:
        known = None if given is None else given.apply(rows[:, features:])
        moments = whiten(moments, rows[:, :features], known, weighed)
    encoding = _encoding(table.columns, table.types, features, moments, given)
    validation = None
    if held_out is not None:
        validation = as_batch(encoding, held_out.rows)
    elif len(sets.valid):
        kept = None if counts is None else counts[sets.valid]
        validation = as_batch(encoding, table.rows[sets.valid], kept)
    standardised = as_batch(encoding, rows, weighed)
    if division.members > 1 and validation is None:  # the folds judge each other
        generator = torch.Generator().manual_seed(wish.seed)
        fold = torch.randperm(len(rows), generator=generator) % division.members
        validation = standardised = replace(standardised, more={"fold": fold})
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
    return FitData(encoding, facts, division.members, split, standardised, validation)


def _from_stream(
    stream: ParquetStream, names: tuple[str, ...], wish: Wish, division: Division
) -> FitData:
    complete = np.flatnonzero(stream.survey.complete)
    counts, weighed_rows = None, wish.weigh(stream.rows)
    if weighed_rows is not None:
        counts = torch.zeros(len(stream.survey.complete), dtype=torch.float64)
        counts[complete] = weighed_rows
    split, held_out = _plan(stream.columns, stream.rows, wish, division, stream)
    parts = _choose(stream, split.sets(), complete)
    train, features = parts[0], len(names)
    given_names = stream.columns[features:]
    given = None
    if given_names:
        given = Standardisation.from_moments(train.moments(given_names, counts))
    moments = Standardisation.from_moments(train.moments(names, counts))
    encoding = _encoding(stream.columns, stream.types, features, moments, given)

    def prepare(item: NumberedRows) -> Batch:
        weighed = None if counts is None else counts[torch.from_numpy(item.numbers)]
        return as_batch(encoding, item.rows, weighed)

    worth = float(train.rows)
    if counts is not None:
        worth = worth_of(counts[torch.from_numpy(complete)][split.sets().train])
    validation: Batch | StreamRows | None = None
    if held_out is not None:
        validation = as_batch(encoding, held_out.rows)
    elif parts[1] is not None:
        validation = StreamRows(parts[1], prepare)
    facts = TableFacts(
        rows=train.rows,
        columns=len(stream.columns),
        given=len(given_names),
        worth=worth,
        valid_rows=split.valid if held_out is None else len(held_out),
        batch=stream.batch_rows,
        batches=len(train),
        standardised=True,
        counted=division.counted,
    )
    source = StreamRows(train, prepare, worth=worth, digest=_digest(encoding, counts))
    return FitData(encoding, facts, 1, split, source, validation)


def as_batch(encoding: Encoding, codes: Tensor, weights: Tensor | None = None) -> Batch:
    """Return rows as a flow sees them, from codes of modelled columns followed by given ones."""
    count = len(encoding.columns)
    context = encoding.contexts(codes[:, count:]) if encoding.given_columns else None
    return Batch(encoding.encode(codes[:, :count], context).rows, context, weights)


def _encoding(
    names: Sequence[str],
    types: Sequence[str],
    features: int,
    moments: Standardisation,
    given: Standardisation | None,
) -> NumberEncoding:
    return NumberEncoding(
        names[:features],
        names[features:],
        moments,
        Standardisation.identity(0) if given is None else given,
        types[:features],
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


def _digest(encoding: NumberEncoding, weights: Tensor | None) -> str:
    """Return what stands for the scales and weights of a stream."""
    digest = hashlib.blake2b(digest_size=16)
    scales = (encoding.standardisation, encoding.given_standardisation)
    for part in (*(part for each in scales for part in (each.location, each.scale)), weights):
        if part is not None:
            digest.update(part.numpy().data)
    return digest.hexdigest()


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


def _choose(
    stream: ParquetStream, sets: RowSets, complete: np.ndarray
) -> tuple[ParquetStream, ParquetStream | None]:
    """Return streams of the rows to train on and to validate on, with their numbers."""

    def mark(indices: Tensor) -> np.ndarray:
        chosen = np.zeros(len(stream.survey.complete), dtype=bool)
        chosen[complete[indices.numpy()]] = True
        return chosen

    train = stream.view(chosen=mark(sets.train), numbered=True, drop_last=True)
    if not len(sets.valid):
        return train, None
    held = stream.view(chosen=mark(sets.valid), numbered=True, shuffle=False, drop_last=False)
    return train, held
