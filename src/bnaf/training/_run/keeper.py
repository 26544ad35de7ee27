"""The weights worth keeping, and the file a run is kept in."""

from pathlib import Path

import torch
from torch import Tensor

from bnaf.training._run.checkpoints import (
    Checkpoint,
    explained,
    flatten_optimiser,
    part,
    read_checkpoint,
    restore_optimiser,
    write_checkpoint,
)
from bnaf.training._run.schedule import Plateau
from bnaf.training._run.state import RunState
from bnaf.training._run.stepper import Stepper

Weights = dict[str, Tensor]


class Keeper:
    """Best weights of a run, the point it returns to when the rate drops, and its checkpoint.

    Args:
        stepper: What is being trained.
    """

    def __init__(self, stepper: Stepper) -> None:
        self.stepper = stepper
        self.identity: dict[str, object] = {}
        self.best: Weights | None = None
        self.anchor: Weights | None = None  # what is trained, as of the best evaluation

    def keep_best(self, *, anchor: bool) -> None:
        """Keep the averaged weights, and all it takes to return to this point if asked to."""
        self.best = self._averaged()
        self.anchor = self._raw() if anchor else None

    def return_to_anchor(self) -> None:
        """Go back to the weights, the optimiser and the average of the best evaluation."""
        assert self.anchor is not None
        self._load_raw(self.anchor)

    def kept(self) -> Weights:
        """Return the weights to end with: the best by validation, or else the average."""
        return self._averaged() if self.best is None else self.best

    def write(self, path: Path, state: RunState, plateau: Plateau) -> None:
        """Write everything to a file; a run that was cut short is written as one to go on with."""
        stepper = self.stepper
        tensors = _named("raw.", self._raw()) | {"sums": stepper.sums, "entries": stepper.entries}
        tensors |= _named("best.", self.best or {}) | _named("anchor.", self.anchor or {})
        facts = state.as_facts(plateau) | {"identity": self.identity}
        if stepper.prior is not None:
            tensors |= {f"centre.{i}": centre for i, centre in enumerate(stepper.prior.centres)}
        if state.reason in ("interrupted", "failed"):
            facts["state"]["reason"] = None
        write_checkpoint(path, Checkpoint(tensors, facts))

    @torch.no_grad()
    def restore(self, path: Path, plateau: Plateau) -> RunState:
        """Put everything back as it was written, and return the state.

        Raises:
            StorageError: If the file is damaged, or does not fit the run.
        """
        tensors, facts = read_checkpoint(path)
        with explained(path):
            self._restore(tensors)
            return RunState.from_facts(facts, plateau)

    def _restore(self, tensors: Weights) -> None:
        stepper = self.stepper
        self._check_finite(tensors)
        self._load_raw(part(tensors, "raw."))
        stepper.sums.copy_(tensors["sums"])
        stepper.entries = tensors["entries"]
        self.best = part(tensors, "best.") or None
        self.anchor = part(tensors, "anchor.") or None
        if stepper.prior is not None:
            for number, centre in enumerate(stepper.prior.centres):
                centre.copy_(tensors[f"centre.{number}"])

    def _check_finite(self, tensors: Weights) -> None:
        """Refuse weights and counts that no step leaves: those that are not finite are skipped."""
        skipped = torch.cat([tensors["sums"][2:], tensors["entries"][:, 2]])
        if not skipped.isfinite().all():
            raise ValueError("the number of skipped steps is not finite")
        state = self.stepper.objective.state_dict()
        held = {name for name, part in state.items() if not part.isfinite().all()}
        for key, tensor in tensors.items():
            kind, _, name = key.removeprefix("raw.").removeprefix("anchor.").partition(".")
            weight = kind in ("weights", "best", "average") and name not in held
            if weight and not tensor.isfinite().all():
                raise ValueError(f"{key} is not finite")

    def _averaged(self) -> Weights:
        with self.stepper.averaged():
            return _copies(self.stepper.objective.state_dict())

    def _raw(self) -> Weights:
        stepper = self.stepper
        raw = _named("weights.", stepper.objective.state_dict())
        raw |= _named("optimiser.", flatten_optimiser(stepper.optimiser))
        if stepper.average is not None:
            raw |= _named("average.", stepper.average.state_dict())
        return _copies(raw)

    def _load_raw(self, raw: Weights) -> None:
        self.stepper.objective.load_state_dict(part(raw, "weights."))
        restore_optimiser(self.stepper.optimiser, part(raw, "optimiser."))
        if self.stepper.average is not None:
            self.stepper.average.load_state_dict(part(raw, "average."))


def _copies(weights: Weights) -> Weights:
    return {name: tensor.detach().clone() for name, tensor in weights.items()}


def _named(prefix: str, weights: Weights) -> Weights:
    return {prefix + name: tensor for name, tensor in weights.items()}
