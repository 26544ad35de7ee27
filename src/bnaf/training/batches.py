"""What a batch is, and where batches come from; rows that are drawn afresh for each."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Generator, Tensor

from bnaf._checks import whole
from bnaf._random import mix_seed
from bnaf.errors import SettingsError, ShapeError


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
        parts = [self.rows, self.context, self.weights, *self.more.values()]
        if all(
            part.device == like.device
            and (part.dtype == like.dtype or not (part.is_floating_point() or part is self.rows))
            for part in parts
            if part is not None
        ):
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


class FreshRows(BatchSource):
    """Rows drawn anew for every step, with a private generator.

    Args:
        draw: Function of a number of rows and a generator.
        batch: Rows of a batch over all processes.
        seed: Seed of the draws; batch number and epoch do the rest.
        epoch_batches: What is called an epoch.

    Raises:
        SettingsError: If sizes or seed are no whole numbers.
    """

    def __init__(
        self,
        draw: Callable[[int, Generator], Tensor],
        *,
        batch: int = 512,
        seed: int = 0,
        epoch_batches: int = 100,
    ) -> None:
        self.draw = draw
        self.batch: int = whole("batch", batch)
        self.seed = whole("seed", seed, least=0)
        self.epoch_batches = whole("epoch_batches", epoch_batches)

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


def as_weights(value: Any, count: int, like: Tensor, name: str) -> Tensor:
    """Return the weights of rows, of a flow's type and on its device.

    Args:
        value: What was given.
        count: Number of rows.
        like: A tensor of the flow.
        name: What to call the weights in messages.

    Raises:
        ShapeError: If there is not one per row.
        SettingsError: If one is negative or not finite, or none is positive.
    """
    weights = torch.as_tensor(np.asarray(value) if not isinstance(value, Tensor) else value)
    weights = weights.detach().to(device=like.device, dtype=like.dtype)
    if weights.shape != (count,):
        raise ShapeError(
            f"{name} must hold one number per row, shape ({count},), "
            f"got shape {tuple(weights.shape)}."
        )
    if not bool((weights.isfinite() & (weights >= 0)).all()) or not bool(weights.any()):
        raise SettingsError(
            f"{name} must be finite, none negative and some positive, "
            f"got values from {float(weights.min())} to {float(weights.max())}."
        )
    return weights


def worth_of(weights: Float[Tensor, " rows"]) -> float:
    r"""Return how many rows of equal weight are worth as much: :math:`(\sum w)^2 / \sum w^2`.

    Example:
        >>> worth_of(torch.tensor([2.0, 2.0, 0.0]))
        2.0
    """
    weights = weights.double()
    return float(weights.sum() ** 2 / weights.square().sum())
