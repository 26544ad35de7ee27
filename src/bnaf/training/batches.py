"""Where batches come from: rows in memory, rows drawn afresh, and any stream of batches."""

import dataclasses
import hashlib
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Generator, Tensor

from bnaf._random import mix_seed
from bnaf.errors import SettingsError

EVALUATION_ROWS = 4096
GATHERED = 16  # batches whose rows are gathered at once


@dataclass(frozen=True, eq=False)
class Batch:
    """Rows of one step, or one process's share of them.

    Args:
        rows: One row per line.
        context: What the rows are conditioned on, line by line.
        weights: How much each row counts.
        total: Sum of the weights, or number of rows, over all processes; ``None`` if not known.
        more: Whatever else an objective takes, by name, line by line.
    """

    rows: Tensor
    context: Tensor | None = None
    weights: Tensor | None = None
    total: float | Tensor | None = None
    more: Mapping[str, Tensor] = field(default_factory=dict)

    @property
    def weight(self) -> float | Tensor:
        """Sum of the weights, or number of rows."""
        return len(self.rows) if self.weights is None else self.weights.sum()

    def change(self, function: Callable[[Tensor], Tensor]) -> "Batch":
        """Return the batch with a function applied to all of its tensors of lines."""
        return Batch(
            function(self.rows),
            None if self.context is None else function(self.context),
            None if self.weights is None else function(self.weights),
            self.total,
            {name: function(tensor) for name, tensor in self.more.items()},
        )

    def with_total(self, total: float | Tensor | None) -> "Batch":
        """Return the batch as one whose rows count so much over all processes."""
        return Batch(self.rows, self.context, self.weights, total, self.more)

    def take(self, which: Tensor | slice) -> "Batch":
        """Return some of its lines."""
        return self.change(
            lambda lines: (
                lines.index_select(0, which) if isinstance(which, Tensor) else lines[which]
            )
        )

    def to(self, like: Tensor) -> "Batch":
        """Return the batch with the device and type of a tensor."""
        if self.rows.dtype == like.dtype and self.rows.device == like.device:
            return self
        return self.change(
            lambda lines: (
                lines.to(like)
                if lines.is_floating_point() or lines is self.rows
                else lines.to(like.device)
            )
        )


