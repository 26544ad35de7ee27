"""What the two-dimensional studies have in common: a loss, the least there is, and a density."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Generator, Tensor

from bnaf.evaluation.scores import standard_error
from bnaf.flows.flow import Flow
from bnaf.studies.plans import Trial
from bnaf.training import Batch, FreshRows, Objective, TrainingRecord, fit
from bnaf.training.progress import Progress

TEST_SEED = 1_000_000  # plus the seed of a run, so that all flows meet the same rows
CHUNK = 10_000


class Study(ABC):
    """Experiments that train on fresh rows and compare the loss with the least there is.

    The excess of the loss is a divergence of Kullback and Leibler: from the data to the flow where
    the loss is the negative log-likelihood, from the flow to the target where it is that of an
    energy.
    """

    name: ClassVar[str]
    """What it is called on command lines and in the names of its files."""
    truth_title: ClassVar[str]
    """What figures call the law that is to be learned."""
    remark_title: ClassVar[str]
    """What tables call that which is measured beside the loss."""

    @abstractmethod
    def objective(self, name: str, flow: Flow, **settings: Any) -> Objective:
        """Return what is minimised."""

    @abstractmethod
    def draw(self, name: str, rows: int, generator: Generator) -> Tensor:
        """Draw rows of the objective, in float64."""

    @abstractmethod
    def least_loss(self, name: str) -> float:
        """Return the loss of the best flow there could be, in nats."""

    @abstractmethod
    def log_density(self, name: str) -> Callable[[Tensor], Tensor]:
        """Return the log-density that is to be learned."""

    @abstractmethod
    def describe(self, name: str, flow: Flow, rows: Tensor, losses: Tensor) -> dict[str, Any]:
        """Return what is measured beside the loss.

        Args:
            name: Name of the experiment.
            flow: A flow in float64.
            rows: Test rows.
            losses: Their losses.
        """

    @abstractmethod
    def remark(self, measures: Sequence[dict[str, Any]]) -> str:
        """Return what was measured beside the loss, as a mean over runs, for tables."""

    def train(
        self, run: Trial, flow: Flow, *, checkpoint: Path, progress: Progress
    ) -> TrainingRecord:
        """Train a flow in place, or go on from its checkpoint."""
        name, settings = run.experiment.name, run.training
        assert settings.batch is not None
        rows = FreshRows(partial(self.draw, name), batch=settings.batch, seed=settings.seed)
        first = next(rows.batches(0)).rows
        flow.start_from(first.to(next(flow.parameters())))
        return fit(
            flow,
            rows,
            objective=self.objective(name, flow, **run.objective),
            settings=settings,
            checkpoint=checkpoint,
            progress=progress,
        )

    @torch.no_grad()
    def measure(self, run: Trial, flow: Flow) -> dict[str, Any]:
        """Return the loss of a flow on fresh rows, its excess, and more, computed in float64."""
        name, precise = run.experiment.name, deepcopy(flow).double()
        rows = self.draw(name, run.test_rows, Generator().manual_seed(TEST_SEED + run.seed))
        objective = self.objective(name, precise)
        losses = torch.cat([objective.losses(Batch(part)) for part in rows.split(CHUNK)])
        loss, least = losses.mean().item(), self.least_loss(name)
        return {
            "rows": run.test_rows,
            "loss": loss,
            "loss_error": standard_error(losses),
            "least_loss": least,
            "excess": loss - least,
            **self.describe(name, precise, rows, losses),
        }
