"""Training: one loop for every flow and objective, on one device or many."""

from bnaf.training.batches import BaseDraws, Batch, BatchSource, FreshRows, Rows, Stream
from bnaf.training.fitting import fit
from bnaf.training.objectives import (
    ConditionalLikelihood,
    MaximumLikelihood,
    Objective,
    ReverseKL,
)
from bnaf.training.recipe import Recommendation, recommend
from bnaf.training.record import Evaluation, TrainingRecord
from bnaf.training.settings import TrainingSettings

__all__ = [
    "BaseDraws",
    "Batch",
    "BatchSource",
    "ConditionalLikelihood",
    "Evaluation",
    "FreshRows",
    "MaximumLikelihood",
    "Objective",
    "Recommendation",
    "ReverseKL",
    "Rows",
    "Stream",
    "TrainingRecord",
    "TrainingSettings",
    "fit",
    "recommend",
]
