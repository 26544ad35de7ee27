"""Block autoregressive transforms: the stack of networks that a flow is made of."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten

from bnaf.block import kernels
from bnaf.block.activations import Activation
from bnaf._checks import check_rows
from bnaf.errors import InversionError
from bnaf.block.inverse import Residual, check_ended, solve_network, solve_transposed
from bnaf.block.layers import StackWeights
from bnaf.block.tensors import transformed
from bnaf.block.propagation import RESCALE_EVERY, Modulation, propagate
from bnaf.laws.transforms import (
    ComposeTransform,
    Inversion,
    LogDet,
    PermutationTransform,
    Rows,
    RowTransform,
    reorder,
)

INVERSION_ELEMENTS = 2**23  # units times rows inverted at once where no gradient is kept
Columns = Float[Tensor, "features rows"]
Contexts = tuple[tuple[Modulation, ...], ...]  # per network, what a context does to each layer


class BlockAutoregressiveTransform(RowTransform):
    r"""Increasing autoregressive networks, each with an optional residual, one after another.

    .. math::
        \hat f(x) = \sigma(g) f(x) + (1 - \sigma(g)) x, \qquad
        \log \hat f' = \operatorname{softplus}(\log f' + g) - \operatorname{softplus}(g)

    Args:
        weights: Normalised weights of the networks.
        blocks: Units per feature of every layer, inputs and outputs included.
        activation: What stands between their layers.
        residuals: Per network "gated", "normal" (f(x) + x) or ``None``.
        gates: The scalars g of the gated residuals, which come first.
        orders: Order of the features before each network but the first.
        contexts: What a context does to every layer of every network.
        context_batch: Batch shape of that context.
    """

    def __init__(
        self,
        weights: StackWeights,
        blocks: Sequence[int],
        activation: Activation,
        *,
        residuals: Sequence[str | None],
        gates: Float[Tensor, " _"] | None = None,
        orders: Int[Tensor, "_ features"] | None = None,
        contexts: Contexts | None = None,
        context_batch: Sequence[int] = (),
    ) -> None:
        super().__init__()
        self.weights, self.blocks, self.activation = weights, list(blocks), activation
        self.residuals, self.gates, self.orders = tuple(residuals), gates, orders
        self.contexts, self.context_batch = contexts, torch.Size(context_batch)

    @property
    def onto(self) -> bool:
        """Whether every row has a pre-image: with residuals, or an activation without bounds."""
        shallow = len(self.blocks) == 2
        return not self.activation.bounded or shallow or None not in self.residuals

    @property
    def _fits(self) -> tuple[int, Tensor]:
        """Number of features, and a tensor of the type and on the device of the weights."""
        return self.weights.log_slope.shape[1], self.weights.log_slope

    @property
    def parts(self) -> list[RowTransform]:
        """The networks as transforms of their own, with the permutations in between."""
        parts: list[RowTransform] = []
        for index, residual in enumerate(self.residuals):
            if index and self.orders is not None:
                parts.append(PermutationTransform(self.orders[index - 1]))
            parts.append(
                BlockAutoregressiveTransform(
                    self.weights.network(index),
                    self.blocks,
                    self.activation,
                    residuals=[residual],
                    gates=self.gates[index : index + 1] if residual == "gated" else None,  # type: ignore[index]
                    contexts=self.contexts and self.contexts[index : index + 1],
                    context_batch=self.context_batch,
                )
            )
        return parts

    def call_and_ladj(self, x: Rows) -> tuple[Rows, LogDet]:
        check_rows(x, *self._fits, "x")
        if self._by_kernel(x):
            rows = x if x.dim() == 2 else x.reshape(-1, x.shape[-1])
            y, log_det = native.propagate(
                self._plain,
                self._stack(),
                rows,
                self.gates,
                self.weights,
            )
            return (y, log_det) if x is rows else (y.view(x.shape), log_det.view(x.shape[:-1]))
        columns, batch, contexts = self._flatten(x)
        y, log_det = self._forward(columns, contexts)
        return y.t().reshape(*batch, len(y)), log_det.reshape(batch)

    def _forward(
        self, x: Columns, contexts: Contexts | None
    ) -> tuple[Columns, Float[Tensor, " rows"]]:
        """Return outputs and log-determinants by plain torch."""
        log_det = x.new_zeros(())
        for index, network in enumerate(self.weights.networks(self.blocks)):
            if index and self.orders is not None:
                x = reorder(x, self.orders[index - 1])
            y, log_slope = propagate(
                network, self.activation, x, None if contexts is None else contexts[index]
            )
            if self.residuals[index] == "gated":
                assert self.gates is not None
                gate = self.gates[index]
                x = gate.sigmoid() * y + (-gate).sigmoid() * x
                log_slope = F.softplus(log_slope + gate) - F.softplus(gate)
            elif self.residuals[index] == "normal":
                x, log_slope = x + y, F.softplus(log_slope)
            else:
                x = y
            log_det = log_det + log_slope.sum(0)
        return x, log_det

    def invert(self, y: Rows, *, ladj: bool = False) -> Inversion:
        if transformed():
            raise InversionError(
                "Numerical inverses are differentiated by backward() or torch.autograd.grad, "
                'not by torch.func or forward mode; direction="sampling" has closed-form samples.'
            )
        check_rows(y, *self._fits, "y")
        leaves, structure = tree_flatten((self.weights, self.gates, self.contexts))
        watched = torch.is_grad_enabled() and any(
            leaf.requires_grad for leaf in (y, *leaves) if leaf is not None
        )
        if len(self.residuals) > 1 and (watched or not self._by_kernel(y)):
            return ComposeTransform(self.parts).invert(y, ladj=ladj)
        columns, batch, contexts = self._flatten(y)
        if watched:
            leaves, structure = tree_flatten((self.weights, self.gates, contexts))
            x, log_det, inside = _Inverse.apply(  # type: ignore[no-untyped-call]
                self, structure, ladj, columns, *leaves
            )
        else:
            x, log_det, inside = self._solve_in_parts(columns, contexts, ladj)
        x = x.t().reshape(*batch, len(x))
        return Inversion(x, log_det.reshape(batch), inside.reshape(batch))

    def _solve(
        self, y: Columns, contexts: Contexts | None
    ) -> tuple[Columns, Bool[Tensor, " rows"]]:
        """Return pre-images, and which rows have one."""
        if self._by_kernel(y):
            x, inside, ended = native.invert(self._stack(), y.t(), self.gates, self.weights)
            check_ended(ended)
            return x.t(), inside
        (network,) = self.weights.networks(self.blocks)
        context = None if contexts is None else contexts[0]
        return solve_network(network, self.activation, y, self.mixture(), context)

    def _solve_in_parts(
        self, y: Columns, contexts: Contexts | None, ladj: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Invert block after block of rows, so that memory stays bounded."""
        size = max(1, INVERSION_ELEMENTS // self.weights.biases.shape[1])
        found: list[tuple[Tensor, Tensor, Tensor]] = []
        for start in range(0, max(1, y.shape[1]), size):
            rows = slice(start, start + size)
            part = _pick(contexts, rows)
            x, inside = self._solve(y[:, rows], part)
            log_det = x.new_zeros(x.shape[1])
            if ladj:
                log_det = self.replace(self.weights, self.gates, part).log_det(x)
            found.append((x, log_det, inside))
        return tuple(torch.cat(parts, -1) for parts in zip(*found, strict=True))  # type: ignore[return-value]

    def log_det(self, x: Columns) -> Float[Tensor, " rows"]:
        """Return log |det dy/dx| of columns, one context for all or one for each."""
        return self.call_and_ladj(x.t())[1]

    def mixture(self) -> Residual:
        """Return the shares of a single network and of the identity."""
        if self.residuals[0] == "gated":
            assert self.gates is not None
            return Residual(self.gates[0].sigmoid(), (-self.gates[0]).sigmoid())
        return Residual(1.0, 1.0 if self.residuals[0] == "normal" else 0.0)

    def replace(
        self, weights: StackWeights, gates: Tensor | None, contexts: Contexts | None
    ) -> "BlockAutoregressiveTransform":
        """Return the same transform with other tensors, the contexts being those of each row."""
        batch = () if contexts is None else torch.Size([contexts[0][0].bias.shape[1]])
        return BlockAutoregressiveTransform(
            weights,
            self.blocks,
            self.activation,
            residuals=self.residuals,
            gates=gates,
            orders=self.orders,
            contexts=contexts,
            context_batch=() if batch == (1,) else batch,
        )

    def _by_kernel(self, x: Tensor) -> bool:
        """Tell whether the compiled kernels can do it; they know no context."""
        if self.contexts is not None or not x.numel():
            return False
        shallow = len(self.blocks) <= RESCALE_EVERY
        return shallow and native.serves(x, self.weights.log_slope)

    def _plain(self, x: Tensor, gates: Tensor, *weights: Tensor) -> tuple[Tensor, Tensor]:
        """Return what the kernel does, as a function that torch differentiates to any order."""
        y, log_det = self.replace(StackWeights(*weights), gates, None)._forward(x.t(), None)
        return y.t(), log_det

    def _stack(self) -> native.Stack:
        return native.Stack(
            self.blocks,
            type(self.activation).__name__,
            getattr(self.activation, "leak", 0.0),
            self.residuals,
            self.weights.log_slope.new_empty(0, dtype=torch.long)
            if self.orders is None
            else self.orders,
        )

    def _flatten(self, x: Rows) -> tuple[Columns, torch.Size, Contexts | None]:
        """Lay rows out features first, with the context expanded to as many rows."""
        batch = torch.broadcast_shapes(x.shape[:-1], self.context_batch)
        x = x.expand(*batch, x.shape[-1]).reshape(batch.numel(), x.shape[-1]).t()
        contexts = self.contexts
        if contexts is not None and self.context_batch.numel() > 1 and batch != self.context_batch:
            index = torch.arange(self.context_batch.numel(), device=x.device)
            index = index.view(self.context_batch).expand(batch).flatten()
            contexts = _pick(contexts, index)
        return x, batch, contexts


def _pick(contexts: Contexts | None, rows: Tensor | slice) -> Contexts | None:
    """Return contexts for some of their rows; one row serves all."""
    if contexts is None or contexts[0][0].bias.shape[1] == 1:
        return contexts
    return tuple(
        tuple(Modulation(*(part[:, rows] for part in layer)) for layer in network)
        for network in contexts
    )


class _Inverse(torch.autograd.Function):
    r"""The inverse of one network with its gradient by the implicit function theorem.

    With :math:`x = f^{-1}(y; \theta)` and incoming gradient g, solve :math:`J^\top w = g`; then w
    is the gradient for y, and one vector-Jacobian product of f with -w gives that for
    :math:`\theta`, and with it that of the log-determinant at x, where that was asked for: then
    the one forward pass that gave it is the one that is differentiated.
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
        weights, gates, contexts = tree_unflatten(leaves, structure)
        x, inside = transform.replace(weights, gates, contexts)._solve(y, contexts)
        ctx.transform, ctx.structure, ctx.ladj = transform, structure, ladj
        ctx.empty = [leaf is None for leaf in leaves]
        ctx.save_for_backward(x, inside, *(leaf for leaf in leaves if leaf is not None))
        ctx.mark_non_differentiable(inside)
        ctx.again = None
        log_det = x.new_zeros(x.shape[1])
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
        grad_x, grad_log_det = grad_x * inside, grad_log_det * inside
        if ctx.ladj:
            (through,) = torch.autograd.grad(
                again.log_det, again.x, grad_log_det, retain_graph=True, allow_unused=True
            )
            grad_x = grad_x if through is None else grad_x + through
        transform = again.transform
        (network,) = transform.weights.networks(transform.blocks)
        context = None if transform.contexts is None else transform.contexts[0]
        w = solve_transposed(
            network, transform.activation, x, grad_x, transform.mixture(), context
        )
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
        self.transform = ctx.transform.replace(*tree_unflatten(leaves, ctx.structure))
        self.x = x.detach().requires_grad_()
        with torch.enable_grad():
            y, self.log_det = self.transform.call_and_ladj(self.x.t())
            self.y = y.t()
