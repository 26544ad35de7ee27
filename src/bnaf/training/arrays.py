"""Batches of rows in memory."""

import dataclasses
import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Generator, Tensor

from bnaf._checks import plain, whole
from bnaf._random import mix_seed
from bnaf.errors import SettingsError
from bnaf.training.batches import Batch, BatchSource, worth_of

EVALUATION_ROWS = 4096
GATHERED = 16  # batches whose rows are gathered at once


class ArrayRows(BatchSource):
    """Rows in memory, shuffled by index; each epoch has an order of its own.

    An epoch has as few batches as the largest size allows, all of equal size. What does not fill
    them, fewer rows than there are batches, sits out that epoch. A batch of all rows takes them in
    sorted order, so that its result does not depend on the order they came in.

    Args:
        rows: The table, on the device of the flow.
        context: What the rows are conditioned on, line by line.
        weights: How much each row counts.
        batch: Largest number of rows in a batch over all processes; all by default.
        seed: Seed of the orders and of the noise.
        noise: Deviation of normal noise added to the rows and contexts of every batch, which
            shrink so that a deviation of 1 stays one. Rows that stand for cells stay in theirs.
        more: Whatever else an objective takes, by name, line by line.
        evaluated: Largest number of rows that are evaluated at once.

    Raises:
        SettingsError: If sizes or seed are no whole numbers.
    """

    finite = True

    def __init__(
        self,
        rows: Float[Tensor, "rows features"],
        context: Float[Tensor, "rows context_features"] | None = None,
        weights: Float[Tensor, " rows"] | None = None,
        *,
        batch: int | None = None,
        seed: int = 0,
        noise: float = 0.0,
        more: Mapping[str, Tensor] | None = None,
        evaluated: int = EVALUATION_ROWS,
    ) -> None:
        self.count: int = len(rows)
        self.noise, self.seed = plain(noise), whole("seed", seed, least=0)
        self.evaluated = whole("evaluated", evaluated)
        largest = self.count if batch is None else whole("batch", batch)
        self.batch_total = -(-self.count // min(largest, self.count))
        self.batch: int = self.count // self.batch_total
        self.table = Batch(rows, context, weights, more=more or {})
        if self.batch_total == 1:
            keys = [part for part in (rows, context, weights) if part is not None]
            self.table = self.table.take(sorted_order(keys))

    def batches(
        self, epoch: int, *, rank: int = 0, world_size: int = 1, start: int = 0
    ) -> Iterator[Batch]:
        mine = slice(rank, None, world_size)
        if self.batch_total == 1:
            if start == 0:
                share = self.table.take(mine).with_total(self.table.weight)
                yield self._disturb(share, epoch, mine)
            return
        generator = Generator().manual_seed(mix_seed(self.seed, epoch))
        order = torch.randperm(self.count, generator=generator).to(self.table.rows.device)
        for first in range(start, self.batch_total, GATHERED):
            last = min(first + GATHERED, self.batch_total)
            gathered = self.table.take(order[first * self.batch : last * self.batch])
            for number in range(first, last):
                place = (number - first) * self.batch
                batch = gathered.take(slice(place, place + self.batch))
                total = batch.weight
                batch = batch if world_size == 1 else batch.take(mine)
                yield self._disturb(
                    batch.with_total(total), epoch * self.batch_total + number, mine
                )

    def batch_count(self, world_size: int = 1) -> int:
        return self.batch_total

    def all_batches(self, *, rank: int = 0, world_size: int = 1) -> Iterator[Batch]:
        for first in range(0, self.count, self.evaluated):
            last = min(first + self.evaluated, self.count)
            chunk = self.table.take(slice(first, last))
            yield chunk.take(slice(rank, None, world_size)).with_total(chunk.weight)

    def settle(self, like: Tensor, world_size: int) -> None:
        if self.batch < world_size:
            raise SettingsError(
                f"batch must be at least the number of processes ({world_size}), got {self.batch}."
            )
        self.table = self.table.to(like)

    @property
    def identity(self) -> dict[str, Any]:
        """Seed, size of the batches, and a digest of what is stored."""
        digest = hashlib.blake2b(digest_size=16)
        table = self.table
        for part in (table.rows, table.context, table.weights, *table.more.values()):
            if part is not None:
                digest.update(f"{tuple(part.shape)}{part.dtype}".encode())
                digest.update(part.detach().cpu().contiguous().view(torch.uint8).numpy().data)
        return {"seed": self.seed, "batch": self.batch, "fingerprint": digest.hexdigest()}

    @property
    def worth(self) -> float:  # type: ignore[override]
        """What the rows are worth: their number, if all weigh alike."""
        weights = self.table.weights
        return self.count if weights is None else worth_of(weights)

    def _disturb(self, batch: Batch, number: int, mine: slice) -> Batch:
        """Add noise that depends on the batch alone, not on how processes share it."""
        if not self.noise:
            return batch
        generator = Generator().manual_seed(mix_seed(self.seed, -1 - number))
        shrink = math.sqrt(1 - self.noise**2)

        def disturb(rows: Tensor) -> Tensor:
            shape = self.batch, rows.shape[1]
            drawn = torch.randn(shape, generator=generator, dtype=torch.float32)
            return torch.add(rows * shrink, drawn[mine].to(rows), alpha=self.noise)

        context = batch.context
        rows = disturb(batch.rows) if "cells" not in batch.more else batch.rows
        given = None if context is None else disturb(context)
        return dataclasses.replace(batch, rows=rows, context=given)


def sorted_order(parts: Sequence[Tensor]) -> Tensor:
    """Return the order of rows by their values, whatever order they came in."""
    columns = torch.cat([part.reshape(len(part), -1) for part in parts], 1)
    order = np.lexsort(columns.cpu().double().numpy().T)
    return torch.from_numpy(order).to(columns.device)
