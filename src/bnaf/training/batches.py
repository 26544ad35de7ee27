"""Sources of batches: rows in memory, rows drawn afresh, and any stream of batches."""

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float
from torch import Generator, Tensor

from bnaf.errors import SettingsError


class Batch(NamedTuple):
    """Rows of one step, or one process's share of them.

    Args:
        rows: One row per line.
        context: What the rows are conditioned on, line by line.
        weights: How much each row counts.
        total: Sum of the weights, or number of rows, over all processes; ``None`` if not known.
    """

    rows: Tensor
    context: Tensor | None = None
    weights: Tensor | None = None
    total: float | Tensor | None = None


@runtime_checkable
class BatchSource(Protocol):
    """What the loop needs of a stream of rows.

    The order is a function of the epoch alone, so that a position, epoch and batch, is all it
    takes to resume.
    """

    def batches(
        self, epoch: int, *, rank: int = 0, world_size: int = 1, start: int = 0
    ) -> Iterator[Tensor | Batch]:
        """Yield the batches of an epoch from number ``start`` on, of each the share of a process.

        Every process must get the same number of batches.
        """

    def batch_count(self, world_size: int = 1) -> int | None:
        """Return the number of batches in an epoch, where it is known beforehand."""


class Rows:
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
    """

    def __init__(
        self,
        rows: Float[Tensor, "rows features"],
        context: Float[Tensor, "rows context_features"] | None = None,
        weights: Float[Tensor, " rows"] | None = None,
        *,
        batch: int | None = None,
        seed: int = 0,
        noise: float = 0.0,
    ) -> None:
        self.count, self.noise = len(rows), noise
        self.batch_total = -(-self.count // min(batch or self.count, self.count))
        self.batch, self.seed = self.count // self.batch_total, seed
        if self.batch_total == 1:
            order = sorted_order([part for part in (rows, context, weights) if part is not None])
            rows = rows[order]
            context = None if context is None else context[order]
            weights = None if weights is None else weights[order]
        self.rows, self.context, self.weights = rows, context, weights

    def batches(
        self, epoch: int, *, rank: int = 0, world_size: int = 1, start: int = 0
    ) -> Iterator[Batch]:
        mine = slice(rank, None, world_size)
        if self.batch_total == 1:
            if start == 0:
                yield self._disturb(self._share(mine, slice(None)), epoch, mine)
            return
        generator = Generator().manual_seed(mix_seed(self.seed, epoch))
        order = torch.randperm(self.count, generator=generator).to(self.rows.device)
        for number in range(start, self.batch_total):
            chosen = order[number * self.batch : (number + 1) * self.batch]
            batch = self._share(chosen if world_size == 1 else chosen[mine], chosen)
            yield self._disturb(batch, epoch * self.batch_total + number, mine)

    def batch_count(self, world_size: int = 1) -> int:
        return self.batch_total

    def chunks(self, size: int, *, rank: int = 0, world_size: int = 1) -> Iterator[Batch]:
        """Yield all rows as they stand, a process's share of each chunk, to be evaluated."""
        for first in range(0, self.count, size):
            last = min(first + size, self.count)
            yield self._share(slice(first + rank, last, world_size), slice(first, last))

    def to(self, like: Tensor) -> "Rows":
        """Move everything to the device and type of a tensor, and return itself."""
        self.rows = self.rows.to(like)
        self.context = None if self.context is None else self.context.to(like)
        self.weights = None if self.weights is None else self.weights.to(like)
        return self

    @property
    def fingerprint(self) -> str:
        """Digest of what is stored, to tell one table from another."""
        digest = hashlib.blake2b(digest_size=16)
        for part in (self.rows, self.context, self.weights):
            if part is not None:
                digest.update(f"{tuple(part.shape)}{part.dtype}".encode())
                digest.update(part.detach().cpu().contiguous().view(torch.uint8).numpy().data)
        return digest.hexdigest()

    @property
    def worth(self) -> float:
        """What the rows are worth: their number, if all weigh alike."""
        return self.count if self.weights is None else worth_of(self.weights)

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
        return batch._replace(
            rows=disturb(batch.rows), context=None if context is None else disturb(context)
        )

    def _share(self, mine: Tensor | slice, all_processes: Tensor | slice) -> Batch:
        context, weights = self.context, self.weights
        if weights is not None:
            total: float | Tensor = _take(weights, all_processes).sum()
        elif isinstance(all_processes, Tensor):
            total = len(all_processes)
        else:
            total = len(range(self.count)[all_processes])
        return Batch(
            _take(self.rows, mine),
            None if context is None else _take(context, mine),
            None if weights is None else _take(weights, mine),
            total,
        )


class FreshRows:
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
        self.draw, self.batch, self.seed, self.epoch_batches = draw, batch, seed, epoch_batches

    def batches(
        self, epoch: int, *, rank: int = 0, world_size: int = 1, start: int = 0
    ) -> Iterator[Batch]:
        for number in range(start, self.epoch_batches):
            seed = mix_seed(self.seed, epoch * self.epoch_batches + number)
            rows = self.draw(self.batch, Generator().manual_seed(seed))
            yield Batch(rows[rank::world_size], total=len(rows))

    def batch_count(self, world_size: int = 1) -> int:
        return self.epoch_batches


