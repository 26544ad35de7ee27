r"""Increasing activations with their exact derivatives.

An activation gives its derivative in two forms. ``activation(h)`` returns
:math:`\log \sigma'(h)`, the readable one. Inside a network ``bend`` returns
:math:`\sigma'(h) e^{-m}` and the shift :math:`m` of each feature, so that the slopes of one
feature are multiplied as plain numbers that cannot all underflow; the shift is ``None`` where the
derivative is bounded away from zero.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from bnaf._checks import between
from bnaf._torch import batched, differentiable_gradient, traced
from bnaf.errors import SettingsError

Units = Float[Tensor, "features width rows"]
Shift = Float[Tensor, "features 1 rows"]


class Activation(ABC):
    """Strictly increasing function applied to every unit."""

    bounded: bool
    """Whether the range is an interval rather than the whole line."""

    @abstractmethod
    def __call__(
        self, h: Float[Tensor, "..."]
    ) -> tuple[Float[Tensor, "..."], Float[Tensor, "..."]]:
        """Return the value and the logarithm of the derivative."""

    @abstractmethod
    def bend(self, h: Units) -> tuple[Units, Units, Shift | None]:
        """Return the value, the derivative times ``exp(-shift)``, and the shift."""

    @abstractmethod
    def value(self, h: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Return the value alone."""

    @abstractmethod
    def rise(self, h: Units, width: Units, side: int) -> Units:
        """Return how far the value moves from h to ``h + side * width``, without cancellation.

        Args:
            h: Where it starts.
            width: How far it goes, zero or more.
            side: 1 for up, -1 for down.
        """


@dataclass(frozen=True)
class Tanh(Activation):
    r"""The paper's activation; it maps the line onto (-1, 1).

    .. math:: \log \sigma'(h) = -2 \, (h - \log 2 + \operatorname{softplus}(-2h))
    """

    bounded = True

    def __call__(
        self, h: Float[Tensor, "..."]
    ) -> tuple[Float[Tensor, "..."], Float[Tensor, "..."]]:
        return h.tanh(), -2 * (h - math.log(2) + F.softplus(-2 * h, threshold=50))

    def value(self, h: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        return h.tanh()

    def rise(self, h: Units, width: Units, side: int) -> Units:
        return _tanh_rise(side * h, width)

    def bend(self, h: Units) -> tuple[Units, Units, Shift]:
        if traced():
            return self._bend(h)
        return _TanhBend.apply(self, h)  # type: ignore[no-any-return, no-untyped-call]

    def _bend(self, h: Units) -> tuple[Units, Units, Shift]:
        y, log_slope = self(h)
        shift = -2 * h.detach().abs().amin(1, keepdim=True)
        return y, (log_slope - shift).exp(), shift


class _TanhBend(torch.autograd.Function):
    r"""Value and scaled slope of tanh from :math:`1 - y^2 = e^{-2|h|} (1 + |y|)^2`."""

    @staticmethod
    def forward(ctx: Any, activation: Tanh, h: Tensor) -> Any:
        y, magnitude = h.tanh(), h.abs()
        smallest = magnitude.amin(1, keepdim=True)
        slope = magnitude.sub_(smallest).mul_(-2).exp_().mul_(y.abs().add_(1).square_())
        shift = smallest.mul_(-2)
        ctx.activation = activation
        ctx.save_for_backward(h, y, slope)
        ctx.mark_non_differentiable(shift)
        return y, slope, shift

    @staticmethod
    def backward(ctx: Any, grad_y: Tensor, grad_slope: Tensor, _: Any) -> Any:
        h, y, slope = ctx.saved_tensors
        if torch.is_grad_enabled() or batched(grad_y, grad_slope):
            grads = (grad_y, grad_slope)
            found = differentiable_gradient(
                lambda h: ctx.activation._bend(h)[:2], [h], [True], grads
            )
            return None, *found
        grad = torch.ops.aten.tanh_backward(grad_y, y)
        return None, grad.addcmul_(y * slope, grad_slope, value=-2)


@dataclass(frozen=True)
class LeakyTanh(Activation):
    r"""Hyperbolic tangent plus a small linear part, so that it is onto the line.

    .. math:: \sigma(h) = \tanh(h) + \epsilon h
    """

    leak: float = 0.01
    bounded = False

    def __call__(
        self, h: Float[Tensor, "..."]
    ) -> tuple[Float[Tensor, "..."], Float[Tensor, "..."]]:
        bent = h.tanh()
        return bent + self.leak * h, (1 + self.leak - bent.square()).log()

    def value(self, h: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        return h.tanh() + self.leak * h

    def rise(self, h: Units, width: Units, side: int) -> Units:
        return _tanh_rise(side * h, width) + self.leak * width

    def bend(self, h: Units) -> tuple[Units, Units, None]:
        bent = h.tanh()
        return bent + self.leak * h, 1 + self.leak - bent * bent, None


@dataclass(frozen=True)
class LeakyReLU(Activation):
    """Identity above zero, multiplication by ``leak`` below; onto, with a kink at zero."""

    leak: float = 0.01
    bounded = False

    def __call__(
        self, h: Float[Tensor, "..."]
    ) -> tuple[Float[Tensor, "..."], Float[Tensor, "..."]]:
        return self.value(h), torch.where(h > 0, torch.zeros_like(h), math.log(self.leak))

    def value(self, h: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        return F.leaky_relu(h, self.leak)

    def rise(self, h: Units, width: Units, side: int) -> Units:
        ahead = (-side * h).clamp(min=0)  # how far off the kink is
        before = torch.where(ahead <= width, ahead, width)
        steep, flat = (width - before, before) if side > 0 else (before, width - before)
        return steep + self.leak * flat

    def bend(self, h: Units) -> tuple[Units, Units, None]:
        return self.value(h), torch.where(h > 0, torch.ones_like(h), self.leak), None


def _tanh_rise(h: Units, width: Units) -> Units:
    r"""Return :math:`\tanh(h + \Delta) - \tanh(h)`, all factors of it positive.

    With :math:`q = e^{-2|h|}` and :math:`s = e^{-2 \Delta}` it is :math:`2 q (1 - s) / (1 + q)`
    divided by :math:`1 + q s` on the way out, where h is positive, and by :math:`q + s` on the way
    in.
    """
    outwards = h >= 0
    far = torch.where(outwards, h, -h)  # with a derivative at zero, too
    decay = (-2 * far).exp()
    # q / (q + s) as it stands even where both underflow
    inwards = (2 * (width - far)).sigmoid()
    share = torch.where(outwards, decay / (1 + (-2 * (far + width)).exp()), inwards)
    return 2 * -torch.expm1(-2 * width) * share / (1 + decay)


ACTIVATIONS: dict[str, type[Activation]] = {
    "tanh": Tanh,
    "leaky_tanh": LeakyTanh,
    "leaky_relu": LeakyReLU,
}


def activation_named(name: str, leak: float) -> Activation:
    """Return the activation of that name.

    Raises:
        SettingsError: If there is none, or the leak is not between 0 and 1.
    """
    if name not in ACTIVATIONS:
        raise SettingsError(
            f"activation must be one of {', '.join(map(repr, ACTIVATIONS))}, got {name!r}."
        )
    between("leak", leak, 0, 1)
    return Tanh() if name == "tanh" else ACTIVATIONS[name](leak)  # type: ignore[call-arg]
