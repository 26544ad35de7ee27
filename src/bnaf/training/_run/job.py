"""A fit from beginning to end, on all of its processes."""

import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from lightning_fabric import Fabric
from torch import Tensor
from torch.optim import Optimizer

from bnaf._files import sole_writer
from bnaf._torch import starts_processes
from bnaf.errors import SettingsError, TrainingError
from bnaf.training._run.checkpoints import (
    Checkpoint,
    check_checkpoint,
    explained,
    find_difference,
    read_checkpoint,
    write_checkpoint,
)
from bnaf.training._run.devices import is_first_process, leave_at_exit, make_fabric, sum_over
from bnaf.training._run.logs import close_loggers, make_loggers, next_version
from bnaf.training._run.loop import RunPlan, TrainingRun
from bnaf.training._run.schedule import Budget
from bnaf.training._run.signals import Interrupts, forwarded_interrupts
from bnaf.training._run.state import check_facts
from bnaf.training.batches import BatchSource
from bnaf.training.objectives import Objective
from bnaf.training.progress import InUnits, Progress, Silence, format_seconds, make_progress
from bnaf.training.record import TrainingRecord
from bnaf.training.settings import TrainingSettings


class Outcome(NamedTuple):
    """What a run hands back to the process that asked for it."""

    weights: dict[str, Tensor]
    record: TrainingRecord
    failure: str | None
    column: int | None


@dataclass(frozen=True)
class Job:
    """A fit whose arguments were checked; every process of it gets a copy."""

    objective: Objective
    optimiser: Callable[[Any], Optimizer] | None
    source: BatchSource
    valid: BatchSource | None
    settings: TrainingSettings
    checkpoint: Path | None
    checkpoint_every: float
    resume: bool
    logs: Path | None
    loggers: tuple[str, ...]
    progress: bool | InUnits | Progress

    def launch(self) -> TrainingRecord:
        """Run on all devices, and load what came out into the objective."""
        if self.checkpoint is None:
            return self._launch()
        check_checkpoint(self.checkpoint)
        with sole_writer(self.checkpoint) if is_first_process() else nullcontext():
            return self._launch()

    def _launch(self) -> TrainingRecord:
        like = next(self.objective.parameters())
        device, dtype, training = like.device, like.dtype, self.objective.training
        identity = {} if self.checkpoint is None else self._identity()
        facts = self._checkpoint_facts(identity)
        version: str | None = facts["state"]["log_version"] if facts else None
        loggers: list[Any] = []
        if self.logs is not None:
            version = version or next_version(self.logs)
            loggers = make_loggers(self.logs, version, self.loggers)
        fabric = make_fabric(self.settings, device, loggers)
        train = partial(
            self.train,
            identity=identity,
            resumed=bool(facts),
            one_rate=facts is not None and facts["version"] == 2,  # as all runs had then
            version=version,
        )
        try:
            outcome = _launch(fabric, train)
            self.objective.load_state_dict(outcome.weights)
        finally:
            self.objective.zero_grad()
            self.objective.train(training).to(device=device, dtype=dtype)
            close_loggers(loggers)
        if outcome.failure is not None:
            raise TrainingError(outcome.failure, outcome.record, column=outcome.column)
        return outcome.record

    def train(
        self,
        fabric: Fabric,
        *,
        identity: dict[str, Any],
        resumed: bool,
        one_rate: bool,
        version: str | None,
        interrupts: Interrupts,
    ) -> Outcome:
        """Run on this process."""
        if fabric.world_size > 1:
            leave_at_exit()
        progress = self._display(fabric.global_rank)
        plan = self._plan(fabric.world_size, one_rate=one_rate)
        run = TrainingRun(plan, fabric, progress, interrupts, self._units)
        run.keeper.identity = identity
        if resumed:
            run.resume()
        run.state.log_version = version
        try:
            run.run()
        except BaseException:
            self.objective.load_state_dict(run.keeper.kept())
            raise
        finally:
            progress.close(_summarise(run, self._units))
        failure, column = _explain(run) if run.state.reason == "failed" else (None, None)
        return Outcome(run.keeper.kept(), self._record(run), failure, column)

    def _display(self, rank: int) -> Progress:
        if rank > 0 or self.progress is False:
            return Silence()
        if self.progress is True or isinstance(self.progress, InUnits):
            return make_progress(True)
        return self.progress

    @property
    def _units(self) -> InUnits | None:
        return self.progress if isinstance(self.progress, InUnits) else None

    def _plan(self, world_size: int, *, one_rate: bool) -> RunPlan:
        epoch_batches = self.source.batch_count(world_size)
        return RunPlan(
            objective=self.objective,
            optimiser=self.optimiser,
            rates={} if one_rate else self.objective.rates(),
            source=self.source,
            valid=self.valid,
            budget=Budget.of(self.settings, epoch_batches),
            settings=self.settings,
            checkpoint=self.checkpoint,
            checkpoint_every=self.checkpoint_every if self.checkpoint else math.inf,
        )

    def _identity(self) -> dict[str, Any]:
        """Return what a checkpoint must agree on to be resumed."""
        objective = self.objective
        return {
            "settings": self.settings.as_dict(),
            "flow": getattr(objective.trained, "settings", {}),
            "objective": {"name": type(objective).__name__, **objective.settings},
            "optimiser": None if self.optimiser is None else _describe(self.optimiser),
            "rates": {name: share for name, (share, _) in objective.rates().items()},
            "rows": self.source.identity,
            "valid": None if self.valid is None else self.valid.identity.get("fingerprint"),
        }

    def _checkpoint_facts(self, identity: dict[str, Any]) -> dict[str, Any] | None:
        """Return the facts of a checkpoint to go on from, or none."""
        if self.checkpoint is None or not self.resume or not self.checkpoint.exists():
            return None
        facts = read_checkpoint(self.checkpoint).facts
        free = () if self.settings.follows_budget else ("settings.epochs", "settings.steps")
        with explained(self.checkpoint):
            difference = find_difference(facts, identity, but=free)
            check_facts(facts)
        if difference is not None:
            name, there, here = difference
            raise SettingsError(
                f"{self.checkpoint} is the checkpoint of another run: {name} is {there!r} there "
                f"and {here!r} here. Give another file, or remove this one."
            )
        return facts

    def _record(self, run: TrainingRun) -> TrainingRecord:
        state = run.state
        judged = self.valid is not None and state.best < math.inf
        return TrainingRecord(
            reason=state.reason or "",
            steps=state.step,
            epochs=state.epoch + (state.index == state.epoch_batches),
            seconds=state.seconds,
            loss=state.loss,
            valid=state.best if judged else None,
            best_step=state.best_step if judged else state.step,
            skipped=state.skipped,
            batch=self.source.batch,
            history=tuple(state.history),
            settings=self.settings.as_dict(),
            rates=run.stepper.rates,
        )


