"""A Gaussian prior of the weights, by its gradient."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from bnaf.block.layers import BlockNetworks

FAN_IN = 2.0  # precision of a weight, per column that it is a weight of


class Prior:
    r"""Pull of the weights towards where they started.

    .. math:: \nabla \frac{1}{n} \sum_j \frac{\tau_j}{2} (\theta_j - \theta_j^0)^2

    is the gradient of a Gaussian log-prior of precisions :math:`\tau`, per row of n. Precisions
    are 1, for the entries of matrices twice the number of columns that the matrix mixes: so that
    a unit with many inputs is not freer than one with few. The raw weights of a block network are
    pulled towards zero instead, where columns do not depend on each other.

    Args:
        module: What the parameters belong to.
        parameters: What is pulled.
        strength: The share 1 / n, times how strong the pull is.
    """

    def __init__(
        self, module: nn.Module, parameters: Sequence[nn.Parameter], strength: float
    ) -> None:
        self.parameters: list[Tensor] = list(parameters)
        mixed: dict[Tensor, int] = {}
        zeros: set[Tensor] = set()
        for part in module.modules():
            if isinstance(part, BlockNetworks):
                mixed[part.weight] = part.features
                zeros.add(part.weight)
            elif isinstance(part, nn.Linear):
                mixed[part.weight] = part.in_features
        self.centres = [
            torch.zeros_like(parameter) if parameter in zeros else parameter.detach().clone()
            for parameter in self.parameters
        ]
        self.strengths = [
            strength * (FAN_IN * mixed[parameter] if parameter in mixed else 1.0)
            for parameter in self.parameters
        ]

    @torch.no_grad()
    def add_gradient(self) -> None:
        """Add the gradient of the prior to those of the parameters."""
        for parameter, centre, strength in zip(
            self.parameters, self.centres, self.strengths, strict=True
        ):
            if parameter.grad is not None:
                parameter.grad.add_(parameter - centre, alpha=strength)