class BaseDraws(FreshRows):
    """Draws of a standard normal base, the rows of a reverse divergence.

    Args:
        features: Number of columns.
        batch: Rows of a batch over all processes.
        seed: Seed of the draws.
    """

    def __init__(self, features: int, *, batch: int = 512, seed: int = 0) -> None:
        self.features = features
        super().__init__(self._normal, batch=batch, seed=seed)

    def _normal(self, count: int, generator: Generator) -> Tensor:
        return torch.randn(count, self.features, generator=generator, dtype=torch.float64)


class Stream:
    """Any iterable of batches that can be gone through again.

    One with ``set_epoch`` is told which epoch comes next, and orders its rows by it; one with
    ``go_to(epoch, batch)`` is told the batch as well, and need not be read up to there. One with
    ``rank`` and ``world_size`` yields the share of its process; made for one process alone, it is
    asked for the share of another by ``shared(rank, world_size)``. Of any other, each process
    takes every so many rows of a batch.

    Args:
        iterable: What yields tensors of rows, or batches.
    """

    def __init__(self, iterable: Iterable[Tensor | Batch]) -> None:
        if iter(iterable) is iterable:
            raise SettingsError(
                "rows must be a stream that can be gone through once per epoch, got a one-way "
                f"{type(iterable).__name__}; give a list of batches, or an object with batches()."
            )
        self.iterable: Any = iterable
        self._shares: dict[tuple[int, int], Any] = {}

    def batches(
        self, epoch: int, *, rank: int = 0, world_size: int = 1, start: int = 0
    ) -> Iterator[Batch]:
        iterable = self._share(rank, world_size)
        whole = not hasattr(iterable, "world_size")
        mine = slice(rank, None, world_size) if whole else slice(None)
        if hasattr(iterable, "go_to"):
            iterable.go_to(epoch, start)
            ended = start == _length(iterable) or getattr(iterable, "epoch", epoch) != epoch
            items = iter(()) if ended else iter(iterable)
        else:
            if hasattr(iterable, "set_epoch"):
                iterable.set_epoch(epoch)
            items = islice(iterable, start, None)
        for item in items:
            batch = item if isinstance(item, Batch) else Batch(torch.as_tensor(item))
            rows, context, weights, _ = batch
            yield Batch(
                rows[mine],
                None if context is None else context[mine],
                None if weights is None else weights[mine],
            )

    @property
    def fingerprint(self) -> str | None:
        """Digest of what the batches depend on, where the stream knows one."""
        digest: str | None = getattr(self.iterable, "fingerprint", None)
        return digest

    @property
    def even(self) -> bool:
        """Whether every process gets the same number of batches."""
        return bool(getattr(self.iterable, "drop_last", True))

    def batch_count(self, world_size: int = 1) -> int | None:
        return _length(self._share(getattr(self.iterable, "rank", 0), world_size))

    def _share(self, rank: int, world_size: int) -> Any:
        """Return the stream of a process: itself, or what it makes for one of several."""
        if not hasattr(self.iterable, "world_size"):
            return self.iterable
        made_for = self.iterable.rank, self.iterable.world_size
        if made_for == (rank, world_size):
            return self.iterable
        if made_for == (0, 1) and hasattr(self.iterable, "shared"):
            if (rank, world_size) not in self._shares:
                self._shares[rank, world_size] = self.iterable.shared(rank, world_size)
            return self._shares[rank, world_size]
        raise SettingsError(
            f"The stream must be made for process {rank} of {world_size}, got one with "
            f"rank={made_for[0]} and world_size={made_for[1]}."
        )


def _take(rows: Tensor, which: Tensor | slice) -> Tensor:
    return rows.index_select(0, which) if isinstance(which, Tensor) else rows[which]


def _length(iterable: Any) -> int | None:
    try:
        return len(iterable)
    except TypeError:
        return None


def as_batch(item: Tensor | Batch, like: Tensor) -> Batch:
    """Return rows, or a batch of them, with the device and type of a tensor."""
    batch = item if isinstance(item, Batch) else Batch(torch.as_tensor(item))
    if batch.rows.dtype == like.dtype and batch.rows.device == like.device:
        return batch
    context, weights = batch.context, batch.weights
    return Batch(
        batch.rows.to(like),
        None if context is None else context.to(like),
        None if weights is None else weights.to(like),
        batch.total,
    )


def worth_of(weights: Float[Tensor, " rows"]) -> float:
    r"""Return how many rows of equal weight are worth as much: :math:`(\sum w)^2 / \sum w^2`.

    Example:
        >>> worth_of(torch.tensor([2.0, 2.0, 0.0]))
        2.0
    """
    weights = weights.double()
    return float(weights.sum() ** 2 / weights.square().sum())


def mix_seed(seed: int, number: int) -> int:
    """Return a seed for the draws of that number, unlike those of its neighbours."""
    digest = hashlib.blake2b(f"{seed}:{number}".encode(), digest_size=4).digest()
    return int.from_bytes(digest, "big")


def sorted_order(parts: Sequence[Tensor]) -> Tensor:
    """Return the order of rows by their values, whatever order they came in."""
    columns = torch.cat([part.reshape(len(part), -1) for part in parts], 1)
    order = np.lexsort(columns.cpu().double().numpy().T)
    return torch.from_numpy(order).to(columns.device)
