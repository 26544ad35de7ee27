"""Training: one loop for every flow and objective, on one device or many."""

from bnaf.training.arrays import ArrayRows
from bnaf.training.batches import Batch, BatchSource, FreshRows, base_draws
from bnaf.training.fitting import fit, is_of_run
from bnaf.training.objectives import FlowObjective, MaximumLikelihood, Objective, ReverseKL
from bnaf.training.recipe import TableFacts, resolve
from bnaf.training.record import Evaluation, TrainingRecord
from bnaf.training.settings import TrainingSettings
from bnaf.training.streams import StreamRows

__all__ = [
    "ArrayRows",
    "Batch",
    "BatchSource",
    "Evaluation",
    "FlowObjective",
    "FreshRows",
    "MaximumLikelihood",
    "Objective",
    "ReverseKL",
    "StreamRows",
    "TableFacts",
    "TrainingRecord",
    "TrainingSettings",
    "base_draws",
    "fit",
    "is_of_run",
    "resolve",
]
