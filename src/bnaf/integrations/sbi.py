"""Flows as density estimators of sbi: posteriors for NPE, likelihoods for NLE.

sbi takes one rate for all weights, and keeps it to the end. The weights of a block network live in
log space and want a rate a hundred times that of ordinary ones. So an estimator of this module
stores weights in units in which sbi's default rate suits them, and it is judged by, and draws
from, an average of the weights that it had, in place of a rate that falls.
"""

import copy
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from bnaf._checks import one_of
from bnaf._torch import kept_validation, lerp_all
from bnaf.errors import ShapeError
from bnaf.flows.flow import Flow
from bnaf.flows.registry import flow_named
from bnaf.laws.distribution import FlowDistribution

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
        with torch.no_grad():
            made.see_contexts(embedding(conditions))
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


class FlowEstimator(ConditionalDensityEstimator):
    """Conditional density of sbi, by a flow.

    While it trains it has the weights of the last step; otherwise, an average of those it had.

    Args:
        flow: The flow, which takes contexts.
        embedding: From conditions to contexts.
        z_score: Standardisation of inputs.
        input_shape: Shape of one input.
        condition_shape: Shape of one condition.
        learning_rate: Rate that the trainer has: weights are stored in units that suit it.
    """

    updates: Tensor

    def __init__(
        self,
        flow: Flow,
        embedding: nn.Module,
        z_score: ZScore,
        *,
        input_shape: torch.Size,
        condition_shape: torch.Size,
        learning_rate: float = SBI_RATE,
    ) -> None:
        network = _ConditionalLaw(flow, embedding)
        super().__init__(network, input_shape, condition_shape)
        self.z_score = z_score
        self.units = network.units(learning_rate)
        trained = {
            name.replace(".", "/"): nn.Parameter(weight.detach() / self.units[name])
            for name, weight in network.named_parameters()
        }
        self.trained = nn.ParameterDict(trained)
        self.register_buffer("updates", torch.zeros((), dtype=torch.int64))
        network.requires_grad_(False)  # it keeps the average

    @property
    def embedding_net(self) -> nn.Module:
        """From conditions to the contexts of the flow."""
        embedding: nn.Module = self.net.embedding
        return embedding

    def log_prob(self, input: Tensor, condition: Tensor) -> Tensor:
        """Return log-densities of shape (samples, batch).

        Args:
            input: Rows of shape ``(samples, batch, *input_shape)``, or without samples.
            condition: Conditions of shape ``(batch, *condition_shape)``, or with samples.

        Raises:
            ShapeError: If shapes are not those, or do not broadcast.
        """
        lead = self._lead(input, self.input_shape, "input")
        rows = self.z_score(input).reshape(*lead, -1)
        law = self._law(condition)
        if len(lead) == 1:
            rows = rows.unsqueeze(0)
        log_prob: Tensor = law.log_prob(rows) + self.z_score.log_det
        return log_prob

    def loss(self, input: Tensor, condition: Tensor) -> Tensor:
        """Return minus the log-density of each input given the condition of its own.

        Args:
            input: Rows of shape ``(batch, *input_shape)``.
            condition: Conditions of shape ``(batch, *condition_shape)``.
        """
        return -self.log_prob(input.unsqueeze(0), condition)[0]

    def sample(self, sample_shape: Any, condition: Tensor) -> Tensor:
        """Draw rows of shape ``(*sample_shape, batch, *input_shape)``.

        Args:
            sample_shape: How many, for each condition.
            condition: Conditions of shape ``(batch, *condition_shape)``.
        """
        rows = self._law(condition).sample(torch.Size(sample_shape))
        return self._in_units(rows)

    def sample_and_log_prob(self, sample_shape: Any, condition: Tensor) -> tuple[Tensor, Tensor]:
        """Draw rows as :meth:`sample` does, with their log-densities, from one pass."""
        rows, log_prob = self._law(condition).rsample_and_log_prob(torch.Size(sample_shape))
        return self._in_units(rows), log_prob + self.z_score.log_det

    def _in_units(self, rows: Tensor) -> Tensor:
        return self.z_score.invert(rows.reshape(*rows.shape[:-1], *self.input_shape))

    def _law(self, condition: Tensor) -> FlowDistribution:
        """Return the law given conditions, by the weights that count now."""
        lead = self._lead(condition, self.condition_shape, "condition")
        flat = condition.reshape(-1, *self.condition_shape)
        if not (self.training and torch.is_grad_enabled()):
            law: FlowDistribution = self.net(flat, lead)
            return law
        weights = {
            name: self.trained[name.replace(".", "/")] * unit for name, unit in self.units.items()
        }
        self._average(weights)
        law = torch.func.functional_call(self.net, weights, (flat, lead))
        return law

    @torch.no_grad()
    def _average(self, weights: Mapping[str, Tensor]) -> None:
        """Move the average towards the weights: the mean at first, later that of the last ones."""
        share = max(1 - AVERAGE, 1 / (int(self.updates) + 1))
        averages = dict(self.net.named_parameters())
        lerp_all(list(averages.values()), [weights[name].detach() for name in averages], share)
        self.updates += 1

    def _lead(self, tensor: Tensor, shape: torch.Size, name: str) -> torch.Size:
        """Return what stands before the shape of one entry."""
        lead = tensor.shape[: tensor.dim() - len(shape)]
        if tensor.shape[len(lead) :] != shape or len(lead) not in (1, 2):
            raise ShapeError(
                f"{name} must have shape (batch, {', '.join(map(str, shape))}), with samples in "
                f"front or without, got {tuple(tensor.shape)}."
            )
        return lead


class _ConditionalLaw(nn.Module):
    """From conditions to the law of a flow."""

    def __init__(self, flow: Flow, embedding: nn.Module) -> None:
        super().__init__()
        self.flow, self.embedding = flow, embedding

    def forward(self, condition: Tensor, lead: torch.Size) -> FlowDistribution:
        """Return the law of conditions that stand below each other, in the batch they had."""
        law: FlowDistribution = self.flow(self.embedding(condition).reshape(*lead, -1))
        return law

    def units(self, learning_rate: float) -> dict[str, float]:
        """Return units of all weights in which a rate is the one that each of them wants."""
        shares = {
            id(weight): share
            for share, weights in self.flow.rates().values()
            for weight in weights
        }
        units = dict.fromkeys((name for name, _ in self.named_parameters()), 1.0)
        for name, weight in self.flow.named_parameters():
            rate = self.flow.learning_rate * shares.get(id(weight), 1.0)
            units[f"flow.{name}"] = rate / learning_rate
        return units
