"""The inverse of a planar transform along its normal, with all of its derivatives."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from bnaf.errors import InversionError

MAX_ITERATIONS = 200

Numbers = Float[Tensor, "..."]


def solve_along(target: Numbers, room: Numbers) -> Numbers:
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


def _slope(bent: Numbers, room: Numbers) -> Numbers:
    square = bent.square()
    return square + (1 - square) * room


@torch.no_grad()
def find_root(target: Numbers, room: Numbers) -> Numbers:
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
