r"""The normal law: probabilities exact in both tails, also in logarithms with derivatives.

torch's own ``log_ndtr`` has gradients that vanish far out in float32, and no batching rule.
"""

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

LOG_ROOT_TWO_PI = 0.5 * math.log(2 * math.pi)
NEWTON_STEPS = 4  # from the starting points below they reach the last digit of float64
FAR = -5.0  # logarithm of a probability below which the expansion of the tail starts it

Elements = Float[Tensor, "..."]


def log_normal_density(x: Elements) -> Elements:
    """Return the logarithm of the standard normal density."""
    return -0.5 * x.square() - LOG_ROOT_TWO_PI


def log_standard_normal(rows: Float[Tensor, "... features"]) -> Elements:
    """Return the log-density of rows of independent standard normal columns."""
    return -0.5 * (rows.square().sum(-1) + rows.shape[-1] * math.log(2 * math.pi))


def normal_cdf(z: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Return the probability of at most z; torch's own loses the digits of the lower tail.

    Example:
        >>> normal_cdf(torch.tensor([-8.0], dtype=torch.float64)) < 6.3e-16
        tensor([True])
    """
    return 0.5 * torch.erfc(-math.sqrt(0.5) * z)


def log_ndtr(x: Elements) -> Elements:
    r"""Return :math:`\log \Phi(x)`.

    Example:
        >>> log_ndtr(torch.zeros(1)).exp()
        tensor([0.5000])
    """
    value: Tensor = _LogNdtr.apply(x)  # type: ignore[no-untyped-call]
    return value


def ndtri_exp(log_p: Elements) -> Elements:
    r"""Return z with :math:`\log \Phi(z) = \log p`, for p up to one half.

    Beyond one half ``log_p`` has too few digits; use that of the other tail, and minus its z.

    Example:
        >>> ndtri_exp(torch.tensor([-1000.0])).round()
        tensor([-45.])
    """
    value: Tensor = _NdtriExp.apply(log_p)  # type: ignore[no-untyped-call]
    return value


def mean_score(scores: Float[Tensor, "*batch members"]) -> Float[Tensor, "*batch"]:
    r"""Return the normal score of the mean of normal probabilities.

    .. math:: \log \Phi(z) = \log \tfrac1K \sum_k \Phi(z_k)

    or the same of the other tail, :math:`-z` and :math:`-z_k`, where that holds the smaller share.

    Example:
        >>> mean_score(torch.tensor([[-1000.0, -1000.0], [3.0, 3.0]])).round()
        tensor([-1000.,     3.])
    """
    below, above = (log_ndtr(side).logsumexp(-1) for side in (scores, -scores))
    lower = below <= above
    log_share = torch.where(lower, below, above) - math.log(scores.shape[-1])
    z = ndtri_exp(log_share)
    return torch.where(lower, z, -z)


class _Unary(torch.autograd.Function):
    """Function of each element by itself, whose derivative follows from input and value."""

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs, output)
        ctx.save_for_forward(*inputs, output)

    @staticmethod
    def slope(x: Tensor, value: Tensor) -> Tensor:
        """Return the derivative, by what can be differentiated again."""
        raise NotImplementedError

    @classmethod
    def backward(cls, ctx: Any, grad: Tensor) -> Tensor:
        return grad * cls.slope(*ctx.saved_tensors)

    @classmethod
    def jvp(cls, ctx: Any, tangent: Tensor) -> Tensor:
        return tangent * cls.slope(*ctx.saved_tensors)

    @classmethod
    def vmap(cls, info: Any, in_dims: tuple[int], x: Tensor) -> tuple[Tensor, int]:
        return cls.apply(x), in_dims[0]  # type: ignore[no-untyped-call]


class _LogNdtr(_Unary):
    @staticmethod
    def forward(x: Tensor) -> Tensor:
        value: Tensor = torch.special.log_ndtr(x)
        return value

    @staticmethod
    def slope(x: Tensor, value: Tensor) -> Tensor:
        return _Hazard.apply(x)  # type: ignore[no-any-return, no-untyped-call]


class _Hazard(_Unary):
    r"""The ratio :math:`r = \varphi(x) / \Phi(x)`, whose derivative is :math:`-r (x + r)`."""

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        ratio: Tensor = math.sqrt(2 / math.pi) / torch.special.erfcx(x * -math.sqrt(0.5))
        return ratio

    @staticmethod
    def slope(x: Tensor, value: Tensor) -> Tensor:
        return -value * (x + value)


class _NdtriExp(_Unary):
    @staticmethod
    def forward(log_p: Tensor) -> Tensor:
        return _find_quantile(log_p)

    @staticmethod
    def slope(x: Tensor, value: Tensor) -> Tensor:
        return 1 / _Hazard.apply(value)  # type: ignore[no-any-return, no-untyped-call]


def _find_quantile(log_p: Tensor) -> Tensor:
    r"""Return the quantile by Newton's method.

    It starts at torch's own, or in the tail at :math:`-\sqrt{t - \log t}` with
    :math:`t = -2 \log p - \log 2 \pi`.
    """
    tail = (-2 * log_p - 2 * LOG_ROOT_TWO_PI).clamp(min=1.0)
    far = -(tail - tail.log()).clamp(min=0.0).sqrt()
    z = torch.where(log_p < FAR, far, torch.special.ndtri(log_p.clamp(min=FAR).exp()))
    for _ in range(NEWTON_STEPS):
        z = z - (torch.special.log_ndtr(z) - log_p) / _Hazard.forward(z)
    return torch.where(log_p.isneginf(), log_p, z)
