"""Flows from settings that cannot be trusted: planned without memory, built only if they fit."""

from collections.abc import Mapping
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from bnaf._random import private_draws, without_draws
from bnaf._torch import copy_all
from bnaf.errors import StorageError
from bnaf.flows.flow import Flow
from bnaf.model._shapes import SHAPED

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
LEAST_SIZE, LARGEST_SIZE = 2**12, 2**20  # settings below are never too large, above always
FREE_CALLS, CALLS_PER_TENSOR = 20_000, 40  # of torch, in the constructor of a flow
MOST_TENSORS = 10_000

Shapes = Mapping[str, tuple[int, ...]]


class Allowance(TorchFunctionMode):
    """Limit to what is made within its block, for flows of so many tensors and elements.

    What is made has no values, and must be on the meta device.

    Args:
        tensors: Number of tensors that the finished flow may have.
        elements: Number of elements in all of them.
    """

    def __init__(self, tensors: int, elements: int) -> None:
        super().__init__()
        self.calls = FREE_CALLS + CALLS_PER_TENSOR * tensors
        self.elements = 2**20 + 16 * elements
        self.exceeded = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = SHAPED.get(func, func)(*args, **(kwargs or {}))
        self.calls -= 1
        if self.calls < 0 or (isinstance(result, Tensor) and result.numel() > self.elements):
            self.exceeded = True
            raise StorageError("The flow asks for more than it was allowed.")
        return result


def plan_flow(
    kind: type[Flow], settings: Mapping[str, Any], shapes: Shapes, name: str
) -> dict[str, Tensor]:
    """Return the state of a flow with these settings, as tensors without values.

    Args:
        kind: Class of the flow.
        settings: Its settings, as a file claims them. Whole numbers are sizes, except those whose
            names end in "seed".
        shapes: Shapes of the tensors of the file, which bound the sizes.
        name: What to call the file in messages.

    Raises:
        StorageError: If they are no settings of that flow, or make one too large for the file.
    """
    if len(shapes) > MOST_TENSORS:
        raise StorageError(
            f"{name} holds {len(shapes):,} tensors, expected {MOST_TENSORS:,} at most; it is no "
            "model file of this library."
        )
    elements = sum(map(prod, shapes.values()))
    allowance = Allowance(len(shapes), elements)
    try:
        for setting, value in settings.items():
            if not setting.endswith("seed"):
                _check_size(value, min(max(elements, LEAST_SIZE), LARGEST_SIZE))
        with torch.device("meta"), without_draws(), allowance:
            return kind(**settings).state_dict()
    except Exception as error:
        reason = "they ask for far more" if allowance.exceeded else str(error)[:200]
        raise StorageError(
            f"{name} has settings that make no {kind.__name__} of its {elements:,} numbers: "
            f"{reason}. Was it altered?"
        ) from None


def check_tensors(plan: Mapping[str, Tensor], shapes: Shapes, name: str) -> None:
    """Check that the tensors of a file are those of its flow.

    Raises:
        StorageError: If one is missing, left over or of another shape.
    """
    for tensor in [*plan, *shapes]:
        expected = tuple(plan[tensor].shape) if tensor in plan else None
        got = shapes.get(tensor)
        if expected != got:
            raise StorageError(
                f"{name} expects {_describe(expected)} {tensor[:60]!r}, got {_describe(got)}; its "
                "settings and its weights do not belong together."
            )


def build_flow(
    kind: type[Flow], settings: Mapping[str, Any], tensors: Mapping[str, Tensor], name: str
) -> Flow:
    """Return the flow with these settings and weights, of the type of the weights.

    Args:
        kind: Class of the flow.
        settings: Its settings, planned before.
        tensors: Its state, of the names and shapes that were planned.
        name: What to call the file in messages.

    Raises:
        StorageError: If the weights are of several floating-point types, of one unheard of, or
            whole or complex numbers, or not all of their values are possible.
    """
    types = {tensor.dtype for tensor in tensors.values() if tensor.is_floating_point()}
    if len(types) > 1 or not types <= set(FLOATS):
        raise StorageError(
            f"{name} expects weights of one floating-point type, got {sorted(map(str, types))}."
        )
    try:
        with torch.device("cpu"), without_draws(), private_draws():
            flow = kind(**settings).to(next(iter(types), torch.get_default_dtype()))
        state = flow.state_dict()  # torch's own way back takes time with the square of the layers
        for tensor, part in state.items():
            if part.dtype != tensors[tensor].dtype:
                raise TypeError(f"{tensor} is of {tensors[tensor].dtype}, expected {part.dtype}")
        with torch.no_grad():
            copy_all(list(state.values()), [tensors[tensor] for tensor in state])
    except (RuntimeError, TypeError, ValueError) as error:
        raise StorageError(f"{name} cannot be made into a flow: {str(error)[:200]}.") from None
    check_values(flow, name)
    return flow


def check_values(flow: Flow, name: str) -> None:
    """Check that all numbers of a flow are finite, and its orders of features permutations.

    Raises:
        StorageError: If some are not.
    """
    for tensor, values in flow.state_dict().items():
        if values.is_floating_point() and not values.isfinite().all():
            raise StorageError(
                f"{name} expects finite weights, got others in {tensor[:60]!r}; fit it again."
            )
    for place, part in flow.named_modules():  # flows may be made of others
        for tensor in part.order_buffers if isinstance(part, Flow) else ():
            orders = part.get_buffer(tensor)
            expected = torch.arange(orders.shape[-1], device=orders.device).expand_as(orders)
            if not torch.equal(orders.sort(-1).values, expected):
                told = f"{place}.{tensor}".lstrip(".")
                raise StorageError(
                    f"{name} expects orders of features in {told!r}, each a permutation, got "
                    "something else. Was it altered?"
                )


def _describe(shape: tuple[int, ...] | None) -> str:
    return "no tensor" if shape is None else f"a tensor of shape {shape}"


def _check_size(value: Any, largest: int) -> None:
    if isinstance(value, list | dict):
        if len(value) > largest:
            raise StorageError(f"a list of {len(value):,} is too long")
        for entry in value.values() if isinstance(value, dict) else value:
            _check_size(entry, largest)
    elif isinstance(value, int | float) and abs(value) > largest:
        raise StorageError(f"{value!r:.40} is too large")
