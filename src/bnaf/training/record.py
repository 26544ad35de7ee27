"""What a run leaves behind besides the weights."""

import dataclasses
import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from bnaf.errors import TableError
from bnaf.tables.splits import RowSplit


class Evaluation(NamedTuple):
    """State of a run when it was evaluated; losses are in nats per row."""

    step: int
    epoch: int
    seconds: float
    loss: float
    valid: float | None
    learning_rate: float


LARGEST = sys.float_info.max


def check_record(facts: Mapping[str, Any]) -> None:
    """Check that what a model is said to have been trained by can be told.

    Args:
        facts: A record, as a file holds it. Names that are not known may hold anything.

    Raises:
        ValueError: If a name that is known holds something of another kind than a fit leaves.
    """
    for name, value in facts.items():
        if not KINDS.get(name, _is_anything)(value):
            raise ValueError(f"{name!r} of the record is {value!r:.40}")


def _is_anything(value: Any) -> bool:
    return True


def _is_number(value: Any) -> bool:
    """Tell whether a value is a number that float64 can hold, or nan or infinite."""
    if isinstance(value, int) and not isinstance(value, bool):
        return abs(value) <= LARGEST
    return isinstance(value, float)


def _is_number_or_none(value: Any) -> bool:
    return value is None or _is_number(value)


def _is_history(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(map(_is_evaluation, value))


def _is_evaluation(entry: Any) -> bool:
    return (
        isinstance(entry, dict)
        and {"step", "loss", "valid"} <= entry.keys()
        and _is_number(entry["step"])
        and _is_number(entry["loss"])
        and all(map(_is_number_or_none, entry.values()))
    )


def _is_split(value: Any) -> bool:
    try:
        RowSplit.from_dict(value)
    except TableError:
        return False
    return True


def _is_grid(value: Any) -> bool:
    return _are_numbers(value) and all(0 < step < math.inf for step in value.values())


def _are_numbers(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_number, value.values()))


KINDS: dict[str, Callable[[Any], bool]] = {
    "reason": lambda value: isinstance(value, str),
    "steps": lambda value: type(value) is int,
    "seconds": _is_number,
    "loss": _is_number_or_none,
    "valid": _is_number_or_none,
    "best_step": _is_number_or_none,
    "history": _is_history,
    "split": _is_split,
    "grid": _is_grid,
    "shift": _are_numbers,
}
"""Whether a value is of the kind that a fit leaves under a name."""


@dataclass(frozen=True)
class TrainingRecord:
    """Record of a fit.

    Args:
        reason: Why it ended: "budget", "early stopping", "interrupted" or "failed".
        steps: Steps of the optimiser, skipped ones included.
        epochs: Passes over the rows that were completed.
        seconds: Wall-clock time, earlier parts of a resumed run included.
        loss: Mean training loss since the last evaluation but one, in nats per row.
        valid: Loss on the validation rows of the weights that were kept, where there are any.
        best_step: The step these weights are from.
        skipped: Steps whose loss or gradient was infinite or undefined.
        batch: Rows per step, where they were in memory.
        history: Every evaluation.
        settings: The settings by name.
        rates: Largest rate of each kind of parameters, where it is known.
    """

    reason: str
    steps: int
    epochs: int
    seconds: float
    loss: float
    valid: float | None
    best_step: int
    skipped: int
    batch: int | None
    history: tuple[Evaluation, ...]
    settings: dict[str, Any]
    rates: dict[str, float] = dataclasses.field(default_factory=dict)

    def shortened(self, entries: int = 1000) -> "TrainingRecord":
        """Return the record with so many evaluations at most, evenly chosen, first and last kept.

        Args:
            entries: Their number, at least 2.
        """
        last = len(self.history) - 1
        if last < entries:
            return self
        chosen = (self.history[number * last // (entries - 1)] for number in range(entries))
        return dataclasses.replace(self, history=tuple(chosen))

    def as_dict(self) -> dict[str, Any]:
        """Return the record ready for JSON."""
        fields = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name != "history"
        }
        return fields | {"history": [entry._asdict() for entry in self.history]}

    @classmethod
    def from_dict(cls, facts: dict[str, Any]) -> "TrainingRecord":
        """Return the record that :meth:`as_dict` wrote down."""
        history = tuple(Evaluation(**entry) for entry in facts["history"])
        return cls(**facts | {"history": history})
