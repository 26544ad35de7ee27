"""Deep dense sigmoidal functions as curves."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from bnaf.laws.affine import bounded
from bnaf.laws.curves import Curve, Elements, Numbers

Matrix = Float[Tensor, "_ _"]
Units = Float[Tensor, "... units"]


class SigmoidCurve(Curve):
    r"""Layers of mixtures of sigmoids, undone by a logit (Huang et al., 2018).

    .. math::
        h' = \operatorname{logit}(w \, \sigma(c)), \qquad c = a \odot (u h) + b

    from one number to one number, with log a bounded smoothly where the authors' code has a
    softplus, so that no slope vanishes, and the rows of w and u shares that sum to one.
    a, b and one vector each for w and u are predicted; matrices that are added to these before
    the shares are taken are the same for all rows. In logarithms throughout: h' is the
    logarithm of :math:`w \, \sigma(c)` less that of :math:`w \, \sigma(-c)`, so that tails are
    straight lines. With one layer, this is the deep sigmoidal flow.

    Args:
        inner: The matrix of u of each layer but the first, which has one input: (units, units).
        outer: The matrix of w of each layer, (outputs, units); the last has one output.
    """

    def __init__(self, inner: list[Matrix], outer: list[Matrix]) -> None:
        self.inner, self.outer = inner, outer
        self.units = outer[0].shape[1]
        self.numbers = self.units * (3 * len(outer) + len(inner))

    def start(self) -> Float[Tensor, " numbers"]:
        spread = torch.linspace(-2, 2, self.units) if self.units > 1 else torch.zeros(1)
        numbers = torch.zeros(self.numbers // self.units, self.units)
        numbers[1 : 3 * len(self.outer) : 3] = spread
        return numbers.flatten()

    def map(self, x: Elements, numbers: Numbers) -> tuple[Elements, Elements]:
        h, log_slope = x.unsqueeze(-1), torch.zeros_like(x).unsqueeze(-1)
        parts = iter(numbers.unflatten(-1, (-1, self.units)).unbind(-2))
        layers = [(next(parts), next(parts), next(parts), w) for w in self.outer]
        readings = [None, *zip(parts, self.inner, strict=True)]
        for reading, (raw_scale, bias, raw, w) in zip(readings, layers, strict=True):
            if reading is not None:
                h, log_slope = _mean(h, log_slope, *reading)
            log_scale = bounded(raw_scale)
            c = torch.addcmul(bias, log_scale.exp(), h)
            below, above = raw + F.logsigmoid(c), raw + F.logsigmoid(-c)
            rise = below + above - raw + log_scale + log_slope
            log_all, log_below, log_above, log_rise = _log_sums(
                torch.stack([raw, below, above, rise]), w.exp()
            )
            h, log_slope = log_below - log_above, log_rise + log_all - log_below - log_above
        return h.squeeze(-1), log_slope.squeeze(-1)


def _mean(
    h: Units, log_slope: Units, raw: Units, matrix: Matrix
) -> tuple[Float[Tensor, "... rows"], Float[Tensor, "... rows"]]:
    r"""Return u h, and the logarithm of u times the slopes.

    The shares u are :math:`\operatorname{softmax}_j(r_j + U_{ij})`. As :math:`e^{r_j + U_{ij}} =
    e^{r_j} e^{U_{ij}}`, the sums are products with one matrix for all rows.
    """
    shared = matrix.exp()
    weights = (raw - raw.amax(-1, keepdim=True).detach()).exp()
    mean = F.linear(weights * h, shared) / F.linear(weights, shared)
    log_rise, log_all = _log_sums(torch.stack([raw + log_slope, raw]), shared)
    return mean, log_rise - log_all


def _log_sums(terms: Units, shared: Matrix) -> Float[Tensor, "... rows"]:
    """Return the logarithms of sums of exponentials, each weighed by a row of a matrix."""
    largest = terms.amax(-1, keepdim=True).detach()
    return F.linear((terms - largest).exp(), shared).log() + largest
