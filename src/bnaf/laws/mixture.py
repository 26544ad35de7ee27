"""Mixtures of normal laws as curves."""

import torch
from jaxtyping import Float
from torch import Tensor

from bnaf.laws.affine import bounded
from bnaf.laws.curves import Curve, Elements, Numbers
from bnaf.laws.normal import LOG_ROOT_TWO_PI, log_ndtr, ndtri_exp

LOG_DEVIATION_LIMIT = 7.0  # components down to a thousandth of a column's deviation
Parts = Float[Tensor, "... components"]
SPREAD = 0.9  # of the first means, in units of normal quantiles


class MixtureCurve(Curve):
    r"""Distribution function of a mixture of normal laws, followed by the normal quantile.

    .. math::
        y = \Phi^{-1}(F(x)), \qquad F(x) = \sum_k \pi_k \Phi(u_k), \qquad
        u_k = \frac{x - \mu_k}{\sigma_k}, \qquad
        \log \frac{dy}{dx} = \log F'(x) - \log \varphi(y)

    If y is standard normal, x follows the mixture. F is computed in the tail where it is small,
    in logarithms, so that y has all its digits however far out x lies. The log-density needs none
    of this: it is that of the mixture.

    Args:
        components: Number of normal laws.
    """

    def __init__(self, components: int) -> None:
        self.components = components
        self.numbers = 3 * components

    def start(self) -> Float[Tensor, " numbers"]:
        places = (torch.arange(self.components) + 0.5) / self.components
        means = SPREAD * torch.special.ndtri(places)
        deviation = 0.5 * (1 - means.square().mean()).log()  # that all of it has variance one
        return torch.cat([torch.zeros_like(means), means, deviation.expand_as(means)])

    def _components(self, x: Elements, numbers: Numbers) -> tuple[Parts, Parts, Elements]:
        """Return the logarithms of the weights, x in units of each, and its log-density."""
        logits, means, raw = numbers.chunk(3, -1)
        log_deviation = bounded(raw, LOG_DEVIATION_LIMIT)
        units = (x.unsqueeze(-1) - means) * (-log_deviation).exp()
        log_all = logits.logsumexp(-1)
        parts = torch.addcmul(logits - log_deviation, units, units, value=-0.5)
        log_density = parts.logsumexp(-1) - log_all - LOG_ROOT_TWO_PI
        return logits - log_all.unsqueeze(-1), units, log_density

    def log_density(self, x: Elements, numbers: Numbers) -> Elements:
        return self._components(x, numbers)[2]

    def map(self, x: Elements, numbers: Numbers) -> tuple[Elements, Elements]:
        log_weights, units, log_density = self._components(x, numbers)
        log_below = (log_weights + log_ndtr(units)).logsumexp(-1)
        log_above = (log_weights + log_ndtr(-units)).logsumexp(-1)
        low = log_below < log_above
        distance = ndtri_exp(torch.where(low, log_below, log_above))
        y = torch.where(low, distance, -distance)
        return y, log_density + 0.5 * y.square() + LOG_ROOT_TWO_PI
