"""The one loop: steps, evaluations, checkpoints, and when to end."""

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn
from torch.optim import Optimizer

from bnaf.errors import StorageError, TableError
from bnaf.training._run import logs
from bnaf.training._run.devices import sum_over
from bnaf.training._run.keeper import Keeper
from bnaf.training._run.schedule import Budget, Moment, Plateau, cosine, warm_up
from bnaf.training._run.signals import Interrupts
from bnaf.training._run.state import RunState
from bnaf.training._run.stepper import FOLD, Stepper
from bnaf.training.batches import Batch, BatchSource
from bnaf.training.objectives import Objective
from bnaf.training.progress import InUnits, Pace, Progress, View
from bnaf.training.record import Evaluation
from bnaf.training.settings import TrainingSettings

POLL_STEPS, POLL_SECONDS = 10, 0.5  # between two agreements of several processes, at most
LOOKS = 100 // FOLD  # at what was skipped, in the hundred steps that are judged together
PATIENCE_SHARE = 0.1  # of a budget that the rate decays to, without improvement, before it ends


@dataclass(frozen=True)
class RunPlan:
    """What a run works through.

    Args:
        objective: What is minimised.
        optimiser: From parameters to an optimiser, if not Adam.
        rates: Parameters that want another rate: by a name, the share of the rate and which.
        source: Where batches come from.
        valid: Rows that are only evaluated, if any.
        budget: What may be spent.
        settings: Those of the run.
        checkpoint: File to keep the run in, if any.
        checkpoint_every: Seconds between two writings of it.
    """

    objective: Objective
    optimiser: Callable[[Any], Optimizer] | None
    rates: dict[str, tuple[float, list[nn.Parameter]]]
    source: BatchSource
    valid: BatchSource | None
    budget: Budget
    settings: TrainingSettings
    checkpoint: Path | None
    checkpoint_every: float


