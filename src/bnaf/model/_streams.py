"""What a fit takes from a stream: the rows to train on and to validate on, and their weights."""

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float64
from torch import Tensor

from bnaf.tables.splits import RowSplit
from bnaf.tables.streams import NumberedRows, ParquetStream
from bnaf.training.batches import Batch, worth_of
from bnaf.training.recipe import TableFacts
from bnaf.training.streams import StreamRows

Prepare = Callable[[Tensor, Tensor | None], Batch]
"""From rows of a stream, and how much each counts, to a batch."""


@dataclass(frozen=True, eq=False)
class StreamParts:
    """Streams of the rows to train on and to validate on, with their numbers.

    Args:
        train: Rows to train on.
        valid: Rows to validate on, if some are set aside.
        counts: How much each row of the file counts, by its number, where that is told.
        worth: What the rows to train on are worth.
    """

    train: ParquetStream
    valid: ParquetStream | None
    counts: Float64[Tensor, " all_rows"] | None
    worth: float

    @classmethod
    def divide(
        cls,
        stream: ParquetStream,
        complete: Bool[np.ndarray, " all_rows"],
        split: RowSplit,
        weights: Float64[Tensor, " rows"] | None,
    ) -> "StreamParts":
        """Divide the rows of a stream.

        Args:
            stream: The stream.
            complete: Which rows of its file are not left out.
            split: Where in the order of these the rows stand that are set aside.
            weights: How much each of them counts.
        """
        numbers, sets = np.flatnonzero(complete), split.sets()

        def mark(indices: Tensor) -> np.ndarray:
            chosen = np.zeros(len(complete), dtype=bool)
            chosen[numbers[indices.numpy()]] = True
            return chosen

        train = stream.view(chosen=mark(sets.train), numbered=True, drop_last=True)
        valid = None
        if len(sets.valid):
            held_out = stream.view(shuffle=False, drop_last=False)
            valid = held_out.view(chosen=mark(sets.valid), numbered=True)
        if weights is None:
            return cls(train, valid, None, float(train.rows))
        counts = torch.zeros(len(complete), dtype=torch.float64)
        counts[torch.from_numpy(numbers)] = weights
        return cls(train, valid, counts, worth_of(weights[sets.train]))

    def sources(
        self, prepare: Prepare, stands_for: Iterable[Any]
    ) -> tuple[StreamRows, StreamRows | None]:
        """Return where batches to train on and to validate on come from.

        Args:
            prepare: How they are made of rows.
            stands_for: Bytes of all that this depends on, weights apart.
        """
        digest = hashlib.blake2b(digest_size=16)
        for part in stands_for:
            digest.update(part)
        if self.counts is not None:
            digest.update(self.counts.numpy().data)

        def prepare_numbered(item: NumberedRows) -> Batch:
            counts = self.counts
            weights = None if counts is None else counts[torch.from_numpy(item.numbers)]
            return prepare(item.rows, weights)

        train = StreamRows(
            self.train, prepare_numbered, worth=self.worth, digest=digest.hexdigest()
        )
        return train, None if self.valid is None else StreamRows(self.valid, prepare_numbered)

    def facts(
        self, columns: int, given: int, valid_rows: int, *, standardised: bool, counted: int
    ) -> TableFacts:
        """Return what the recipe goes by.

        Args:
            columns: Number of columns, given ones included.
            given: Number of these.
            valid_rows: Number of rows to validate on.
            standardised: Whether columns have a mean of 0 and a deviation of 1.
            counted: Rows by which the table is small, or its rows are few.
        """
        return TableFacts(
            rows=self.train.rows,
            columns=columns,
            given=given,
            worth=self.worth,
            valid_rows=valid_rows,
            batch=self.train.batch_rows,
            batches=len(self.train),
            standardised=standardised,
            counted=counted,
        )
