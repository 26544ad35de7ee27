"""Learning rates over the course of a run, and when to end it."""

import math
from dataclasses import dataclass
from typing import NamedTuple

from bnaf.training.settings import TrainingSettings

WARM_UP_SHARE = 0.1  # of the budget, at most


class Moment(NamedTuple):
    """How far a run has come."""

    step: int
    epoch: int
    seconds: float


@dataclass(frozen=True)
class Budget:
    """What a run may spend; the first limit that is reached ends it.

    Args:
        epochs: Passes over the rows.
        steps: Steps of the optimiser.
        seconds: Wall-clock time.
    """

    epochs: int | None = None
    steps: int | None = None
    seconds: float | None = None

    @classmethod
    def of(cls, settings: TrainingSettings, epoch_batches: int | None) -> "Budget":
        """Return the budget of a run, epochs turned into steps where their length is known."""
        limits = [settings.steps] if settings.steps else []
        if settings.epochs and epoch_batches:
            limits.append(settings.epochs * epoch_batches)
        return cls(settings.epochs, min(limits, default=None), settings.seconds)

    def share(self, now: Moment) -> float:
        """Return the share of the budget that is spent, from 0 to 1."""
        spent = zip(now, (self.steps, self.epochs, self.seconds), strict=True)
        return min(1.0, max((part / limit for part, limit in spent if limit), default=0.0))


def warm_up(step: int, share: float, steps: int) -> float:
    """Return the factor of a linear warm-up for a step, counted from 0.

    It reaches 1 after ``steps`` steps or a tenth of the budget, whichever comes first.

    Example:
        >>> [warm_up(step, step / 1000, 4) for step in range(5)]
        [0.25, 0.5, 0.75, 1.0, 1.0]
    """
    return min(1.0, max((step + 1) / steps, share / WARM_UP_SHARE)) if steps else 1.0


def cosine(share: float) -> float:
    """Return the factor of a cosine decay for the share of the budget that is spent.

    Example:
        >>> [round(cosine(share), 12) for share in (0.0, 0.5, 1.0)]
        [1.0, 0.5, 0.0]
    """
    return 0.5 * (1 + math.cos(math.pi * share))


class Plateau:
    """Rate that is multiplied by a factor when the loss has stalled for too long.

    Args:
        settings: Rate to start with, factor, patience, cool-down, floor and threshold.
    """

    def __init__(self, settings: TrainingSettings) -> None:
        self.settings = settings
        self.rate = settings.rate
        self.best = math.inf
        self.stalled = 0  # evaluations since the last improvement
        self.cooling = 0  # evaluations that will not count

    def update(self, loss: float, rate_of_best: float | None = None) -> bool:
        """Take the loss of an evaluation and return whether patience ran out.

        Args:
            loss: What should become smaller; a value that is not finite is no improvement.
            rate_of_best: Rate that the factor applies to, where the best weights are reloaded;
                that of now by default.
        """
        settings = self.settings
        if loss < self.best - settings.plateau_threshold:
            self.best, self.stalled = loss, 0
        else:
            self.stalled += 1
        if self.cooling:
            self.cooling, self.stalled = self.cooling - 1, 0
        if self.stalled <= settings.plateau_patience:
            return False
        before = self.rate if rate_of_best is None else rate_of_best
        self.rate = max(before * settings.plateau_factor, settings.plateau_floor)
        self.cooling, self.stalled = settings.plateau_cooldown, 0
        return True
