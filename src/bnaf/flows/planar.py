"""The planar flow."""

import math
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from bnaf._checks import whole
from bnaf.errors import InversionError
from bnaf.flows.amortised import make_predictor
from bnaf.flows.transformed import TransformFlow
from bnaf.laws.roots import MAX_ITERATIONS
from bnaf.laws.transforms import ComposeTransform, Passage, Points, RowTransform

SHIFT = math.log(math.e - 1)  # softplus of it is 1
Elements = Float[Tensor, "..."]


class Plane(NamedTuple):
    """Elements of one planar transform, for all rows or, with a batch shape, for each."""

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
        super().__init__(plane.w.shape[-1], plane.w, plane.bias.shape)
        self.plane = plane

    def _place(self, x: Points) -> Float[Tensor, "..."]:
        return (x * self.plane.w).sum(-1) + self.plane.bias

    def _log_det(self, bent: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Return log det J, given the tanh."""
        return torch.lerp(self.plane.room, torch.ones_like(bent), bent.square()).log()

    def _map(self, x: Points, *, ladj: bool) -> Passage:
        bent = self._place(x).tanh()
        y = torch.addcmul(x, self.plane.u_hat, bent.unsqueeze(-1))
        return Passage(y, self._log_det(bent))

    def _invert(self, y: Points, *, ladj: bool) -> Passage:
        target = self._place(y)
        inside = target.isfinite() & y.isfinite().all(-1)
        target = torch.where(inside, target, 0.0)
        bent = solve_along(target, self.plane.room.expand(target.shape)).tanh()
        x = torch.addcmul(y, self.plane.u_hat, bent.unsqueeze(-1), value=-1)
        return Passage(x, -self._log_det(bent), inside)


class Planar(TransformFlow):
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
    snapshots = True

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
        super().__init__(features, context_features, direction)
        self.transforms = whole("transforms", transforms)
        context_layers = whole("context_layers", context_layers, least=0)
        context_width = whole("context_width", context_width)
        numbers = self._draw_numbers(transforms)
        self.numbers: nn.Parameter | None = None
        self.conditioner: nn.Sequential | None = None
        if context_features:
            widths = [context_width] * context_layers
            self.conditioner = make_predictor(numbers, context_features, widths)
        else:
            self.numbers = nn.Parameter(numbers)

    def _draw_numbers(self, transforms: int) -> Float[Tensor, "transforms numbers"]:
        """Draw u, w and b of every transform, near the identity."""
        u = 0.1 * torch.randn(transforms, self.features)
        w = torch.randn(transforms, self.features) / math.sqrt(self.features)
        return torch.cat([u, w, torch.randn(transforms, 1)], 1)

    def make_transform(
        self, context: Float[Tensor, "*batch context_features"] | None
    ) -> RowTransform:
        return ComposeTransform([PlanarTransform(plane) for plane in self._planes(context)])

    def _planes(self, context: Tensor | None) -> list[Plane]:
        if self.numbers is not None:
            numbers = self.numbers.clone()  # a law is a snapshot of the weights
        else:
            assert self.conditioner is not None
            assert context is not None
            numbers = self.conditioner(context).to(context.dtype)  # autocast makes another of it
            numbers = numbers.unflatten(-1, (self.transforms, -1)).movedim(-2, 0)
        u, w, bias = numbers.split([self.features, self.features, 1], -1)
        u_hat, room = constrain(u, w)
        parts = (u_hat, w, bias.squeeze(-1), room)
        return [Plane(*plane) for plane in zip(*(part.unbind() for part in parts), strict=True)]


def solve_along(target: Elements, room: Elements) -> Elements:
    r"""Return a with :math:`a + (r - 1) \tanh a = t`, elementwise, with gradients of any order.

    The left side increases in a for every r above 0. By the implicit function theorem

    .. math::
        \frac{\partial a}{\partial t} = \frac{1}{g'}, \qquad
        \frac{\partial a}{\partial r} = -\frac{\tanh a}{g'}, \qquad
        g' = \tanh^2 a + r \, (1 - \tanh^2 a)

    Args:
        target: t.
        room: r, above 0, of the same shape.
    """
    root: Tensor = _Root.apply(target, room)  # type: ignore[no-untyped-call]
    return root


class _Root(torch.autograd.Function):
    """The root as a function that torch and torch.func can differentiate in both modes."""

    @staticmethod
    def forward(target: Tensor, room: Tensor) -> Tensor:
        return find_root(target, room)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(inputs[1], output)
        ctx.save_for_forward(inputs[1], output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        room, root = ctx.saved_tensors
        bent = root.tanh()
        grad = grad / _slope(bent, room)
        return grad, -grad * bent

    @staticmethod
    def jvp(ctx: Any, target: Tensor, room: Tensor) -> Tensor:
        at_room, root = ctx.saved_tensors
        bent = root.tanh()
        tangent: Tensor = (target - bent * room) / _slope(bent, at_room)
        return tangent

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, int | None], target: Tensor, room: Tensor
    ) -> tuple[Tensor, int]:
        moved = [
            tensor.unsqueeze(0) if dim is None else tensor.movedim(dim, 0)
            for tensor, dim in zip((target, room), in_dims, strict=True)
        ]
        return solve_along(*torch.broadcast_tensors(*moved)), 0


def _slope(bent: Elements, room: Elements) -> Elements:
    square = bent.square()
    return square + (1 - square) * room


@torch.no_grad()
def find_root(target: Elements, room: Elements) -> Elements:
    """Return the root by Newton's method within a bracket.

    tanh lies between -1 and 1, so the root is within ``|room - 1|`` of the target. A Newton step
    that leaves the bracket, or that has not halved the error, gives way to bisection.

    Raises:
        InversionError: If some root is not found, which takes a number that is not finite.
    """
    push = room - 1
    low, high = target - push.abs(), target + push.abs()
    root, previous = target.clone(), torch.full_like(target, torch.inf)
    done = torch.zeros_like(target, dtype=torch.bool)
    spacing, tiny = 2 * torch.finfo(target.dtype).eps, torch.finfo(target.dtype).tiny
    for _ in range(MAX_ITERATIONS):
        bent = root.tanh()
        error = (root - target) + push * bent
        low = torch.where(error < 0, root, low)
        high = torch.where(error > 0, root, high)
        newton = root - error / _slope(bent, room)
        within = (newton >= low) & (newton <= high)
        slow = error.abs() > 0.5 * previous
        previous = error.abs()
        close = error.abs() <= spacing * (root.abs() + (push * bent).abs()) + tiny
        close |= high - low <= spacing * root.abs() + tiny
        proposal = torch.where(within & ~slow, newton, low + (high - low) / 2)
        proposal = torch.where(close, torch.where(within, newton, root), proposal)
        root = torch.where(done, root, proposal)
        done |= close
        if done.all():
            return root
    raise InversionError(
        f"{int((~done).sum())} of {done.numel()} rows were not inverted within {MAX_ITERATIONS} "
        "steps; check the weights for values that are not finite."
    )
