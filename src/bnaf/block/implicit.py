"""The inverse of one network, with its gradient by the implicit function theorem."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from bnaf._torch import flatten, unflatten
from bnaf.block import engine
from bnaf.block.inverse import solve_transposed
from bnaf.block.weights import Networks
from bnaf.errors import InversionError


def invert_with_gradient(
    networks: Networks, y: Tensor, *, ladj: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Return what :func:`bnaf.block.engine.invert` does for one network, with gradients."""
    leaves, structure = flatten(networks.numbers)
    return _Inverse.apply(networks, structure, ladj, y, *leaves)  # type: ignore[no-any-return, no-untyped-call]


def is_watched(networks: Networks, rows: Tensor) -> bool:
    """Tell whether a gradient may be asked of rows that pass through networks."""
    leaves, _ = flatten(networks.numbers)
    return torch.is_grad_enabled() and any(
        leaf.requires_grad for leaf in (rows, *leaves) if leaf is not None
    )


class _Inverse(torch.autograd.Function):
    r"""With :math:`x = f^{-1}(y; \theta)` and incoming gradient g, solve :math:`J^\top w = g`.

    Then w is the gradient for y, and one vector-Jacobian product of f with -w gives that for
    :math:`\theta`, and with it that of the log-determinant at x, where that was asked for: then
    the one forward pass that gave it is the one that is differentiated.
    """

    @staticmethod
    def forward(
        ctx: Any,
        networks: Networks,
        structure: Any,
        ladj: bool,
        y: Tensor,
        *leaves: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        networks = networks.replace(unflatten(leaves, structure))
        x, log_det, inside = engine.invert(networks, y)
        ctx.networks, ctx.structure, ctx.ladj = networks, structure, ladj
        ctx.empty = [leaf is None for leaf in leaves]
        ctx.save_for_backward(x, inside, *(leaf for leaf in leaves if leaf is not None))
        ctx.mark_non_differentiable(inside)
        ctx.again = None
        if ladj:
            ctx.again = _Again(ctx, x, [leaf for leaf in leaves if leaf is not None])
            log_det = ctx.again.log_det.detach()
        return x, log_det, inside

    @staticmethod
    def backward(ctx: Any, grad_x: Tensor, grad_log_det: Tensor, _: Any) -> Any:
        if torch.is_grad_enabled():
            raise InversionError(
                "Numerical inverses can be differentiated once; drop create_graph=True, or use "
                'direction="sampling", whose samples are closed-form.'
            )
        x, inside, *tensors = ctx.saved_tensors
        again = ctx.again or _Again(ctx, x, tensors)
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
        grads = iter(
            torch.autograd.grad(
                outputs, again.tensors, cotangents, retain_graph=True, allow_unused=True
            )
        )
        return None, None, None, w, *(None if empty else next(grads) for empty in ctx.empty)


class _Again:
    """The forward pass at the pre-images, with a graph of its own."""

    def __init__(self, ctx: Any, x: Tensor, tensors: Sequence[Tensor]) -> None:
        self.tensors = [
            tensor.detach().requires_grad_(tensor.is_floating_point()) for tensor in tensors
        ]
        filled = iter(self.tensors)
        leaves = [None if empty else next(filled) for empty in ctx.empty]
        self.networks = ctx.networks.replace(unflatten(leaves, ctx.structure))
        self.x = x.detach().requires_grad_()
        with torch.enable_grad():
            self.y, self.log_det = engine.propagate(self.networks, self.x)
