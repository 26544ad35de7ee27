"""Student's t as a law of rows, for bases with heavy tails."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.distributions import Independent, StudentT


class StudentRows(Independent):
    r"""Law of rows whose columns follow Student's t, each with degrees of freedom of its own.

    .. math:: \log p(z) = \sum_i \log t_{\nu_i}(z_i)

    Args:
        degrees: :math:`\nu`, above 0; the fewer, the heavier the tail of that column.
    """

    def __init__(self, degrees: Float[Tensor, "*batch features"]) -> None:
        self.degrees = degrees
        super().__init__(StudentT(degrees, validate_args=False), 1, validate_args=False)

    def expand(self, batch_shape: Any, _instance: Any = None) -> "StudentRows":
        return StudentRows(self.degrees.expand(*batch_shape, *self.event_shape))

    def normal_scores(self, z: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Return the normal quantiles of the probabilities of at most z, without gradients."""
        from scipy import special

        # of the tail that z lies in, whose probability has all its digits
        tail = special.stdtr(*_arrays(self.degrees, -z.abs()))
        return torch.from_numpy(special.ndtri(tail)).to(z) * -z.detach().sign()

    def from_normal_scores(self, scores: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Return the rows whose normal scores these are, without gradients."""
        from scipy import special

        degrees, score = _arrays(self.degrees, -scores.abs())
        tail = special.stdtrit(degrees, special.ndtr(score))
        return torch.from_numpy(tail).to(scores) * -scores.detach().sign()


def _arrays(degrees: Tensor, values: Tensor) -> tuple[Any, Any]:
    """Return tensors as arrays of float64."""
    one, other = (tensor.detach().cpu().double().numpy() for tensor in (degrees, values))
    return one, other
