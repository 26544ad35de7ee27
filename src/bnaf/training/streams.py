"""Batches of any stream that yields them."""

import os
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from bnaf._checks import plain_number
from bnaf.errors import SettingsError
from bnaf.training.batches import Batch, BatchSource


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
            self.batch = int(self.iterable.batch_rows) * world_size

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


def _whole_or_none(iterable: Any, name: str) -> int | None:
    value = plain_number(getattr(iterable, name, None))
    return value if isinstance(value, int) else None


def _length(iterable: Any) -> int | None:
    try:
        return len(iterable)
    except TypeError:
        return None
