"""What a run leaves behind besides the weights."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple


class Evaluation(NamedTuple):
    """State of a run when it was evaluated; losses are in nats per row."""

    step: int
    epoch: int
    seconds: float
    loss: float
    valid: float | None
    learning_rate: float


NUMBERS = ("seconds", "loss", "valid", "best_step")


def check_record(facts: Mapping[str, Any]) -> None:
    """Check that what a model is said to have been trained by can be told.

    Args:
        facts: A record, as a file holds it. Names that are not known may hold anything.

    Raises:
        ValueError: If a name that is known holds something of another kind than a fit leaves.
    """
    odd = [name for name in NUMBERS if not _is_number(facts.get(name))]
    odd += ["steps"] * (type(facts.get("steps", 0)) is not int)
    odd += ["reason"] * (not isinstance(facts.get("reason", ""), str))
    history = facts.get("history", [])
    entries = history if isinstance(history, list | tuple) else [None]
    if not all(isinstance(entry, dict) and _is_evaluation(entry) for entry in entries):
        odd.append("history")
    if odd:
        raise ValueError(f"{odd[0]!r} of the record is {facts[odd[0]]!r:.40}")


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _is_evaluation(entry: Mapping[str, Any]) -> bool:
    wanted = {"step", "loss", "valid"}
    return wanted <= entry.keys() and all(_is_number(value) for value in entry.values())


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
