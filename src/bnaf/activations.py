r"""Increasing activations with their exact derivatives.

An activation gives its derivative in two forms. ``activation(h)`` returns
:math:`\log \sigma'(h)`, the readable one. Inside a network ``scaled_slope`` returns
:math:`\sigma'(h) e^{-m}` and the shift :math:`m` of each feature, so that the slopes of one
feature are multiplied as plain numbers that cannot all underflow; the shift is ``None`` where the
derivative is bounded away from zero.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from bnaf.errors import SettingsError
from bnaf.ops import transformed

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
    def scaled_slope(self, h: Units, y: Units) -> tuple[Units, Shift | None]:
        """Return the derivative at h times ``exp(-shift)``, and the shift; y is the value."""

    @abstractmethod
    def value(self, h: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Return the value alone."""


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

    def scaled_slope(self, h: Units, y: Units) -> tuple[Units, Shift]:
        if not h.requires_grad and not transformed():
            # the same number from |h| and |y| alone: 1 - y² = e^{-2|h|} (1 + |y|)²
            magnitude = h.abs()
            smallest = magnitude.amin(1, keepdim=True)
            slope = ((smallest - magnitude) * 2).exp() * (y.abs() + 1).square()
            return slope, -2 * smallest
        log_slope = self(h)[1]
        shift = log_slope.detach().amax(1, keepdim=True)
        return (log_slope - shift).exp(), shift


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

    def scaled_slope(self, h: Units, y: Units) -> tuple[Units, None]:
        bent = h.tanh()  # from y it would be lost where h is large
        return 1 + self.leak - bent * bent, None


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

    def scaled_slope(self, h: Units, y: Units) -> tuple[Units, None]:
        return torch.where(h > 0, torch.ones_like(h), self.leak), None


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
    if not 0 < leak < 1:
        raise SettingsError(f"leak must lie between 0 and 1, got {leak!r}.")
    return Tanh() if name == "tanh" else ACTIVATIONS[name](leak)  # type: ignore[call-arg]
