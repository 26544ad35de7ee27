"""Every call into what torch and Fabric keep private, in one place, each with a test."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution

GAMMA_DRAWS = (torch._standard_gamma, torch._sample_dirichlet)
"""What torch's laws draw gamma and Dirichlet numbers by; both take a generator."""


def traced() -> bool:
    """Tell whether the values of tensors are out of reach.

    They are under torch.compile, torch.func, and where tensors are fake.
    """
    return torch.compiler.is_compiling() or transformed() or (dispatched() and _faked())


def transformed() -> bool:
    """Tell whether a transform of torch.func, or forward-mode autograd, is at work."""
    level = torch.autograd.forward_ad._current_level
    return torch._C._are_functorch_transforms_active() or level >= 0


def batched(*grads: Tensor) -> bool:
    """Tell whether gradients come many at a time, as ``is_grads_batched`` and vmap send them."""
    kinds = torch._C._functorch
    return any(kinds.is_legacy_batchedtensor(g) or kinds.is_batchedtensor(g) for g in grads)


def dispatched() -> bool:
    """Tell whether a mode looks at every operator, as those of fake tensors do."""
    return torch._C._len_torch_dispatch_stack() > 0


def _faked() -> bool:
    """Tell whether tensors have shapes alone."""
    return torch._guards.detect_fake_mode() is not None


def changes(tensor: Tensor) -> int | None:
    """Return how often a tensor was changed in place; ``None`` where torch does not tell.

    Torch's fused optimisers change tensors uncounted.
    """
    return None if traced() or tensor.is_inference() else tensor._version


def lerp_all(targets: list[Tensor], ends: list[Tensor], weight: float) -> None:
    """Move tensors towards others, in place and all at once."""
    torch._foreach_lerp_(targets, ends, weight)


def copy_all(targets: list[Tensor], sources: list[Tensor]) -> None:
    """Copy tensors into others, all at once."""
    torch._foreach_copy_(targets, sources)


def total_norm(tensors: list[Tensor]) -> Tensor:
    """Return the norm of all entries of tensors."""
    norm: Tensor = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(tensors)))
    return norm


def obeys_on_device(optimiser: torch.optim.Optimizer) -> bool:
    """Tell whether an optimiser can be told of its gradients as torch's gradient scaler does.

    One that can divides them by ``grad_scale``, and leaves everything as it is where
    ``found_inf`` is 1, without waiting for the device.
    """
    return bool(getattr(optimiser, "_step_supports_amp_scaling", False))


def loop_in_graph(
    condition: Callable[..., Tensor],
    body: Callable[..., tuple[Tensor, ...]],
    start: tuple[Tensor, ...],
) -> tuple[Tensor, ...]:
    """Return what is carried through a loop whose end depends on values, as one node of a graph.

    Args:
        condition: Whether to go on, from what is carried.
        body: From what is carried to the same one step later, no tensor of it an input.
        start: What is carried first.
    """
    from torch._higher_order_ops import while_loop

    found: tuple[Tensor, ...] = while_loop(condition, body, start)
    return found


@contextmanager
def kept_validation() -> Iterator[None]:
    """Leave torch's default for checking arguments of laws as it was: torch.compile changes it."""
    before = Distribution._validate_args
    try:
        yield
    finally:
        Distribution.set_default_validate_args(before)


def __getattr__(name: str) -> Any:
    """Make what needs Fabric when it is first asked for: its import takes a second."""
    if name != "QuietFabric":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from lightning_fabric import Fabric

    class QuietFabric(Fabric):
        """Fabric that looks for no callbacks of others: that takes longer than many a fit."""

        @staticmethod
        def _configure_callbacks(callbacks: Any) -> list[Any]:
            return list(callbacks or ())

    QuietFabric.__qualname__ = "QuietFabric"  # where processes that are started find it
    globals()[name] = QuietFabric
    return QuietFabric


def starts_processes(fabric: Any) -> bool:
    """Tell whether Fabric runs everything in new processes, none of them this one."""
    from lightning_fabric.strategies.launchers.multiprocessing import _MultiProcessingLauncher

    return isinstance(fabric.strategy.launcher, _MultiProcessingLauncher)


def differentiable_gradient(
    function: Callable[..., Sequence[Tensor]],
    inputs: Sequence[Tensor | None],
    needed: Sequence[bool],
    grads: Sequence[Tensor],
) -> list[Tensor | None]:
    """Return the vector-Jacobian product of a function as torch computes it, graph included.

    This is what a gradient of our own falls back on where it is itself to be differentiated.
    """
    again = torch.is_grad_enabled()
    with torch.enable_grad():
        # aliases: inputs may depend on one another, and only the direct paths count here
        aliases = [
            None
            if tensor is None
            else (tensor.view_as(tensor) if again else tensor.detach().requires_grad_(need))
            for tensor, need in zip(inputs, needed, strict=True)
        ]
        pairs = [
            (output, grad)
            for output, grad in zip(function(*aliases), grads, strict=True)
            if output.requires_grad
        ]
    chosen = zip(aliases, needed, strict=True)
    wanted = [alias for alias, need in chosen if need and alias is not None]
    if not pairs or not wanted:
        return [None] * len(inputs)
    outputs, cotangents = zip(*pairs, strict=True)
    found = iter(
        torch.autograd.grad(outputs, wanted, cotangents, create_graph=again, allow_unused=True)
    )
    return [next(found) if need else None for need in needed]