def _launch(fabric: Fabric, train: Callable[..., Outcome]) -> Outcome:
    """Run on all processes, this one among them or not, and return what came out of the first.

    Where all processes are new ones, the outcome comes back as a file: it may be larger than what
    fits between processes while one of them waits for the other to end.
    """
    if not starts_processes(fabric):
        outcome: Outcome = fabric.launch(partial(_hold, train=train))
        return outcome
    with TemporaryDirectory() as folder:
        path = Path(folder) / "outcome"
        with forwarded_interrupts() as asked:
            try:
                fabric.launch(partial(_hand_over, train=train, path=path))
            except Exception:
                if asked.requested:  # before they could hold the request, which then ends them
                    raise KeyboardInterrupt from None
                raise
        tensors, facts = read_checkpoint(path)
    record = TrainingRecord.from_dict(facts["record"])
    return Outcome(tensors, record, facts["failure"], facts["column"])


def _hold(fabric: Fabric, train: Callable[..., Outcome]) -> Outcome:
    with Interrupts() as interrupts:
        return train(fabric, interrupts=interrupts)


def _hand_over(fabric: Fabric, train: Callable[..., Outcome], path: Path) -> None:
    with Interrupts() as interrupts:
        outcome = train(fabric, interrupts=interrupts)
        if fabric.global_rank == 0:
            facts: dict[str, Any] = {"record": outcome.record.as_dict()}
            facts |= {"failure": outcome.failure, "column": outcome.column}
            write_checkpoint(path, Checkpoint(outcome.weights, facts))


def _summarise(run: TrainingRun, units: InUnits | None) -> str:
    state = run.state
    line = f"{state.reason or 'stopped'}: {state.step} steps in {format_seconds(state.seconds)}"
    best = state.best if state.best < math.inf else None
    if units is not None:
        line += f", {', '.join(units.tell(state.loss, best, None))}"
    else:
        line += f", loss {state.loss:.4f} nats"
        line += "" if best is None else f", best validation {best:.4f}"
    if best is not None:
        line += f" at step {state.best_step}"
    return line + (f", {state.skipped} steps skipped" if state.skipped else "")


def _explain(run: TrainingRun) -> tuple[str, int | None]:
    """Return why a run failed, which steps and which columns; and the column, if it is one."""
    state, settings = run.state, run.settings
    many = f"more than {settings.max_skipped} of its last 100 steps"
    many = f"all of its {state.step} steps" if state.skipped == state.step else many
    text = (
        f"Training ended at step {state.last_skipped}: {many} had a loss or gradient that is not "
        "finite. The flow keeps the best weights. "
    )
    odd = None if run.odd_columns is None else sum_over(run.fabric, run.odd_columns)
    if odd is not None and odd.any():
        listed = ", ".join(f"{int(i)} ({int(odd[i])})" for i in odd.nonzero())
        column = int(odd.argmax()) if odd.count_nonzero() == 1 else None
        return text + f"Missing or infinite values by column, counted from 0: {listed}.", column
    if run.batch is None or not len(run.batch.rows):
        return text, None
    largest = run.batch.rows.abs().amax(0)
    column = int(largest.argmax())
    text += (
        f"All values are finite; the largest of the last batch is {float(largest[column]):.3g}, "
        f"in column {column}, counted from 0. Rescale the columns, or lower learning_rate "
        f"({settings.rate})."
    )
    return text, column


def _describe(optimiser: Callable[[Any], Optimizer]) -> str:
    """Return what an optimiser is made by, as far as it has a name."""
    made = getattr(optimiser, "func", optimiser)  # of a partial
    return str(getattr(made, "__qualname__", type(made).__qualname__))
