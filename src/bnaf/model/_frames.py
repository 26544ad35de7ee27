"""What a fit takes from a frame: rows of every kind, encoded, or plain numbers as a table."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bnaf.columns.detection import is_plain
from bnaf.columns.kind import Bounds
from bnaf.columns.schema import Schema
from bnaf.errors import Argument, SettingsError, TableError
from bnaf.flows.registry import flow_named
from bnaf.model._data import FitData
from bnaf.model._wish import Wish
from bnaf.model.kinds import KindEncoding, code_moments
from bnaf.tables.frames import Frame, read_frame
from bnaf.tables.names import find_columns
from bnaf.tables.splits import RowSplit
from bnaf.tables.streams import ParquetStream
from bnaf.tables.table import Table
from bnaf.tables.ties import warn_of_columns, warn_of_rounding
from bnaf.training.batches import Batch, worth_of
from bnaf.training.recipe import TableFacts


def read_data(source: Any, flow: str, wish: Wish) -> FitData:
    """Read rows, split and encode them: as plain numbers where that is what they are.

    Arrays, tensors, tables of numbers and streams are plain numbers. So are other rows whose
    modelled columns have a density everywhere and whose given ones are numbers, and all rows that
    are to be fitted by a flow that takes no others.

    Args:
        source: The rows.
        flow: Name of the flow.
        wish: What of them is to be fitted.

    Raises:
        TableError: If the rows cannot be read so.
        SettingsError: If kinds or bounds are told of plain numbers, or the flow takes none.
    """
    kind = flow_named(flow)
    numeric = isinstance(source, Table | ParquetStream | Tensor | np.ndarray | list | tuple)
    if numeric and not kind.takes_numbers:
        raise SettingsError(
            f"The flow {flow!r} takes frames and files, whose columns may be of every kind, got a "
            f"{type(source).__name__}; leave out ",
            Argument("flow"),
            ", or give a frame.",
        )
    if numeric or not kind.takes_kinds:
        _refuse_kinds(source, flow, wish)
        return FitData.read(source, wish)
    frame = read_frame(source)
    names, known = choose_columns(frame, wish.columns, wish.given)
    warn_of_columns([*names, *known], len(frame), (), {})
    wish = replace(wish, columns=names, given=known)
    if kind.takes_numbers and is_plain(frame, names, known, wish.kinds, wish.bounds):
        table = frame.select([*names, *known]).as_table()
        _warn_of_rounding(frame, table.columns)
        if wish.brings_rows:
            held_out = read_frame(wish.valid, columns=table.columns).as_table()
            wish = replace(wish, valid=held_out)
        return FitData.read(table, wish)
    if wish.members not in (None, 1):
        raise SettingsError(
            f"members must be 1 for columns of several kinds, got {wish.members}; averages are of "
            "one column of numbers."
        )
    return encode_frame(frame, names, known, wish)


def _refuse_kinds(source: Any, flow: str, wish: Wish) -> None:
    """Refuse what is told of columns that are plain numbers, and say why they are."""
    why: tuple[str | Argument, ...] = (
        "rows that come as an array or a table of numbers are plain numbers. Leave it out, or "
        "give a frame or a file, without ",
        Argument("dequantise"),
    )
    if isinstance(source, ParquetStream):
        why = ("rows of a stream are plain numbers. Leave it out, or read the file at once",)
    if not flow_named(flow).takes_kinds:
        why = (
            f"the flow {flow!r} takes plain numbers alone. For the default one, which takes all "
            "kinds, leave out ",
            Argument("flow"),
        )
    for name, value in (("kinds", wish.kinds), ("bounds", wish.bounds)):
        if value:
            raise SettingsError(Argument(name), " must be left out: ", *why, ".")


def choose_columns(
    frame: Frame, columns: Sequence[str] | None, given: Sequence[str]
) -> tuple[list[str], list[str]]:
    """Return the names of the columns to model and of those to condition on.

    Raises:
        TableError: If a column is missing, or all are given.
    """
    names = list(columns or [name for name in frame.names if name not in given])
    if not names:
        raise TableError(
            f"All columns ({', '.join(given)}) are given, expected one to model at least; "
            "give fewer."
        )
    frame.select([*names, *given])
    return names, list(given)


def read_kinds(
    frame: Frame,
    names: Sequence[str],
    given: Sequence[str],
    kinds: Mapping[str, str],
    bounds: Mapping[str, Bounds],
    weights: Any = None,
    seen: Frame | None = None,
) -> tuple[Schema, Schema | None]:
    """Return what columns mean, those to model and those to condition on.

    Raises:
        TableError: If a column cannot be what it is told to be, none is left to model, or one to
            condition on is text that says nothing.
    """
    find_columns([*kinds, *bounds], frame.names)
    parts = []
    for chosen in (names, given):
        if not chosen:
            continue
        part = Schema.fit(
            frame.select(chosen),
            kinds={name: kind for name, kind in kinds.items() if name in chosen},
            bounds={name: bound for name, bound in bounds.items() if name in chosen},
            weights=weights,
            seen=seen,
            given=chosen is given,
        )
        parts.append(part)
    return parts[0], parts[1] if given else None


def encode_frame(frame: Frame, names: Sequence[str], given: Sequence[str], wish: Wish) -> FitData:
    """Split a frame, read its columns off the rows to train on, and encode them.

    Args:
        frame: The rows.
        names: Columns to model.
        given: Columns to condition on.
        wish: How rows are split and weighed, and what is told of columns.
    """
    counts = wish.weigh(len(frame))
    held_out = None
    if wish.brings_rows:
        held_out = read_frame(wish.valid, columns=[*names, *given])
    division = wish.divide(len(frame), len(names), len(given), mixed=True, members=1)
    split = RowSplit.plan(len(frame), division.valid, wish.test, seed=wish.seed)
    sets = split.sets()
    train = frame.take(sets.train)
    weighed = None if counts is None else counts[sets.train]
    counting = train if weighed is None else train.take(weighed.numpy() > 0)
    schema, given_schema = read_kinds(
        counting,
        names,
        given,
        wish.kinds,
        wish.bounds,
        None if weighed is None else weighed[weighed > 0].numpy(),
        frame,
    )
    _warn_of_rounding(frame, [*schema.names, *(given_schema.names if given_schema else ())])
    codes = [part.codes(train) for part in (schema, given_schema) if part is not None]
    encoding = KindEncoding(schema, given_schema, *code_moments(torch.cat(codes, 1)))
    rows, shift = _encode(encoding, train, weighed)
    validation, valid_shift = None, None
    if held_out is not None:
        validation, valid_shift = _encode(encoding, held_out, None)
    elif len(sets.valid):
        kept = None if counts is None else counts[sets.valid]
        validation, valid_shift = _encode(encoding, frame.take(sets.valid), kept)
    facts = TableFacts(
        rows=len(train),
        columns=len(names) + len(given),
        given=len(given),
        worth=len(train) if weighed is None else worth_of(weighed),
        valid_rows=None if validation is None else len(validation.rows),
        counted=division.counted,
        standardised=not schema.levels,  # whose networks have their dropout, and need no prior
    )
    shifts = {"loss": shift} | ({} if valid_shift is None else {"valid": valid_shift})
    return FitData(encoding, facts, 1, split, rows, validation, shifts)


def _warn_of_rounding(frame: Frame, names: Sequence[str]) -> None:
    warn_of_rounding([name for name in names if frame[name].rounded])


def _encode(encoding: KindEncoding, frame: Frame, weights: Tensor | None) -> tuple[Batch, float]:
    """Return rows as a flow sees them, and what their log-densities gain in the mean."""
    packed, shift = encoding.schema.encode(frame)
    context = None
    if encoding.given_schema is not None:
        context = encoding.given_schema.encode_given(frame)
    shift = shift.sum(-1)
    possible = shift.isfinite()  # a value that no model could have foreseen judges none
    counts = torch.ones_like(shift) if weights is None else weights
    mean = (counts * shift)[possible].sum() / counts[possible].sum()
    return Batch(packed, context, weights), float(mean)
