"""Transforms whose inverse is found by numbers, with its gradient by the implicit function."""

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor

from bnaf._torch import transformed
from bnaf.errors import InversionError
from bnaf.laws.transforms import Passage, Points, RowTransform


class SolvedTransform(RowTransform):
    r"""Bijection whose inverse has no formula; a subclass defines ``_map`` and ``_solve``.

    With :math:`f(x_0; \theta) = y` solved and J the Jacobian there, one step of Newton's method

    .. math:: x = x_0 - J^{-1} (f(x_0; \theta) - y)

    changes no digit of :math:`x_0`, and has its derivatives in y and :math:`\theta`. The
    constructor takes what that of :class:`bnaf.laws.transforms.RowTransform` does.
    """

    @abstractmethod
    def _solve(self, y: Points) -> Points:
        """Return the pre-images of finite rows, one for each context, without gradients."""

    def _invert(self, y: Points, *, ladj: bool) -> Passage:
        if transformed():
            raise InversionError(
                "Numerical inverses are differentiated by backward() or torch.autograd.grad, "
                'not by torch.func or forward mode; direction="sampling" has closed-form samples.'
            )
        batch = torch.broadcast_shapes(y.shape[:-1], self.context_batch)
        y = y.expand(*batch, -1)
        inside = y.isfinite().all(-1)
        y = torch.where(inside.unsqueeze(-1), y, 0.0)
        with torch.no_grad():
            x = self._solve(y.detach())
            inside = inside & x.isfinite().all(-1)  # others lie beyond all numbers
            x = torch.where(inside.unsqueeze(-1), x, 0.0)
        if torch.is_grad_enabled():
            x = self._attach(x, y)
        log_det = -self._map(x, ladj=True).log_det if ladj else y.new_zeros(batch)
        return Passage(x, log_det, inside)

    def _attach(self, x: Points, y: Points) -> Points:
        """Return the same pre-images with first derivatives."""
        error = self._map(x, ladj=False).rows - y
        if not error.requires_grad:
            return x
        step = torch.linalg.solve(self._jacobian(x), error.unsqueeze(-1)).squeeze(-1)
        once: Tensor = _Once.apply(x - step)  # type: ignore[no-untyped-call]
        return once

    def _jacobian(self, x: Points) -> Tensor:
        """Return the derivatives of every output of every row."""
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            outputs = self._map(x, ladj=False).rows.unbind(-1)
            rows = [torch.autograd.grad(y.sum(), x, retain_graph=True)[0] for y in outputs]
        return torch.stack(rows, -2)


class _Once(torch.autograd.Function):
    """The identity, which can be differentiated once: the step has no second derivatives."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            raise InversionError(
                "Numerical inverses can be differentiated once; drop create_graph=True, or use "
                'direction="sampling", whose samples are closed-form.'
            )
        return grad
