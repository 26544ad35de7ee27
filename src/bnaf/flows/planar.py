"""The planar flow."""

import math
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from bnaf.laws.roots import solve_along
from bnaf._checks import one_of, whole
from bnaf.laws.distribution import FlowDistribution, StandardNormal
from bnaf.flows.bnaf import DIRECTIONS, Flow
from bnaf.laws.transforms import (
    ComposeTransform,
    InverseTransform,
    Inversion,
    LogDet,
    Rows,
    RowTransform,
)

SHIFT = math.log(math.e - 1)  # softplus of it is 1


class Plane(NamedTuple):
    """Numbers of one planar transform, for all rows or, with a batch shape, for each."""

    u_hat: Float[Tensor, "*batch features"]
    w: Float[Tensor, "*batch features"]
    bias: Float[Tensor, "*batch"]
    room: Float[Tensor, "*batch"]
    """1 + wᵀû, which must be above 0; kept apart because it may be tiny."""


def constrain(
    u: Float[Tensor, "*batch features"], w: Float[Tensor, "*batch features"]
) -> tuple[Float[Tensor, "*batch features"], Float[Tensor, "*batch"]]:
    r"""Return the vector that makes a planar transform a bijection, and :math:`1 + w^\top \hat u`.

    .. math::
        \hat u = u + (m(w^\top u) - w^\top u) \frac{w}{\|w\|^2}, \qquad
        m(a) = -1 + \operatorname{softplus}(a + \log(e - 1))

    Rezende and Mohamed (2015) have m without the constant, which reaches the same maps. With it
    u = 0 is the identity, and :math:`\hat u` stays finite where w vanishes.
    """
    along = (w * u).sum(-1)
    room = F.softplus(along + SHIFT)
    square = w.square().sum(-1).clamp(min=torch.finfo(w.dtype).tiny)
    return u + ((room - 1 - along) / square).unsqueeze(-1) * w, room


class PlanarTransform(RowTransform):
    r"""Push of every row along one vector, by a function of its place along another.

    .. math::
        y = x + \hat u \tanh(w^\top x + b), \qquad
        \det J = 1 + (1 - \tanh^2(w^\top x + b)) \, w^\top \hat u

    The inverse is one equation in one unknown per row: with :math:`a = w^\top x + b`,
    :math:`a + w^\top \hat u \tanh a = w^\top y + b`.
    """

    def __init__(self, plane: Plane) -> None:
        super().__init__()
        self.plane = plane

    def _place(self, x: Rows) -> Float[Tensor, "..."]:
        return (x * self.plane.w).sum(-1) + self.plane.bias

    def _log_det(self, bent: Float[Tensor, "..."]) -> LogDet:
        """Return log det J, given the tanh."""
        return torch.lerp(self.plane.room, torch.ones_like(bent), bent.square()).log()

    def call_and_ladj(self, x: Rows) -> tuple[Rows, LogDet]:
        bent = self._place(x).tanh()
        return torch.addcmul(x, self.plane.u_hat, bent.unsqueeze(-1)), self._log_det(bent)

    def invert(self, y: Rows, *, ladj: bool = False) -> Inversion:
        target = self._place(y)
        inside = target.isfinite() & y.isfinite().all(-1)
        target = torch.where(inside, target, 0.0)
        bent = solve_along(target, self.plane.room.expand(target.shape)).tanh()
        x = torch.addcmul(y, self.plane.u_hat, bent.unsqueeze(-1), value=-1)
        return Inversion(x, self._log_det(bent), inside)


class Planar(Flow):
    r"""Planar flow (Rezende, Mohamed, 2015).

    The paper stacks K = 32 of these transforms, or 8, to match two-dimensional energies. With a
    context all of their numbers are predicted from it, by one linear map or a small network.

    Args:
        features: Number of columns of a row.
        context_features: Number of columns of a context; 0 for none.
        transforms: Number K of transforms.
        direction: Which side is closed-form: "density" (log_prob) or "sampling" (rsample), which
            is Rezende and Mohamed's.
        context_layers: Hidden layers of the context network; 0 makes it one linear map.
        context_width: Units of each of them.

    Example:
        >>> flow = Planar(2, transforms=32, direction="sampling")
        >>> x, log_prob = flow().rsample_and_log_prob((5,))
        >>> flow.parameter_count
        160
    """

    learning_rate = 0.03

    def __init__(
        self,
        features: int,
        context_features: int = 0,
        *,
        transforms: int = 32,
        direction: str = "density",
        context_layers: int = 0,
        context_width: int = 64,
    ) -> None:
        super().__init__(
            whole("features", features),
            whole("context_features", context_features, least=0),
        )
        self._settings: dict[str, Any] = {
            "features": features,
            "context_features": context_features,
            "transforms": whole("transforms", transforms),
            "direction": one_of("direction", direction, DIRECTIONS),
            "context_layers": whole("context_layers", context_layers, least=0),
            "context_width": whole("context_width", context_width),
        }
        numbers = self._draw_numbers(transforms)
        self.numbers: nn.Parameter | None = None
        self.conditioner: nn.Sequential | None = None
        if context_features:
            self.conditioner = self._draw_conditioner(numbers)
        else:
            self.numbers = nn.Parameter(numbers)

    def _draw_numbers(self, transforms: int) -> Float[Tensor, "transforms numbers"]:
        """Draw u, w and b of every transform, near the identity."""
        u = 0.1 * torch.randn(transforms, self.features)
        w = torch.randn(transforms, self.features) / math.sqrt(self.features)
        return torch.cat([u, w, torch.randn(transforms, 1)], 1)

    @torch.no_grad()
    def _draw_conditioner(self, numbers: Float[Tensor, "transforms numbers"]) -> nn.Sequential:
        """Draw the context network; it starts near numbers that do not depend on the context."""
        modules: list[nn.Module] = []
        inputs, width = self.context_features, self._settings["context_width"]
        for _ in range(self._settings["context_layers"]):
            modules += [nn.Linear(inputs, width), nn.SiLU()]
            inputs = width
        prediction = nn.Linear(inputs, numbers.numel())
        nn.init.normal_(prediction.weight, std=0.1 / math.sqrt(inputs))
        prediction.bias.copy_(numbers.flatten())
        return nn.Sequential(*modules, prediction)

    @property
    def settings(self) -> dict[str, Any]:
        return dict(self._settings)

    @property
    def parameter_count(self) -> int:
        return sum(parameter.numel() for parameter in self.parameters())

    def law(self, context: Float[Tensor, "*batch context_features"] | None) -> FlowDistribution:
        transform: RowTransform = ComposeTransform(
            [PlanarTransform(plane) for plane in self._planes(context)]
        )
        if self._settings["direction"] == "sampling":
            transform = InverseTransform(transform)
        batch = context.shape[:-1] if context is not None else torch.Size(())
        base = StandardNormal(self.features, next(self.parameters()))
        return FlowDistribution(transform, base, batch)

    def _planes(self, context: Tensor | None) -> list[Plane]:
        if self.numbers is not None:
            numbers = self.numbers
        else:
            assert self.conditioner is not None
            numbers = self.conditioner(context).unflatten(-1, (self._settings["transforms"], -1))
            numbers = numbers.movedim(-2, 0)
        u, w, bias = numbers.split([self.features, self.features, 1], -1)
        u_hat, room = constrain(u, w)
        parts = (u_hat, w, bias.squeeze(-1), room)
        return [Plane(*plane) for plane in zip(*(part.unbind() for part in parts), strict=True)]