class TrainingRun:
    """A fit on one process, in step with the others.

    Args:
        plan: What to work through.
        fabric: Where.
        progress: What to show.
        units: Units to show it in, if not those of the loss.
        interrupts: Where requests to stop arrive.
    """

    def __init__(
        self,
        plan: RunPlan,
        fabric: Fabric,
        progress: Progress,
        interrupts: Interrupts,
        units: InUnits | None = None,
    ) -> None:
        self.plan, self.fabric, self.progress, self.units = plan, fabric, progress, units
        self.settings = plan.settings
        self.stepper = Stepper(
            fabric,
            plan.objective,
            plan.settings,
            worth=plan.source.worth,
            optimiser=plan.optimiser,
            rates=plan.rates,
        )
        self.plateau = Plateau(plan.settings)
        self.keeper = Keeper(self.stepper)
        self.state = RunState(epoch_batches=plan.source.batch_count(fabric.world_size))
        self.like = self.stepper.parameters[0]
        self.batch: Batch | None = None  # the last one
        self.odd_columns: Tensor | None = None  # how many values were not finite, by column
        for source in (plan.source, plan.valid):
            if source is not None:
                source.settle(self.like, fabric.world_size if source is plan.source else 1)
        self._interrupts = interrupts
        self._pace = Pace(progress.interval)
        self._started = self._saved = time.monotonic()
        self._seconds_before = self._evaluation_seconds = 0.0
        self._poll_every = 1
        self._spent = 0.0  # share of the budget, as of the last step
        self._stopping = False
        self._logging = True

    def resume(self) -> None:
        """Go back to where the checkpoint is; a run with more to spend than before goes on."""
        assert self.plan.checkpoint is not None
        self.state = self.keeper.restore(self.plan.checkpoint, self.plateau)
        if self.state.reason == "budget" and not self.settings.follows_budget:
            self.state.reason = "budget" if self._share() >= 1 or self.settings.seconds else None

    def run(self) -> None:
        """Work through the budget, or what is left of it."""
        self._seconds_before = self.state.seconds
        self._pace.begin(self.state.step, self._share())
        for entry in self.state.history:
            self._log(entry)
        self._end_if_spent()
        while self.state.reason is None:
            self._run_epoch()
        if self.state.reason != "interrupted" and self.state.evaluated < self.state.step:
            self._evaluate()
        self._count_skipped()
        self._save()
        self.fabric.barrier()

    def _run_epoch(self) -> None:
        state, fabric = self.state, self.fabric
        batches = self.plan.source.batches(
            state.epoch, rank=fabric.global_rank, world_size=fabric.world_size, start=state.index
        )
        for batch in batches:
            self.batch = self._prepare(batch)
            self.stepper.take(self.batch, self._rate(self._spent), state.step)
            state.step += 1
            state.index += 1
            self._tend()
            if state.reason is not None:
                return
        if state.index == 0:
            raise TableError("rows must hold at least one batch, got an empty stream.")
        state.epoch_batches = state.index
        state.epoch, state.index = state.epoch + 1, 0
        if self.settings.evaluate_every is None:
            self._evaluate()
        self._end_if_spent()

    def _prepare(self, batch: Batch) -> Batch:
        """Return a batch on the device, having noted what is not finite in it."""
        batch = batch.to(self.like)
        if not self.plan.source.finite:
            odd = self.plan.objective.impossible(batch.rows).sum(0)
            self.odd_columns = odd if self.odd_columns is None else self.odd_columns + odd
        return batch

    def _tend(self) -> None:
        """Do what is due after a step."""
        state, interval = self.state, self.settings.evaluate_every
        if state.step % self._poll_every == 0:
            self._poll()
        if state.step % FOLD == 0:
            self._count_skipped()
            state.looks = [*state.looks, state.skipped][-LOOKS:]
        if state.reason is None and interval is not None and state.step % interval == 0:
            self._evaluate()
        self._end_if_spent()
        if state.reason is None and self._stopping:  # last, so that nothing due is left out
            state.reason = "interrupted"
        if self._pace.due():
            self._show()
        if time.monotonic() - self._saved > self.plan.checkpoint_every and state.reason is None:
            self._save()

    def _poll(self) -> None:
        """Agree with the other processes on the time and on stopping."""
        state, fabric = self.state, self.fabric
        seconds = self._seconds_before + time.monotonic() - self._started
        requested = float(self._interrupts.requested)
        if fabric.world_size > 1:
            mine = [seconds if fabric.global_rank == 0 else 0.0, requested]
            shared = sum_over(fabric, torch.tensor(mine, dtype=self.stepper.sums.dtype))
            seconds, requested = shared.tolist()
            pace = (seconds - self._seconds_before) / (state.step - self._pace.step)
            self._poll_every = max(1, min(POLL_STEPS, int(POLL_SECONDS / max(pace, 1e-6))))
        state.seconds, self._stopping = seconds, requested > 0

    def _count_skipped(self) -> None:
        """End a run of which too much was skipped; this waits for the device."""
        state = self.state
        skipped = self.stepper.skipped
        if skipped > state.skipped:
            state.last_skipped = state.step
        state.skipped = skipped
        recent = skipped - (state.looks[0] if len(state.looks) == LOOKS else 0)
        wasted = state.reason == "budget" and skipped == state.step
        if wasted or (state.reason in (None, "budget") and recent > self.settings.max_skipped):
            state.reason = "failed"

    def _end_if_spent(self) -> None:
        self._spent = self._share()
        if self.state.reason is None and self._spent >= 1:
            self.state.reason = "budget"

    def _share(self) -> float:
        step, epoch, seconds = self.state.moment
        return self.plan.budget.share(Moment(step, epoch, seconds + self._evaluation_seconds))

    def _rate(self, share: float) -> float:
        settings = self.settings
        factor = warm_up(self.state.step, share, settings.warm_up)
        if settings.schedule == "plateau":
            return self.plateau.rate * factor
        decay = cosine(share) if settings.schedule == "cosine" else 1.0
        return settings.rate * factor * decay

    def _evaluate(self) -> None:
        state, started = self.state, time.monotonic()
        state.loss = self.stepper.close_loss(otherwise=state.loss)
        valid = None if self.plan.valid is None else self.stepper.validate(self.plan.valid)
        rate = self._rate(self._share())
        entry = Evaluation(state.step, state.epoch, state.seconds, state.loss, valid, rate)
        state.history.append(entry)
        state.evaluated = state.step
        self._log(entry)
        if valid is not None:
            self._judge(valid, rate)
        if self.settings.schedule == "plateau":
            anchored = self.settings.reload_best and self.keeper.anchor is not None
            loss = state.loss if valid is None else valid
            dropped = self.plateau.update(loss, state.best_rate if anchored else None)
            if dropped and anchored:
                self.keeper.return_to_anchor()
        if self.plan.budget.seconds:
            spent = torch.tensor(time.monotonic() - started, dtype=self.stepper.sums.dtype)
            self._evaluation_seconds = float(sum_over(self.fabric, spent)) / self.fabric.world_size

    def _judge(self, valid: float, rate: float) -> None:
        """Keep weights that are the best so far, and end a run that no longer improves."""
        state, settings = self.state, self.settings
        if valid < state.best:
            state.best, state.best_step, state.best_rate = valid, state.step, rate
            self.keeper.keep_best(anchor=settings.reload_best)
        if valid < state.mark - settings.plateau_threshold:
            state.mark, state.stalled, state.improved = valid, 0, self._share()
        elif state.step >= self.plan.objective.counted_from:
            state.stalled += 1
        patience = settings.early_stopping
        if state.reason is None and patience is not None and state.stalled >= patience:
            waited = self._share() - state.improved
            if settings.schedule != "cosine" or waited >= PATIENCE_SHARE:
                state.reason = "early stopping"

    def _log(self, entry: Evaluation) -> None:
        """Write an evaluation to the logs, as long as they can be written."""
        if not self._logging:
            return
        try:
            logs.log(self.fabric.loggers, entry)
        except OSError as error:  # a full disk, say: the run is worth more than its logs
            self._logging = False
            told = f"Logs cannot be written: {error}; make room. Training goes on without."
            warnings.warn(told, RuntimeWarning, stacklevel=2)

    def _save(self) -> None:
        self._saved = time.monotonic()
        if self.plan.checkpoint is None or self.fabric.global_rank > 0:
            return
        try:
            self.keeper.write(self.plan.checkpoint, self.state, self.plateau)
        except StorageError as error:  # a full disk, say: the run is worth more than its copy
            warnings.warn(f"{error} Training goes on without.", RuntimeWarning, stacklevel=2)

    def _show(self) -> None:
        state, share = self.state, self._share()
        speed, left = self._pace.estimate(state.step, share)
        valid = state.history[-1].valid if state.history else None
        best = None if valid is None else state.best
        loss = self.stepper.read_loss(otherwise=state.loss)
        self.progress.show(
            View(state.step, share, speed, loss, valid, best, self._rate(share), left, self.units)
        )
