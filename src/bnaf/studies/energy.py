"""Density matching of two-dimensional energies: section 5.2 and the second figure of the paper."""

from collections.abc import Callable, Sequence
from statistics import mean
from typing import Any

import torch
from torch import Generator, Tensor

from bnaf.datasets.energies import energy_named
from bnaf.flows.flow import Flow
from bnaf.studies.study import Study
from bnaf.training import Objective, ReverseKL


class EnergyStudy(Study):
    """Divergence from a flow to the law of an energy, and the mass each of its modes gets."""

    name = "energy"
    truth_title = "Target"
    remark_title = "mass of each mode (true mass)"

    def objective(self, name: str, flow: Flow, **settings: Any) -> Objective:
        return ReverseKL(flow, energy_named(name), **settings)

    def draw(self, name: str, rows: int, generator: Generator) -> Tensor:
        return torch.randn(rows, 2, generator=generator, dtype=torch.float64)

    def least_loss(self, name: str) -> float:
        return -energy_named(name).log_normaliser

    def log_density(self, name: str) -> Callable[[Tensor], Tensor]:
        return energy_named(name).log_prob

    def describe(self, name: str, flow: Flow, rows: Tensor, losses: Tensor) -> dict[str, Any]:
        """Return the mass of each mode beside the true one, and the largest difference."""
        energy = energy_named(name)
        shares = energy.coverage(flow().transform.inv(rows))
        masses = dict(zip(energy.regions, energy.masses, strict=True))
        gaps = [abs(shares[region] - mass) for region, mass in masses.items()]
        return {"coverage": shares, "true_masses": masses, "coverage_gap": max(gaps)}

    def remark(self, measures: Sequence[dict[str, Any]]) -> str:
        return ", ".join(
            f"{region} {mean(one['coverage'][region] for one in measures):.3f} ({mass:.3f})"
            for region, mass in measures[0]["true_masses"].items()
        )
