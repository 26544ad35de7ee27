"""Objectives: modules that take a batch and return the loss."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from bnaf._checks import whole
from bnaf.errors import ShapeError
from bnaf.flows.flow import Flow, Pull
from bnaf.flows.transformed import check_normal_base
from bnaf.training.batches import Batch, BatchSource, base_draws

FLAT = 0.1  # share of an energy that the first step feels, where it is annealed
LEARNING_RATE = 1e-3  # of a module that does not say


class Objective(nn.Module, ABC):
    """Module that takes a batch and returns the loss in nats, a weighted mean over its rows.

    As the whole computation stands in its forward, DDP and ``torch.compile`` see all of it. A
    subclass says what it trains, and the loss of each row; whatever a batch holds is at its hand.
    Its parameters are those of all modules that it has.
    """

    draws: ClassVar[bool] = False
    """Whether the loss draws: what torch draws in it then comes from a private generator. Where it
    is compiled, that holds of what laws and dropout of the library draw, and of nothing else. One
    that draws by layers of dropout alone need not say so."""

    @property
    @abstractmethod
    def trained(self) -> nn.Module:
        """What :func:`bnaf.fit` is asked to train."""

    @abstractmethod
    def losses(self, batch: Batch) -> Float[Tensor, " rows"]:
        """Return the loss of each row, in nats."""

    @property
    def settings(self) -> dict[str, Any]:
        """What else the loss depends on, ready for JSON: runs that differ in it are not one."""
        return {}

    @property
    def features(self) -> int | None:
        """Number of columns of its rows; any by default."""
        return None

    @property
    def context_features(self) -> int | None:
        """Number of columns of its contexts; any by default."""
        return None

    def impossible(self, rows: Float[Tensor, "rows features"]) -> Bool[Tensor, "rows features"]:
        """Tell which values its rows cannot have: by default those that are not finite."""
        return ~rows.isfinite()

    @property
    def learning_rate(self) -> float:
        """Rate that suits what is trained."""
        return float(getattr(self.trained, "learning_rate", LEARNING_RATE))

    @property
    def counted_from(self) -> int:
        """Step from which on early stopping counts validation losses without improvement.

        An objective that changes in its first steps says when that is over; by default it does
        not.
        """
        return 0

    def make_rows(self, batch: int, seed: int) -> BatchSource | None:
        """Return a source of the rows it needs, where no others are given; none by default."""
        return None

    def pulls(self) -> dict[nn.Parameter, Pull]:
        """Return the priors that the flows in it have of their own."""
        found: dict[nn.Parameter, Pull] = {}
        for module in self.modules():
            if isinstance(module, Flow):
                found |= module.pulls()
        return found

    def rates(self) -> dict[str, tuple[float, list[nn.Parameter]]]:
        """Return parameters of the flows in it that want another rate, by a name."""
        found: dict[str, tuple[float, list[nn.Parameter]]] = {}
        for module in self.modules():
            if isinstance(module, Flow):
                for name, (share, parameters) in module.rates().items():
                    found[name] = (share, [*found.get(name, (share, []))[1], *parameters])
        return found

    def forward(self, batch: Batch) -> Float[Tensor, ""]:
        """Return the mean loss of the rows, weighted where there are weights."""
        losses, weights = self.losses(batch), batch.weights
        return losses.mean() if weights is None else (weights * losses).sum() / weights.sum()


class FlowObjective(Objective):
    """Objective of a single flow.

    Args:
        flow: What is trained.
    """

    def __init__(self, flow: Flow) -> None:
        super().__init__()
        self.flow = flow

    @property
    def trained(self) -> nn.Module:
        """The flow."""
        return self.flow

    @property
    def features(self) -> int:
        """Number of features of the flow."""
        return self.flow.features

    @property
    def context_features(self) -> int:
        """Number of columns of its context."""
        return self.flow.context_features

    def impossible(self, rows: Float[Tensor, "rows features"]) -> Bool[Tensor, "rows features"]:
        """Tell which values the rows of the flow cannot have."""
        return self.flow.impossible(rows)


class MaximumLikelihood(FlowObjective):
    r"""Mean negative log-density of rows, given their contexts where the flow takes some.

    Rows that stand for cells count by the mean density of those.

    .. math:: -\sum_i w_i \log p(x_i \mid c_i) \, / \sum_i w_i
    """

    def losses(self, batch: Batch) -> Float[Tensor, " rows"]:
        told = {name: batch.more[name] for name in ("fold", "cells") if name in batch.more}
        return self.flow.losses(batch.rows, batch.context, **told)


class ReverseKL(FlowObjective):
    r"""Divergence from a flow to the law of an energy, up to the logarithm of its normaliser.

    .. math:: \mathrm{E}_{z} [\log q(x) + U(x)], \qquad x = f^{-1}(z),
              \qquad \mathrm{KL} = \text{loss} + \log \int e^{-U}

    Its rows are draws of the base, as :func:`bnaf.training.base_draws` makes them; ``fit`` does
    so where it gets no rows. Build the flow with ``direction="sampling"``, whose draws are
    closed-form.

    A flow that gives up a mode early rarely finds it again, because it draws nothing there. With
    ``anneal`` the energy starts flat, at a tenth of itself, and grows to all of itself over that
    many steps; losses that are evaluated, not trained on, always have all of it.

    Of the gradient of :math:`\log q(x)` in the weights, the part that does not go through x has a
    mean of zero. With ``path_gradients`` it is left out: what is left vanishes where the flow is
    right, in every draw, and flows of many weights come closer in as many steps. Each step then
    takes a pass through the other way of the flow, too.

    Args:
        flow: What is trained.
        energy: The function U, from rows to one number each; a module's parameters are trained
            too, unless they are frozen.
        anneal: Steps over which the energy grows; 0 for none.
        path_gradients: Whether log-densities of draws take the weights as constants.

    Raises:
        SettingsError: If ``anneal`` is not a whole number of at least 0.
    """

    steps: Tensor

    def __init__(
        self,
        flow: Flow,
        energy: Callable[[Tensor], Tensor],
        *,
        anneal: int = 0,
        path_gradients: bool = False,
    ) -> None:
        super().__init__(flow)
        check_normal_base(flow, "ReverseKL")
        self.energy, self.path_gradients = energy, path_gradients
        self.anneal = whole("anneal", anneal, least=0)
        if self.anneal:  # kept with the weights, so that a run that goes on knows where it stood
            self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    @property
    def settings(self) -> dict[str, Any]:
        """Steps over which the energy grows, and which gradients are not whole."""
        paths = {"path_gradients": True} if self.path_gradients else {}
        return {"anneal": self.anneal, **paths}

    @property
    def counted_from(self) -> int:
        """Step by which the energy has grown."""
        return self.anneal

    def make_rows(self, batch: int, seed: int) -> BatchSource:
        """Return draws of the base."""
        return base_draws(self.features, batch=batch, seed=seed)

    def losses(self, batch: Batch) -> Float[Tensor, " rows"]:
        law = self.flow(batch.context)
        if self.path_gradients and self.training:
            x = law.transform.inv(batch.rows)
            log_prob = self.flow.constant(batch.context).log_prob(x)
        else:
            x, log_det = law.transform.inv.call_and_ladj(batch.rows)
            log_prob = law.base.log_prob(batch.rows) - log_det
        energies = self.energy(x)
        if energies.shape != x.shape[:-1]:
            raise ShapeError(
                f"energy must return one number per row, shape {tuple(x.shape[:-1])}, "
                f"got shape {tuple(energies.shape)}."
            )
        if self.training and self.anneal:
            energies = energies * self._share()
        losses: Tensor = log_prob + energies
        return losses

    def _share(self) -> Float[Tensor, ""]:
        """Return how much of the energy this step feels, and count the step."""
        share = (FLAT + (1 - FLAT) * self.steps / self.anneal).clamp(max=1)
        self.steps += 1
        return share
