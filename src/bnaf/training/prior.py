"""A Gaussian prior of the weights, by its gradient."""

from collections.abc import Sequence

import torch
from torch import nn

from bnaf.flows.flow import Pull
from bnaf.training.objectives import Objective

MATRIX_PRECISION = 2.0  # of the entries of a matrix, per column that it mixes


class Prior:
    r"""Pull of the weights towards where they started, or to where their flow says.

    .. math:: \nabla \frac{1}{n} \sum_j \frac{\tau_j}{2} (\theta_j - \theta_j^0)^2

    is the gradient of a Gaussian log-prior of precisions :math:`\tau`, per row of n. Precisions
    are 1, for the entries of matrices twice the number of columns that the matrix mixes: so that
    a unit with many inputs is not freer than one with few.

    Args:
        objective: What the parameters belong to.
        parameters: What is pulled.
        strength: The share 1 / n, times how strong the pull is.
    """

    def __init__(
        self, objective: Objective, parameters: Sequence[nn.Parameter], strength: float
    ) -> None:
        mixed = {
            part.weight: part.in_features
            for part in objective.modules()
            if isinstance(part, nn.Linear)
        }
        known = objective.pulls()
        pulls = [
            known[parameter]
            if parameter in known
            else Pull(
                parameter.detach().clone(),
                MATRIX_PRECISION * mixed[parameter] if parameter in mixed else 1.0,
            )
            for parameter in parameters
        ]
        self.parameters = list(parameters)
        self.centres = [pull.centre for pull in pulls]
        self.strengths = [strength * pull.precision for pull in pulls]

    @torch.no_grad()
    def add_gradient(self) -> None:
        """Add the gradient of the prior to those of the parameters."""
        for parameter, centre, strength in zip(
            self.parameters, self.centres, self.strengths, strict=True
        ):
            if parameter.grad is not None:
                parameter.grad.add_(parameter - centre, alpha=strength)
