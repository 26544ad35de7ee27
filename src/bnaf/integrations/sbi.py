"""Flows as density estimators of sbi: posteriors for NPE, likelihoods for NLE.

sbi takes one rate for all weights, and keeps it to the end. The weights of a block network live in
log space and want a rate a hundred times that of ordinary ones. So an estimator of this module
stores weights in units in which sbi's default rate suits them, and it is judged by, and draws
from, an average of the weights that it had, in place of a rate that falls.
"""

import copy
import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from bnaf._checks import one_of
from bnaf._torch import kept_validation, lerp_all
from bnaf.errors import SettingsError, ShapeError
from bnaf.flows.flow import Flow
from bnaf.flows.registry import flow_named

with kept_validation():
    from sbi.neural_nets.estimators import ConditionalDensityEstimator

SBI_RATE = 5e-4  # of sbi's trainers, unless told otherwise
AVERAGE = 0.99  # share of the average of weights that a step leaves
SCORINGS = ("independent", "structured", "none", None)
SMALLEST_DEVIATION = 1e-7

Builder = Callable[[Tensor, Tensor], "FlowEstimator"]


def posterior_flow(
    flow: str = "bnaf",
    *,
    z_score_theta: str | None = "independent",
    z_score_x: str | None = "independent",
    embedding_net: nn.Module | None = None,
    settings: Mapping[str, Any] | None = None,
    learning_rate: float = SBI_RATE,
) -> Builder:
    """Return what builds the density of parameters given data, for ``NPE(density_estimator=...)``.

    Args:
        flow: Name of the flow in the registry.
        z_score_theta: How parameters are standardised: "independent" column by column,
            "structured" all columns alike, or "none".
        z_score_x: How data are standardised, before the embedding.
        embedding_net: Network from data to the context of the flow; none by default.
        settings: Arguments of the flow; those that are left out suit simulations.
        learning_rate: Rate that sbi is going to be told.

    Raises:
        SettingsError: If a flow or a way to standardise is not known.

    Example:
        >>> estimator = posterior_flow()(torch.randn(50, 2), torch.randn(50, 3))
        >>> estimator.sample((4,), condition=torch.zeros(5, 3)).shape
        torch.Size([4, 5, 2])
    """
    build = _estimator_builder(
        flow, z_score_theta, z_score_x, embedding_net, settings, learning_rate
    )
    return lambda theta, x: build(theta, x)


def likelihood_flow(
    flow: str = "bnaf",
    *,
    z_score_theta: str | None = "independent",
    z_score_x: str | None = "independent",
    embedding_net: nn.Module | None = None,
    settings: Mapping[str, Any] | None = None,
    learning_rate: float = SBI_RATE,
) -> Builder:
    """Return what builds the density of data given parameters, for ``NLE(density_estimator=...)``.

    Args:
        flow: Name of the flow in the registry.
        z_score_theta: How parameters are standardised, before the embedding.
        z_score_x: How data are standardised.
        embedding_net: Network from parameters to the context of the flow; none by default.
        settings: As in :func:`posterior_flow`.
        learning_rate: As there.

    Raises:
        SettingsError: If a flow or a way to standardise is not known.

    Example:
        >>> estimator = likelihood_flow()(torch.randn(50, 2), torch.randn(50, 3))
        >>> estimator.log_prob(torch.zeros(1, 5, 3), condition=torch.zeros(5, 2)).shape
        torch.Size([1, 5])
    """
    build = _estimator_builder(
        flow, z_score_x, z_score_theta, embedding_net, settings, learning_rate
    )
    return lambda theta, x: build(x, theta)


def _estimator_builder(
    flow: str,
    z_score_input: str | None,
    z_score_condition: str | None,
    embedding_net: nn.Module | None,
    settings: Mapping[str, Any] | None,
    learning_rate: float,
) -> Builder:
    kind = flow_named(flow)
    one_of("z_score", z_score_input, SCORINGS)
    one_of("z_score", z_score_condition, SCORINGS)

    def build(inputs: Tensor, conditions: Tensor) -> FlowEstimator:
        embedding = nn.Sequential(
            ZScore(conditions, z_score_condition),
            copy.deepcopy(embedding_net) if embedding_net is not None else nn.Flatten(),
        ).to(conditions)
        with torch.no_grad():
            contexts = embedding(conditions[:2]).shape[-1]
        features = inputs[0].numel()
        chosen = SIMULATION_SIZES.get(flow, {}) | dict(settings or {})
        made = kind(features, contexts, **chosen).to(inputs)
        made.start_smoothly()
        return FlowEstimator(
            made,
            embedding,
            ZScore(inputs, z_score_input),
            input_shape=inputs.shape[1:],
            condition_shape=conditions.shape[1:],
            learning_rate=learning_rate,
        )

    return build


SIMULATION_SIZES: dict[str, dict[str, Any]] = {
    "bnaf": {"context_layers": 2, "context_width": 64},
}
"""Arguments of flows that suit simulations, where they are not those of the constructor."""


class ZScore(nn.Module):
    """Standardisation by the moments of a batch, in which constant columns only move.

    Args:
        batch: Rows of any shape.
        how: "independent" for moments of each entry, "structured" for those of all entries
            together, "none" for none.
    """

    location: Tensor
    scale: Tensor

    def __init__(self, batch: Tensor, how: str | None) -> None:
        super().__init__()
        rows = batch.detach()[torch.isfinite(batch).flatten(1).all(1)]
        location, scale = torch.zeros_like(batch[0]), torch.ones_like(batch[0])
        if how == "structured":
            # deviations of rows from their own means, as of a signal in time
            location, scale = location + rows.mean(), scale * rows.flatten(1).std(1).mean()
        elif how == "independent":
            location, scale = rows.mean(0), rows.std(0)
        scale = torch.where(scale > SMALLEST_DEVIATION, scale, 1.0)
        self.register_buffer("location", location)
        self.register_buffer("scale", scale)

    def forward(self, rows: Tensor) -> Tensor:
        """Return rows with a mean of 0 and a deviation of 1."""
        return (rows - self.location) / self.scale

    def invert(self, rows: Tensor) -> Tensor:
        """Return rows in their own units."""
        return rows * self.scale + self.location

    @property
    def log_det(self) -> Tensor:
        """Logarithm of how much densities grow in units of rows."""
        return -self.scale.log().sum()
