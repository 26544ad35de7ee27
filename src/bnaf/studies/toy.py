"""Density estimation on two-dimensional data: section 5.1 and the first figure of the paper."""

from collections.abc import Callable, Sequence
from statistics import mean
from typing import Any

import torch
from torch import Generator, Tensor

from bnaf._random import private_draws
from bnaf.datasets.toy import toy_named
from bnaf.evaluation.scores import standard_error
from bnaf.flows.flow import Flow
from bnaf.studies.study import Study
from bnaf.training import MaximumLikelihood, Objective


class ToyStudy(Study):
    """Negative log-likelihood of toy data, and its excess over their entropy."""

    name = "toy"
    truth_title = "Data"
    remark_title = "missing mass"

    def objective(self, name: str, flow: Flow, **settings: Any) -> Objective:
        return MaximumLikelihood(flow, **settings)

    def draw(self, name: str, rows: int, generator: Generator) -> Tensor:
        return toy_named(name).draw(rows, generator, dtype=torch.float64)

    def least_loss(self, name: str) -> float:
        return toy_named(name).entropy()

    def log_density(self, name: str) -> Callable[[Tensor], Tensor]:
        return toy_named(name).log_prob

    def describe(self, name: str, flow: Flow, rows: Tensor, losses: Tensor) -> dict[str, Any]:
        """Return the divergence row by row, whose error is smaller, and the missing mass.

        The excess compares a mean with an integral; the mean of log p(x) - log q(x) over the same
        rows estimates the same number without the spread of log p(x).
        """
        gaps = toy_named(name).log_prob(rows) + losses
        with private_draws(0):
            missing = flow.missing_mass()
        return {
            "divergence": gaps.mean().item(),
            "divergence_error": standard_error(gaps),
            "missing_mass": missing.share,
            "missing_mass_error": missing.standard_error,
        }

    def remark(self, measures: Sequence[dict[str, Any]]) -> str:
        return f"{mean(one['missing_mass'] for one in measures):.4f}"
