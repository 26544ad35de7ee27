"""Objectives: modules that take rows and return the loss."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from bnaf._checks import whole
from bnaf.errors import ShapeError
from bnaf.flows.bnaf import Flow

FLAT = 0.1  # share of an energy that the first step feels, where it is annealed


class Objective(nn.Module, ABC):
    """Module that takes rows and returns the loss in nats, a weighted mean over rows.

    As the whole computation stands in its forward, DDP and ``torch.compile`` see all of it. A
    subclass defines the loss of each row.

    Args:
        flow: What is trained.
    """

    draws: ClassVar[bool] = False
    """Whether the loss draws from torch's own generator, which is then lent a private state."""

    def __init__(self, flow: Flow) -> None:
        super().__init__()
        self.flow = flow

    @abstractmethod
    def losses(
        self,
        rows: Float[Tensor, "rows features"],
        context: Float[Tensor, "rows context_features"] | None,
    ) -> Float[Tensor, " rows"]:
        """Return the loss of each row, in nats."""

    def forward(
        self,
        rows: Float[Tensor, "rows features"],
        context: Float[Tensor, "rows context_features"] | None = None,
        weights: Float[Tensor, " rows"] | None = None,
    ) -> Float[Tensor, ""]:
        """Return the mean loss of the rows, weighted where there are weights."""
        losses = self.losses(rows, context)
        return losses.mean() if weights is None else (weights * losses).sum() / weights.sum()


class MaximumLikelihood(Objective):
    r"""Mean negative log-density of rows.

    .. math:: -\sum_i w_i \log p(x_i) \, / \sum_i w_i
    """

    def losses(
        self,
        rows: Float[Tensor, "rows features"],
        context: Float[Tensor, "rows context_features"] | None,
    ) -> Float[Tensor, " rows"]:
        losses: Tensor = -self.flow().log_prob(rows)
        return losses


class ConditionalLikelihood(Objective):
    r"""Mean negative log-density of rows given their contexts.

    .. math:: -\sum_i w_i \log p(x_i \mid c_i) \, / \sum_i w_i
    """

    def losses(
        self,
        rows: Float[Tensor, "rows features"],
        context: Float[Tensor, "rows context_features"] | None,
    ) -> Float[Tensor, " rows"]:
        losses: Tensor = -self.flow(context).log_prob(rows)
        return losses


class ReverseKL(Objective):
    r"""Divergence from a flow to the law of an energy, up to the logarithm of its normaliser.

    .. math:: \mathrm{E}_{z} [\log q(x) + U(x)], \qquad x = f^{-1}(z),
              \qquad \mathrm{KL} = \text{loss} + \log \int e^{-U}

    Its rows are draws of the base, as :class:`bnaf.training.BaseDraws` makes them; ``fit`` does
    so where it gets no rows. Build the flow with ``direction="sampling"``, whose draws are
    closed-form.

    A flow that gives up a mode early rarely finds it again, because it draws nothing there. With
    ``anneal`` the energy starts flat, at a tenth of itself, and grows to all of itself over that
    many steps; losses that are evaluated, not trained on, always have all of it.

    Args:
        flow: What is trained.
        energy: The function U, from rows to one number each; a module's parameters are trained
            too, unless they are frozen.
        anneal: Steps over which the energy grows; 0 for none.

    Raises:
        SettingsError: If ``anneal`` is not a whole number of at least 0.
    """

    steps: Tensor

    def __init__(self, flow: Flow, energy: Callable[[Tensor], Tensor], *, anneal: int = 0) -> None:
        super().__init__(flow)
        self.energy = energy
        self.anneal = whole("anneal", anneal, least=0)
        if anneal:  # kept with the weights, so that a run that goes on knows where it stood
            self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def losses(
        self,
        rows: Float[Tensor, "rows features"],
        context: Float[Tensor, "rows context_features"] | None,
    ) -> Float[Tensor, " rows"]:
        law = self.flow(context)
        x, log_det = law.transform.inv.call_and_ladj(rows)
        energies = self.energy(x)
        if energies.shape != x.shape[:-1]:
            raise ShapeError(
                f"energy must return one number per row, shape {tuple(x.shape[:-1])}, "
                f"got shape {tuple(energies.shape)}."
            )
        if self.training and self.anneal:
            energies = energies * self._share()
        losses: Tensor = law.base.log_prob(rows) - log_det + energies
        return losses

    def _share(self) -> Float[Tensor, ""]:
        """Return how much of the energy this step feels, and count the step."""
        share = (FLAT + (1 - FLAT) * self.steps / self.anneal).clamp(max=1)
        self.steps += 1
        return share
