"""Where a run stands: all that is not a tensor."""

import dataclasses
import math
import re
from dataclasses import dataclass, field
from typing import Any

from bnaf.training._run.schedule import Moment, Plateau
from bnaf.training.record import Evaluation

VERSION = re.compile(r"version_\d+")  # folders of logs


@dataclass
class RunState:
    """Counters of a run.

    Args:
        step: Steps taken.
        epoch: Epochs completed.
        index: Batches taken in this epoch.
        seconds: Wall-clock time so far.
        epoch_batches: Batches in an epoch, once known.
        evaluated: Step of the last evaluation.
        best: Smallest validation loss.
        best_step: Its step.
        best_rate: Learning rate at that time.
        mark: Validation loss that the next one has to improve on to count.
        stalled: Evaluations since that last happened, once the objective lets them count.
        improved: Share of the budget that was spent when it did.
        skipped: Steps that were skipped.
        looks: How many they were, at each look of the last hundred steps.
        last_skipped: Step by which the last of them was noticed.
        loss: Training loss of the last evaluation.
        log_version: Folder of the logs.
        reason: Why the run ended, once it has.
        history: Every evaluation.
    """

    step: int = 0
    epoch: int = 0
    index: int = 0
    seconds: float = 0.0
    epoch_batches: int | None = None
    evaluated: int = 0
    best: float = math.inf
    best_step: int = 0
    best_rate: float = 0.0
    mark: float = math.inf
    stalled: int = 0
    improved: float = 0.0
    skipped: int = 0
    looks: list[int] = field(default_factory=list)
    last_skipped: int = 0
    loss: float = math.nan
    log_version: str | None = None
    reason: str | None = None
    history: list[Evaluation] = field(default_factory=list)

    @property
    def moment(self) -> Moment:
        """How far the run has come."""
        return Moment(self.step, self.epoch, self.seconds)

    def as_facts(self, plateau: Plateau) -> dict[str, Any]:
        """Return everything ready for JSON, the counters of a plateau included."""
        facts = dataclasses.asdict(self) | {"history": [list(entry) for entry in self.history]}
        counters = {
            name: getattr(plateau, name) for name in ("rate", "best", "stalled", "cooling")
        }
        return {"state": facts, "plateau": counters}

    @classmethod
    def from_facts(cls, facts: dict[str, Any], plateau: Plateau) -> "RunState":
        """Return the state that :meth:`as_facts` wrote down, and set a plateau to its own."""
        check_facts(facts)
        for name, value in facts["plateau"].items():
            setattr(plateau, name, value)
        history = [Evaluation(*entry) for entry in facts["state"]["history"]]
        return cls(**facts["state"] | {"history": history})


def check_facts(facts: dict[str, Any]) -> None:
    """Check that what was read can be the state of a run.

    Raises:
        ValueError: If a value is of another kind than those that are written.
    """
    defaults = dataclasses.asdict(RunState()) | {"epoch_batches": 0, "log_version": ""}
    defaults |= {"reason": ""}
    for name, value in facts["state"].items():
        kind = type(defaults[name])
        fits = value is None and name in ("epoch_batches", "log_version", "reason")
        if not fits and not isinstance(value, (int, float) if kind is float else kind):
            raise ValueError(f"{name} is {value!r:.40}")
    version = facts["state"]["log_version"]
    if version is not None and not VERSION.fullmatch(version):
        raise ValueError(f"log_version is {version!r:.40}")
    if not all(isinstance(value, int | float) for value in facts["plateau"].values()):
        raise ValueError("the plateau has counters that are no numbers")
