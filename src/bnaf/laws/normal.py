"""Probabilities of the standard normal law, exact in both tails."""

import math

import torch
from jaxtyping import Float
from torch import Tensor


def normal_cdf(z: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Return the probability of at most z; torch's own loses the digits of the lower tail.

    Example:
        >>> normal_cdf(torch.tensor([-8.0], dtype=torch.float64)) < 6.3e-16
        tensor([True])
    """
    return 0.5 * torch.erfc(-math.sqrt(0.5) * z)


def mean_score(scores: Float[Tensor, "*batch members"]) -> Float[Tensor, "*batch"]:
    """Return the normal score of the mean of normal probabilities."""
    above = scores.mean(-1, keepdim=True) > 0
    side = torch.where(above, -scores, scores)  # the smaller probabilities are the exact ones
    share = normal_cdf(side).mean(-1)
    # where all underflow, the nearest member tells
    least = torch.finfo(scores.dtype).tiny
    z = torch.where(share > least, torch.special.ndtri(share.clamp(min=least)), side.amax(-1))
    return torch.where(above.squeeze(-1), -z, z)
