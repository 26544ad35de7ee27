"""Bijections of the space of rows, as torch transforms.

All keep the names of torch and zuko: ``transform(x)``, ``transform.inv(y)``,
``log_abs_det_jacobian`` and ``call_and_ladj``, which returns both from one pass. Nothing is
cached.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.distributions import constraints
from torch.distributions.transforms import Transform
from torch.utils._pytree import tree_flatten, tree_unflatten

from bnaf.activations import Activation
from bnaf.errors import InversionError
from bnaf.inversion import Residual, solve_network, solve_transposed
from bnaf.kernel import propagate
from bnaf.layers import NetworkWeights
from bnaf.ops import transformed
from bnaf.propagation import Modulation

Rows = Float[Tensor, "... features"]  # a context may broaden the batch
LogDet = Float[Tensor, "..."]
INVERSION_ELEMENTS = 2**23  # units times rows inverted at once where no gradient is kept


class Inversion(NamedTuple):
    """Pre-images of some rows."""

    x: Rows
    log_det: LogDet
    """log |det dy/dx| at x; zeros where it was not asked for."""
    inside: Bool[Tensor, "..."]
    """Which rows have a pre-image; x of the others has no meaning."""


class RowTransform(Transform):
    """Bijection between rows; a subclass defines ``call_and_ladj`` and ``invert``."""

    domain = codomain = constraints.real_vector
    bijective = True
    sign = +1

    @property
    def onto(self) -> bool:
        """Whether every row has a pre-image."""
        return True

    def call_and_ladj(self, x: Rows) -> tuple[Rows, LogDet]:
        """Return y and log |det dy/dx| from a single pass."""
        raise NotImplementedError

    def invert(self, y: Rows, *, ladj: bool = False) -> Inversion:
        """Return the pre-images of y, telling which rows have none."""
        raise NotImplementedError

    def _call(self, x: Rows) -> Rows:
        return self.call_and_ladj(x)[0]

    def _inverse(self, y: Rows) -> Rows:
        return reached(self.invert(y)).x

    def log_abs_det_jacobian(self, x: Rows, y: Rows) -> LogDet:
        return self.call_and_ladj(x)[1]

    @property
    def inv(self) -> "RowTransform":
        """The inverse, itself a transform."""
        return InverseTransform(self)

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = object.__hash__


def reached(inversion: Inversion) -> Inversion:
    """Return an inversion of which every row succeeded.

    Raises:
        InversionError: If a row has no pre-image.
    """
    inside = inversion.inside
    if not inside.all():
        raise InversionError(
            f"{int((~inside).sum())} of {inside.numel()} rows have no pre-image: they are not "
            "finite, or lie outside the range of a flow that is not onto. Draw with "
            'sample(..., outside="redraw"), or use activation="leaky_tanh" or a residual on every '
            "transform."
        )
    return inversion


class InverseTransform(RowTransform):
    """Inverse of another transform."""

    def __init__(self, forward: RowTransform) -> None:
        super().__init__()
        self.forward = forward

    def call_and_ladj(self, x: Rows) -> tuple[Rows, LogDet]:
        inversion = reached(self.forward.invert(x, ladj=True))
        return inversion.x, -inversion.log_det

    def invert(self, y: Rows, *, ladj: bool = False) -> Inversion:
        x, log_det = self.forward.call_and_ladj(y)
        return Inversion(x, -log_det, torch.ones_like(log_det, dtype=torch.bool))

    def _call(self, x: Rows) -> Rows:
        return reached(self.forward.invert(x)).x

    @property
    def inv(self) -> RowTransform:
        """The transform this is the inverse of."""
        return self.forward


class BlockAutoregressiveTransform(RowTransform):
    r"""Increasing autoregressive bijection computed by a block network, with an optional residual.

    .. math::
        \hat f(x) = \sigma(g) f(x) + (1 - \sigma(g)) x, \qquad
        \log \hat f' = \operatorname{softplus}(\log f' + g) - \operatorname{softplus}(g)

    Args:
        weights: Normalised weights of the network.
        activation: What stands between its layers.
        gate: The scalar g of a gated residual, infinity-free; ``None`` without a gate.
        residual: "gated", "normal" (f(x) + x) or ``None``.
        context: What a context does to every layer.
        context_batch: Batch shape of that context.
    """

    def __init__(
        self,
        weights: NetworkWeights,
        activation: Activation,
        *,
        gate: Float[Tensor, ""] | None = None,
        residual: str | None = None,
        context: tuple[Modulation, ...] | None = None,
        context_batch: Sequence[int] = (),
    ) -> None:
        super().__init__()
        self.weights, self.activation = weights, activation
        self.gate, self.residual = gate, residual
        self.context, self.context_batch = context, torch.Size(context_batch)

    @property
    def onto(self) -> bool:
        """Whether every row has a pre-image: with a residual, or an activation without bounds."""
        shallow = len(self.weights.layers) == 1
        return self.residual is not None or not self.activation.bounded or shallow

    def replace(
        self, weights: NetworkWeights, gate: Tensor | None
    ) -> "BlockAutoregressiveTransform":
        """Return the same transform with other tensors and without a context."""
        return BlockAutoregressiveTransform(
            weights, self.activation, gate=gate, residual=self.residual
        )

    def call_and_ladj(self, x: Rows) -> tuple[Rows, LogDet]:
        columns, batch, context = self._flatten(x)
        y, log_slope = self._apply(columns, context)
        return y.t().reshape(*batch, len(y)), log_slope.sum(0).reshape(batch)

    def _apply(self, x: Tensor, context: tuple[Modulation, ...] | None) -> tuple[Tensor, Tensor]:
        y, log_slope = propagate(self.weights, self.activation, x, context)
        if self.residual == "gated":
            assert self.gate is not None
            y = self.gate.sigmoid() * y + (-self.gate).sigmoid() * x
            log_slope = F.softplus(log_slope + self.gate) - F.softplus(self.gate)
        elif self.residual == "normal":
            y = x + y
            log_slope = F.softplus(log_slope)
        return y, log_slope

    def invert(self, y: Rows, *, ladj: bool = False) -> Inversion:
        if transformed():
            raise InversionError(
                "Numerical inverses are differentiated by backward() or torch.autograd.grad, "
                'not by torch.func or forward mode; direction="sampling" has closed-form samples.'
            )
        columns, batch, context = self._flatten(y)
        leaves, structure = tree_flatten((self.weights, self.gate, context))
        tensors = [leaf for leaf in leaves if leaf is not None]
        wanted = torch.is_grad_enabled() and any(part.requires_grad for part in (y, *tensors))
        if wanted:
            x, log_det, inside = _Inverse.apply(  # type: ignore[no-untyped-call]
                self, structure, ladj, columns, *leaves
            )
        else:
            x, log_det, inside = self._solve_in_parts(columns, context, ladj)
        x = x.t().reshape(*batch, len(x))
        return Inversion(x, log_det.reshape(batch), inside.reshape(batch))

    def _solve_in_parts(
        self, y: Tensor, context: tuple[Modulation, ...] | None, ladj: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Invert block after block of rows, so that memory stays bounded."""
        units = sum(layer.scale.shape[0] for layer in self.weights.layers)
        size = max(1, INVERSION_ELEMENTS // units)
        found: list[tuple[Tensor, Tensor, Tensor]] = []
        for start in range(0, max(1, y.shape[1]), size):
            rows = slice(start, start + size)
            part = _pick(context, rows)
            x, inside = solve_network(
                self.weights, self.activation, y[:, rows], self._mixture(), part
            )
            log_det = self._apply(x, part)[1].sum(0) if ladj else x.new_zeros(x.shape[1])
            found.append((x, log_det, inside))
        return tuple(torch.cat(parts, -1) for parts in zip(*found, strict=True))  # type: ignore[return-value]

    def _mixture(self) -> Residual:
        """Return the shares of the network and of the identity."""
        if self.residual == "gated":
            assert self.gate is not None
            return Residual(self.gate.sigmoid(), (-self.gate).sigmoid())
        return Residual(1.0, 1.0 if self.residual == "normal" else 0.0)

    def _flatten(
        self, x: Rows
    ) -> tuple[Float[Tensor, "features rows"], torch.Size, tuple[Modulation, ...] | None]:
        """Lay rows out features first, with the context expanded to as many rows."""
        batch = torch.broadcast_shapes(x.shape[:-1], self.context_batch)
        x = x.expand(*batch, x.shape[-1]).reshape(batch.numel(), x.shape[-1]).t()
        context = self.context
        if context is not None and self.context_batch.numel() > 1 and batch != self.context_batch:
            index = torch.arange(self.context_batch.numel(), device=x.device)
            index = index.view(self.context_batch).expand(batch).flatten()
            context = _pick(context, index)
        return x, batch, context


def _pick(
    context: tuple[Modulation, ...] | None, rows: Tensor | slice
) -> tuple[Modulation, ...] | None:
    """Return a context for some of its rows; one row serves all."""
    if context is None or context[0].bias.shape[1] == 1:
        return context
    return tuple(Modulation(*(part[:, rows] for part in layer)) for layer in context)


class _Inverse(torch.autograd.Function):
    r"""The inverse with its gradient by the implicit function theorem.

    With :math:`x = f^{-1}(y; \theta)` and incoming gradient g, solve :math:`J^\top w = g`; then w
    is the gradient for y, and one vector-Jacobian product of f with -w gives that for
    :math:`\theta`, and with it that of the log-determinant at x, where that was asked for.
    """

    @staticmethod
    def forward(
        ctx: Any,
        transform: BlockAutoregressiveTransform,
        structure: Any,
        ladj: bool,
        y: Tensor,
        *leaves: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        weights, gate, context = tree_unflatten(leaves, structure)
        plain = transform.replace(weights, gate)
        x, inside = solve_network(weights, plain.activation, y, plain._mixture(), context)
        ctx.transform, ctx.structure, ctx.ladj = transform, structure, ladj
        ctx.empty = [leaf is None for leaf in leaves]
        ctx.save_for_backward(x, inside, *(leaf for leaf in leaves if leaf is not None))
        ctx.mark_non_differentiable(inside)
        log_det = x.new_zeros(x.shape[1])
        if ladj:
            log_det = plain._apply(x, context)[1].sum(0)
        return x, log_det, inside

    @staticmethod
    def backward(ctx: Any, grad_x: Tensor, grad_log_det: Tensor, _: Any) -> Any:
        if torch.is_grad_enabled():
            raise InversionError(
                "Numerical inverses can be differentiated once; drop create_graph=True, or use "
                'direction="sampling", whose samples are closed-form.'
            )
        x, inside, *tensors = ctx.saved_tensors
        needed = [tensor.detach().requires_grad_(tensor.is_floating_point()) for tensor in tensors]
        filled = iter(needed)
        leaves = [None if empty else next(filled) for empty in ctx.empty]
        weights, gate, context = tree_unflatten(leaves, ctx.structure)
        transform = ctx.transform.replace(weights, gate)
        x = x.detach().requires_grad_()
        with torch.enable_grad():
            y, log_slope = transform._apply(x, context)
            log_det = log_slope.sum(0)
        grad_log_det = grad_log_det * inside
        grad_x = grad_x * inside
        if ctx.ladj:
            (through,) = torch.autograd.grad(
                log_det, x, grad_log_det, retain_graph=True, allow_unused=True
            )
            grad_x = grad_x if through is None else grad_x + through
        mixture = transform._mixture()
        w = solve_transposed(weights, transform.activation, x, grad_x, mixture, context)
        outputs, cotangents = ([y, log_det], [-w, grad_log_det]) if ctx.ladj else ([y], [-w])
        grads = iter(torch.autograd.grad(outputs, needed, cotangents, allow_unused=True))
        return None, None, None, w, *(None if empty else next(grads) for empty in ctx.empty)


class PermutationTransform(RowTransform):
    """Change of the order of the features."""

    def __init__(self, order: Int[Tensor, " features"]) -> None:
        super().__init__()
        self.order = order

    def call_and_ladj(self, x: Rows) -> tuple[Rows, LogDet]:
        zeros = x.new_zeros(x.shape[:-1])
        if torch.compiler.is_compiling():
            # as a product: compiled by torch 2.13, an indexed read together with gates gave wrong
            # gradients or corrupted memory; the cause inside the compiler is not known
            return x @ F.one_hot(self.order, x.shape[-1]).to(x.dtype).t(), zeros
        return x[..., self.order], zeros

    def invert(self, y: Rows, *, ladj: bool = False) -> Inversion:
        zeros = y.new_zeros(y.shape[:-1])
        return Inversion(
            y[..., self.order.argsort()], zeros, torch.ones_like(zeros, dtype=torch.bool)
        )


class ComposeTransform(RowTransform):
    """One transform after the other, the first of ``parts`` first."""

    def __init__(self, parts: Sequence[RowTransform]) -> None:
        super().__init__()
        self.parts = tuple(parts)

    @property
    def onto(self) -> bool:
        """Whether every part is."""
        return all(part.onto for part in self.parts)

    def call_and_ladj(self, x: Rows) -> tuple[Rows, LogDet]:
        log_det = x.new_zeros(())
        for part in self.parts:
            x, log_det_part = part.call_and_ladj(x)
            log_det = log_det + log_det_part
        return x, log_det

    def invert(self, y: Rows, *, ladj: bool = False) -> Inversion:
        log_det = y.new_zeros(y.shape[:-1])
        inside = torch.ones_like(log_det, dtype=torch.bool)
        for part in reversed(self.parts):
            y, log_det_part, inside_part = part.invert(y, ladj=ladj)
            inside = inside & inside_part
            log_det = log_det + log_det_part
        return Inversion(y, log_det, inside)
