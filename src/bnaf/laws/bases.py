"""Laws of noise: the standard normal one, and Student's t for heavy tails."""

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.distributions import Distribution, Independent, Normal, StudentT, constraints

from bnaf._random import draw_normal
from bnaf.laws.normal import log_standard_normal


class StandardNormal(Distribution):
    """Standard normal law of rows, with the dtype and device of a tensor.

    Args:
        features: Number of columns of a row.
        like: A tensor of the type and on the device wanted.
    """

    arg_constraints: dict[str, constraints.Constraint] = {}  # noqa: RUF012
    support = constraints.real_vector
    has_rsample = True

    def __init__(self, features: int, like: Float[Tensor, "*any"]) -> None:
        self.like = like
        super().__init__(torch.Size(()), torch.Size((features,)), validate_args=False)

    @property
    def mean(self) -> Float[Tensor, " features"]:
        """Zeros."""
        return self.like.new_zeros(self.event_shape)

    @property
    def variance(self) -> Float[Tensor, " features"]:
        """Ones."""
        return self.like.new_ones(self.event_shape)

    def rsample(self, sample_shape: Any = torch.Size()) -> Float[Tensor, "..."]:  # noqa: B008
        return draw_normal((*torch.Size(sample_shape), *self.event_shape), self.like)

    def log_prob(self, value: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        return log_standard_normal(value)

    def normal_scores(self, z: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Return z itself."""
        return z

    def from_normal_scores(self, scores: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Return the scores themselves."""
        return scores

    def entropy(self) -> Float[Tensor, ""]:
        return self.like.new_tensor(0.5 * self.event_shape[0] * (1 + math.log(2 * math.pi)))

    def expand(self, batch_shape: Any, _instance: Any = None) -> Distribution:
        normal = Normal(self.mean, self.variance, validate_args=False)
        return Independent(normal.expand((*batch_shape, *self.event_shape)), 1)


class StudentRows(Distribution):
    r"""Law of rows whose columns follow Student's t, each with degrees of freedom of its own.

    .. math:: \log p(z) = \sum_i \log t_{\nu_i}(z_i)

    Args:
        degrees: :math:`\nu`, above 0; the fewer, the heavier the tail of that column.
    """

    arg_constraints: dict[str, constraints.Constraint] = {}  # noqa: RUF012
    support = constraints.real_vector
    has_rsample = True

    def __init__(self, degrees: Float[Tensor, "*batch features"]) -> None:
        self.degrees = degrees
        super().__init__(degrees.shape[:-1], degrees.shape[-1:], validate_args=False)

    @property
    def mean(self) -> Float[Tensor, "*batch features"]:
        """Zeros, undefined up to one degree of freedom."""
        return self._columns.mean

    @property
    def variance(self) -> Float[Tensor, "*batch features"]:
        """Of each column; infinite up to two degrees of freedom, undefined up to one."""
        return self._columns.variance

    def rsample(self, sample_shape: Any = torch.Size()) -> Float[Tensor, "..."]:  # noqa: B008
        return self._columns.rsample(sample_shape)

    def log_prob(self, value: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        nu = self.degrees
        scale = ((nu + 1) / 2).lgamma() - (nu / 2).lgamma() - 0.5 * (math.pi * nu).log()
        return (scale - (nu + 1) / 2 * (value.square() / nu).log1p()).sum(-1)

    def entropy(self) -> Float[Tensor, "*batch"]:
        entropies: Tensor = self._columns.entropy()
        return entropies.sum(-1)

    @property
    def _columns(self) -> StudentT:
        return StudentT(self.degrees, validate_args=False)

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