class BatchSource(ABC):
    """Where the batches of a run come from; all that the loop knows of them.

    The order is a function of the epoch alone, so that a position, epoch and batch, is all it
    takes to resume. What a source cannot tell, it leaves as it stands here.
    """

    batch: int | None = None
    """Rows of a batch over all processes, where they are as many each time."""
    count: int | None = None
    """Rows of an epoch."""
    worth: float | None = None
    """What the rows are worth: their number, if all weigh alike. Without it there is no prior."""
    finite: bool = False
    """Whether all values are known to be finite."""

    @abstractmethod
    def batches(
        self, epoch: int, *, rank: int = 0, world_size: int = 1, start: int = 0
    ) -> Iterator[Batch]:
        """Yield the batches of an epoch from number ``start`` on, of each the share of a process.

        Every process must get the same number of batches.
        """

    @abstractmethod
    def batch_count(self, world_size: int = 1) -> int | None:
        """Return the number of batches in an epoch, where it is known beforehand."""

    def all_batches(self, *, rank: int = 0, world_size: int = 1) -> Iterator[Batch]:
        """Yield all rows once, a process's share of each batch, to be evaluated."""
        return self.batches(0, rank=rank, world_size=world_size)

    def settle(self, like: Tensor, world_size: int) -> None:  # noqa: B027 (most have nothing to do)
        """Make ready for processes that compute with tensors like one.

        Raises:
            SettingsError: If so many processes cannot share the batches.
        """

    @property
    def identity(self) -> dict[str, Any]:
        """What the batches depend on, as far as it is known: another run has another."""
        return {}


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
            shrink so that a deviation of 1 stays one.
        more: Whatever else an objective takes, by name, line by line.
        evaluated: Largest number of rows that are evaluated at once.
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
        self.noise, self.seed, self.evaluated = noise, seed, evaluated
        self.batch_total = -(-self.count // min(batch or self.count, self.count))
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
        return dataclasses.replace(
            batch, rows=disturb(batch.rows), context=None if context is None else disturb(context)
        )


class FreshRows(BatchSource):
    """Rows drawn anew for every step, with a private generator.

    Args:
        draw: Function of a number of rows and a generator.
        batch: Rows of a batch over all processes.
        seed: Seed of the draws; batch number and epoch do the rest.
        epoch_batches: What is called an epoch.
    """

    def __init__(
        self,
        draw: Callable[[int, Generator], Tensor],
        *,
        batch: int = 512,
        seed: int = 0,
        epoch_batches: int = 100,
    ) -> None:
        self.draw, self.seed, self.epoch_batches = draw, seed, epoch_batches
        self.batch: int = batch

    def batches(
        self, epoch: int, *, rank: int = 0, world_size: int = 1, start: int = 0
    ) -> Iterator[Batch]:
        for number in range(start, self.epoch_batches):
            seed = mix_seed(self.seed, epoch * self.epoch_batches + number)
            rows = self.draw(self.batch, Generator().manual_seed(seed))
            yield Batch(rows[rank::world_size], total=len(rows))

    def batch_count(self, world_size: int = 1) -> int:
        return self.epoch_batches

    @property
    def identity(self) -> dict[str, Any]:
        """Seed and size of the batches."""
        return {"seed": self.seed, "batch": self.batch}


def base_draws(features: int, *, batch: int = 512, seed: int = 0) -> FreshRows:
    """Return a source of draws of a standard normal base, the rows of a reverse divergence.

    Args:
        features: Number of columns.
        batch: Rows of a batch over all processes.
        seed: Seed of the draws.
    """

    def draw(count: int, generator: Generator) -> Tensor:
        return torch.randn(count, features, generator=generator, dtype=torch.float64)

    return FreshRows(draw, batch=batch, seed=seed)


class StreamRows(BatchSource):
    """Any iterable of batches that can be gone through again.

    One with ``set_epoch`` is told which epoch comes next, and orders its rows by it; one with
    ``go_to(epoch, batch)`` is told the batch as well, and need not be read up to there. One with
    ``rank`` and ``world_size`` yields the share of its process; made for one process alone, it is
    asked for that of another by ``view(rank=..., world_size=...)``. Of any other, each process
    takes every so many rows of a batch.

    Args:
        iterable: What yields tensors of rows, batches, or anything that ``prepare`` takes.
        prepare: From what it yields to a batch; tensors and batches are taken as they are by
            default.
        worth: What its rows are worth, where that is known.
        digest: What stands for all that ``prepare`` depends on.
    """

    def __init__(
        self,
        iterable: Iterable[Any],
        prepare: Callable[[Any], Batch] | None = None,
        *,
        worth: float | None = None,
        digest: str | None = None,
    ) -> None:
        if iter(iterable) is iterable:
            raise SettingsError(
                "rows must be a stream that can be gone through once per epoch, got a one-way "
                f"{type(iterable).__name__}; give a list of batches, or an object with batches()."
            )
        self.iterable: Any = iterable
        self.prepare = prepare or as_batch
        self.worth, self.digest = worth, digest
        self.count = _whole_or_none(iterable, "rows")
        self.batch = _whole_or_none(iterable, "batch_rows")
        self._views: dict[tuple[int, int], Any] = {}

    def batches(
        self, epoch: int, *, rank: int = 0, world_size: int = 1, start: int = 0
    ) -> Iterator[Batch]:
        iterable = self._view(rank, world_size)
        whole = not hasattr(iterable, "world_size")
        mine = slice(rank, None, world_size) if whole else slice(None)
        if hasattr(iterable, "go_to"):
            iterable.go_to(epoch, start)
            ended = start == _length(iterable)
            items = iter(()) if ended else iter(iterable)
        else:
            if hasattr(iterable, "set_epoch"):
                iterable.set_epoch(epoch)
            items = islice(iterable, start, None)
        for item in items:
            yield self.prepare(item).take(mine).with_total(None)

    def batch_count(self, world_size: int = 1) -> int | None:
        return _length(self._view(getattr(self.iterable, "rank", 0), world_size))

    def settle(self, like: Tensor, world_size: int) -> None:
        if world_size > 1 and not getattr(self.iterable, "drop_last", True):
            raise SettingsError(
                f"{world_size} processes need as many batches each, got a stream with "
                "drop_last=False; make it with drop_last=True."
            )
        if self.batch is not None:
            self.batch = self.iterable.batch_rows * world_size

    @property
    def identity(self) -> dict[str, Any]:
        """Digest of what the batches depend on, where the stream knows one."""
        return {
            "fingerprint": getattr(self.iterable, "fingerprint", None),
            "prepared": self.digest,
            "processes": os.environ.get("WORLD_SIZE"),
        }

    def _view(self, rank: int, world_size: int) -> Any:
        """Return the stream of a process: itself, or what it makes for one of several."""
        if not hasattr(self.iterable, "world_size"):
            return self.iterable
        made_for = self.iterable.rank, self.iterable.world_size
        if made_for == (rank, world_size):
            return self.iterable
        if made_for == (0, 1) and hasattr(self.iterable, "view"):
            if (rank, world_size) not in self._views:
                self._views[rank, world_size] = self.iterable.view(
                    rank=rank, world_size=world_size
                )
            return self._views[rank, world_size]
        raise SettingsError(
            f"The stream must be made for process {rank} of {world_size}, got one with "
            f"rank={made_for[0]} and world_size={made_for[1]}."
        )


def as_batch(item: Any) -> Batch:
    """Return rows, or a batch of them, as a batch."""
    return item if isinstance(item, Batch) else Batch(torch.as_tensor(item))


def worth_of(weights: Float[Tensor, " rows"]) -> float:
    r"""Return how many rows of equal weight are worth as much: :math:`(\sum w)^2 / \sum w^2`.

    Example:
        >>> worth_of(torch.tensor([2.0, 2.0, 0.0]))
        2.0
    """
    weights = weights.double()
    return float(weights.sum() ** 2 / weights.square().sum())


def sorted_order(parts: Sequence[Tensor]) -> Tensor:
    """Return the order of rows by their values, whatever order they came in."""
    columns = torch.cat([part.reshape(len(part), -1) for part in parts], 1)
    order = np.lexsort(columns.cpu().double().numpy().T)
    return torch.from_numpy(order).to(columns.device)


def _whole_or_none(iterable: Any, name: str) -> int | None:
    value = getattr(iterable, name, None)
    return value if isinstance(value, int) else None


def _length(iterable: Any) -> int | None:
    try:
        return len(iterable)
    except TypeError:
        return None
