"""What the noise of a flow follows, where that is not the standard normal law."""

import math

import torch
from torch import nn

from bnaf.laws.bases import StudentRows

BASES = ("normal", "student")
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
