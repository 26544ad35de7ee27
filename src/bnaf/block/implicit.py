"""The inverse of one network, with its gradient by the implicit function theorem."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from bnaf.block import engine
from bnaf.block.inverse import solve_transposed
from bnaf.block.weights import Networks, Numbers
from bnaf.errors import InversionError


def invert_with_gradient(
    networks: Networks, y: Tensor, *, ladj: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Return what :func:`bnaf.block.engine.invert` does for one network, with gradients."""
    networks = networks.spread()
    return _Inverse.apply(networks, ladj, y, *networks.numbers.leaves)  # type: ignore[no-any-return, no-untyped-call]


class _Inverse(torch.autograd.Function):
    r"""With :math:`x = f^{-1}(y; \theta)` and incoming gradient g, solve :math:`J^\top w = g`.

    Then w is the gradient for y, and one vector-Jacobian product of f with -w gives that for
    :math:`\theta`, and with it that of the log-determinant at x, where that was asked for: then
    the one forward pass that gave it is the one that is differentiated.
    """

    @staticmethod
    def forward(
        ctx: Any, networks: Networks, ladj: bool, y: Tensor, *leaves: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        networks = networks.replace(Numbers.of(leaves))
        x, log_det, inside = engine.invert(networks, y)
        ctx.networks, ctx.ladj = networks, ladj
        ctx.save_for_backward(x, inside, *leaves)
        ctx.mark_non_differentiable(inside)
        ctx.again = None
        if ladj:
            ctx.again = _Again(networks, x, leaves)
            log_det = ctx.again.log_det.detach()
        return x, log_det, inside

    @staticmethod
    def backward(ctx: Any, grad_x: Tensor, grad_log_det: Tensor, _: Any) -> Any:
        if torch.is_grad_enabled():
            raise InversionError(
                "Numerical inverses can be differentiated once; drop create_graph=True, or use "
                'direction="sampling", whose samples are closed-form.'
            )
        x, inside, *leaves = ctx.saved_tensors
        again = ctx.again or _Again(ctx.networks, x, leaves)
        grad_x, grad_log_det = grad_x * inside.unsqueeze(1), grad_log_det * inside
        if ctx.ladj:
            (through,) = torch.autograd.grad(
                again.log_det, again.x, grad_log_det, retain_graph=True, allow_unused=True
            )
            grad_x = grad_x if through is None else grad_x + through
        w = solve_transposed(again.networks, x.t(), grad_x.t()).t()
        outputs, cotangents = [again.y], [-w]
        if ctx.ladj:
            outputs, cotangents = [again.y, again.log_det], [-w, grad_log_det]
        wanted = [leaf for leaf in again.leaves if leaf is not None]
        grads = iter(
            torch.autograd.grad(outputs, wanted, cotangents, retain_graph=True, allow_unused=True)
        )
        return None, None, w, *(None if leaf is None else next(grads) for leaf in again.leaves)


class _Again:
    """The forward pass at the pre-images, with a graph of its own."""

    def __init__(self, networks: Networks, x: Tensor, leaves: Sequence[Tensor | None]) -> None:
        self.leaves = [None if leaf is None else leaf.detach().requires_grad_() for leaf in leaves]
        self.networks = networks.replace(Numbers.of(self.leaves))
        self.x = x.detach().requires_grad_()
        with torch.enable_grad():
            self.y, self.log_det = engine.propagate(self.networks, self.x)
