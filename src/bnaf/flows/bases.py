"""What the noise of a flow follows, where that is not the standard normal law."""

import math

import torch
from torch import Tensor, nn

from bnaf.laws.bases import NormalRows, StudentRows

BASES = ("normal", "student", "scaled")
FIRST_DEGREES = 10.0  # close to normal, and far enough from it for gradients


class StudentBase(nn.Module):
    """Student's t for each feature, whose degrees of freedom are learned.

    Args:
        features: Number of columns of a row.
    """

    def __init__(self, features: int) -> None:
        super().__init__()
        self.log_degrees = nn.Parameter(torch.full((features,), math.log(FIRST_DEGREES)))

    def forward(self) -> StudentRows:
        """Return the law of the noise."""
        return StudentRows(self.log_degrees.exp())


class ScaledBase(nn.Module):
    """Normal law with a mean and a deviation for each feature, which are not trained.

    The transform of a flow could take them in as well. They stand apart so that they can be found
    by other rows than those that it was trained on.

    Args:
        features: Number of columns of a row.
    """

    location: Tensor
    log_scale: Tensor

    def __init__(self, features: int) -> None:
        super().__init__()
        self.register_buffer("location", torch.zeros(features))
        self.register_buffer("log_scale", torch.zeros(features))

    def forward(self) -> NormalRows:
        """Return the law of the noise."""
        return NormalRows(self.location, self.log_scale)
