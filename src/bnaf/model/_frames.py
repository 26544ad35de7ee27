"""What a fit takes from a frame: rows of every kind, split and encoded."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from bnaf.columns.kind import Bounds
from bnaf.columns.schema import Schema
from bnaf.model._data import FitData
from bnaf.model._shifts import mean_shift, warn_of_impossible
from bnaf.model._wish import Wish
from bnaf.model.kinds import KindEncoding, code_moments
from bnaf.tables.frames import Frame, read_frame
from bnaf.tables.splits import RowSplit
from bnaf.tables.ties import warn_of_rounding
from bnaf.training.batches import Batch, worth_of
from bnaf.training.recipe import TableFacts


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
        held_out = read_frame(wish.valid, columns=[*names, *given], texts=frame.texts)
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
    warn_of_rounded(frame, [*schema.names, *(given_schema.names if given_schema else ())])
    codes = [part.codes(train) for part in (schema, given_schema) if part is not None]
    encoding = KindEncoding(schema, given_schema, *code_moments(torch.cat(codes, 1)))
    rows, shift = encode_rows(encoding, train, weighed)
    validation, valid_shift = None, None
    if held_out is not None:
        validation, valid_shift = encode_rows(encoding, held_out, None, judging=True)
    elif len(sets.valid):
        kept = None if counts is None else counts[sets.valid]
        aside = frame.take(sets.valid)
        validation, valid_shift = encode_rows(encoding, aside, kept, judging=True)
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


def warn_of_rounded(frame: Frame, names: Sequence[str]) -> None:
    """Warn of whole numbers that float64 does not have."""
    warn_of_rounding([name for name in names if frame[name].rounded])


def encode_rows(
    encoding: KindEncoding, frame: Frame, weights: Tensor | None, *, judging: bool = False
) -> tuple[Batch, float]:
    """Return rows as a flow sees them, and what their log-densities gain in the mean.

    Args:
        encoding: How they become so.
        frame: The rows.
        weights: How much each counts.
        judging: Whether they are to judge a fit.
    """
    packed, shift = encoding.schema.encode(frame)
    if judging:
        warn_of_impossible(shift.sum(-1))
    context = None
    if encoding.given_schema is not None:
        context = encoding.given_schema.encode_given(frame)
    return Batch(packed, context, weights), mean_shift(shift.sum(-1), weights)
