"""What the noise of a flow follows, where that is not the standard normal law."""

import math

import torch
from torch import Tensor, nn

from bnaf.laws.affine import ScaleTransform
from bnaf.laws.bases import StudentRows

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
    r"""Normal law of noise with a mean m and a deviation s for each feature.

    Neither is trained: they are there to be found by other rows than a flow was trained on. The
    noise of a law is standard normal all the same, :math:`(z - m) / s`.

    Args:
        features: Number of columns of a row.
    """

    location: Tensor
    log_scale: Tensor

    def __init__(self, features: int) -> None:
        super().__init__()
        self.register_buffer("location", torch.zeros(features))
        self.register_buffer("log_scale", torch.zeros(features))

    def forward(self) -> ScaleTransform:
        """Return the map to standard normal noise."""
        return ScaleTransform(-self.log_scale, -self.location * (-self.log_scale).exp())
