"""What a fit takes from a stream of columns of every kind: kinds off a sample, then batches."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor

from bnaf.columns.schema import Schema
from bnaf.model._data import FitData
from bnaf.model._frames import encode_rows, read_kinds, warn_of_rounded
from bnaf.model._shifts import MeanShift
from bnaf.model._streams import StreamParts
from bnaf.model._wish import Wish
from bnaf.model.kinds import CodeMoments, KindEncoding
from bnaf.tables.frame_streams import FrameStream
from bnaf.tables.frames import Frame, read_frame
from bnaf.tables.splits import RowSplit
from bnaf.training.batches import Batch


def encode_stream(
    stream: FrameStream, names: Sequence[str], given: Sequence[str], wish: Wish
) -> FitData:
    """Split a stream, read its columns off a sample of the rows to train on, and encode batches.

    Args:
        stream: The rows.
        names: Columns to model.
        given: Columns to condition on.
        wish: How rows are split and weighed, and what is told of columns.
    """
    division = wish.divide(stream.rows, len(names), len(given), mixed=True, members=1)
    split = RowSplit.plan(stream.rows, division.valid, wish.test, seed=wish.seed)
    weights = wish.weigh(stream.rows)
    sample, weighed = _sample(stream, [*names, *given], split, weights)
    schema, given_schema = read_kinds(
        sample, names, given, wish.kinds, wish.bounds, None if weighed is None else weighed.numpy()
    )
    rows = PackedFrames(schema, given_schema)
    warn_of_rounded(sample, rows.names)
    packed = stream.encoded(rows.names, rows.pack, rows.width)
    parts = StreamParts.divide(packed, stream.chosen, split, weights)
    moments, shifts = _survey(stream, rows, parts)
    encoding = KindEncoding(schema, given_schema, moments.location, moments.scale)
    train, held_out = parts.sources(rows.batch, [rows.identity])
    validation: Batch | None = None
    if wish.brings_rows:
        frame = read_frame(wish.valid, columns=rows.names, texts=sample.texts)
        validation, shifts["valid"] = encode_rows(encoding, frame, None, judging=True)
    facts = parts.facts(
        len(names) + len(given),
        len(given),
        split.valid if validation is None else len(validation.rows),
        standardised=not schema.levels,
        counted=division.counted,
    )
    seen = rows.batch(torch.from_numpy(rows.pack(sample)), weighed)
    return FitData(encoding, facts, 1, split, train, validation or held_out, shifts, seen)


@dataclass(frozen=True, eq=False)
class PackedFrames:
    """Rows of frames as one array: those of a flow, then their contexts.

    Args:
        schema: What the columns that are modelled mean.
        given_schema: What those mean that are conditioned on, if any.
    """

    schema: Schema
    given_schema: Schema | None

    @property
    def names(self) -> list[str]:
        """Names of the columns, given ones last."""
        return [*self.schema.names, *(self.given_schema.names if self.given_schema else ())]

    @property
    def width(self) -> int:
        """Numbers of one row."""
        given = self.given_schema
        return self.schema.width + (len(given.levels) + given.given_numbers if given else 0)

    @property
    def identity(self) -> bytes:
        """What stands for how rows are made."""
        given = None if self.given_schema is None else self.given_schema.as_dict()
        return json.dumps([self.schema.as_dict(), given]).encode()

    def pack(self, frame: Frame) -> Float64[np.ndarray, "rows width"]:
        """Return the rows of a frame."""
        parts = [self.schema.encode(frame).rows]
        if self.given_schema is not None:
            parts.append(self.given_schema.encode_given(frame))
        return torch.cat(parts, 1).numpy()

    def batch(self, rows: Float64[Tensor, "rows width"], weights: Tensor | None) -> Batch:
        """Return rows as a flow sees them."""
        features = self.schema.width
        context = None if self.given_schema is None else rows[:, features:]
        return Batch(rows[:, :features], context, weights)

    def codes(self, frame: Frame) -> Float64[Tensor, "rows columns"]:
        """Return what stands for the cells of a frame."""
        schemas = (self.schema, self.given_schema)
        return torch.cat([schema.codes(frame) for schema in schemas if schema is not None], 1)


def _sample(
    stream: FrameStream, names: Sequence[str], split: RowSplit, weights: Tensor | None
) -> tuple[Frame, Tensor | None]:
    """Return some of the rows to train on that weigh something, and how much each does."""
    places = split.sets().train
    if weights is not None:
        places = places[weights[places] > 0]
    complete = np.flatnonzero(stream.chosen)
    sample = stream.sample(among=complete[places.numpy()]).select(names)
    if weights is None:
        return sample, None
    return sample, weights[torch.from_numpy(np.searchsorted(complete, sample.numbers))]


def _survey(
    stream: FrameStream, rows: PackedFrames, parts: StreamParts
) -> tuple[CodeMoments, dict[str, float]]:
    """Pass once over the rows to train on and to validate on.

    Returns:
        The moments of the former's codes, and what log-densities of either gain in the mean.
    """
    trained = parts.train.chosen
    both = trained if parts.valid is None else trained | parts.valid.chosen
    moments, shifts = CodeMoments(len(rows.names)), {"loss": MeanShift(), "valid": MeanShift()}
    for frame in stream.frames(rows.names, chosen=both):
        mine = trained[frame.numbers]
        moments.update(rows.codes(frame.take(mine)))
        shift = rows.schema.encode(frame).shift.sum(-1)
        counts = None if parts.counts is None else parts.counts[torch.from_numpy(frame.numbers)]
        for name, which in (("loss", mine), ("valid", ~mine)):
            chosen = torch.from_numpy(which)
            shifts[name].update(shift[chosen], None if counts is None else counts[chosen])
    return moments, {name: found.mean for name, found in shifts.items() if found.weight}
