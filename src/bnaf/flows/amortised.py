"""Networks from a context to all numbers of a flow."""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn


@torch.no_grad()
def make_predictor(
    numbers: Float[Tensor, "transforms numbers"], context_features: int, widths: Sequence[int]
) -> nn.Sequential:
    """Return a network from a context to all numbers of the transforms of a flow.

    It starts near numbers that do not depend on the context.

    Args:
        numbers: Those numbers, transform by transform.
        context_features: Number of columns of the context.
        widths: Units of its hidden layers; none make it one linear map.
    """
    modules: list[nn.Module] = []
    inputs = context_features
    for width in widths:
        modules += [nn.Linear(inputs, width), nn.SiLU()]
        inputs = width
    prediction = nn.Linear(inputs, numbers.numel())
    nn.init.normal_(prediction.weight, std=0.1 / math.sqrt(inputs))
    prediction.bias.copy_(numbers.flatten())
    return nn.Sequential(*modules, prediction)
