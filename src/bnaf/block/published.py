"""State dicts of the authors' code."""

import re
from collections.abc import Mapping
from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor

from bnaf.errors import StorageError

_LAYER_KEY = re.compile(r"(\d+)\.(\d+)\.(_weight|_diag_weight|bias|mask_d|mask_o)")
_GATE_KEY = re.compile(r"(\d+)\.gate")


class PublishedLayer(NamedTuple):
    """Raw tensors of one affine layer."""

    weight: Float[Tensor, "rows columns"]
    log_gain: Float[Tensor, "rows 1"]
    bias: Float[Tensor, " rows"]


class PublishedFlow(NamedTuple):
    """What a state dict holds, with the sizes read off its tensors."""

    features: int
    widths: list[int]
    flows: list[list[PublishedLayer]]
    gates: list[Tensor]


def read_published(state_dict: Mapping[str, Tensor], residual: str | None) -> PublishedFlow:
    """Sort the tensors of a state dict by flow and layer.

    Raises:
        StorageError: If a tensor is missing, left over, or of the wrong shape.
    """
    sizes: dict[int, int] = {}
    for key in state_dict:
        layer, gate = _LAYER_KEY.fullmatch(key), _GATE_KEY.fullmatch(key)
        numbers = [int(number) for number in re.findall(r"\d+", key)]
        if (layer is None and gate is None) or any(number % 2 for number in numbers):
            raise StorageError(
                f"Key {key!r} is not of the authors' code, whose keys are like '0.2._weight'; "
                "give the state dict of the network alone."
            )
        if layer is not None:
            flow = int(layer[1]) // 2
            sizes[flow] = max(sizes.get(flow, 0), int(layer[2]) // 2 + 1)
    if not sizes or sorted(sizes) != list(range(len(sizes))) or len(set(sizes.values())) != 1:
        raise StorageError(
            "The state dict must hold flows '0', '2', '4', ... of equally many layers, "
            f"got layers per flow {dict(sorted(sizes.items()))}."
        )
    flows = [
        [_read_layer(state_dict, flow, layer) for layer in range(sizes[flow])]
        for flow in range(len(sizes))
    ]
    features = flows[0][0].weight.shape[-1] if flows[0][0].weight.dim() else 0
    for layers in flows:
        _check_chain(layers, features)
    widths, *others = (
        [layer.weight.shape[0] // features for layer in layers[:-1]] for layers in flows
    )
    if any(other != widths for other in others):
        raise StorageError(
            f"Expected flows of the same widths, got {[widths, *others]}; they are of one network."
        )
    return PublishedFlow(features, widths, flows, _read_gates(state_dict, residual, len(flows)))


def _read_gates(
    state_dict: Mapping[str, Tensor], residual: str | None, flows: int
) -> list[Tensor]:
    """Return the gates of all flows but the last, which has none."""
    found = {key for key in state_dict if _GATE_KEY.fullmatch(key)}
    if residual != "gated":
        if found:
            raise StorageError(
                f'The state dict has gates, but residual={residual!r}; say "gated".'
            )
        return []
    expected = [f"{2 * flow}.gate" for flow in range(flows - 1)]
    if left_over := sorted(found - set(expected)):
        raise StorageError(
            f"Expected gates {expected} of {flows} flows, of which the last has none, "
            f"got {', '.join(left_over)} as well."
        )
    return [_read(state_dict, key).reshape(()) for key in expected]


def _read(state_dict: Mapping[str, Tensor], key: str) -> Tensor:
    if key not in state_dict:
        raise StorageError(f"The state dict lacks {key!r}.")
    return state_dict[key]


def _read_layer(state_dict: Mapping[str, Tensor], flow: int, layer: int) -> PublishedLayer:
    prefix = f"{2 * flow}.{2 * layer}."
    names = ("_weight", "_diag_weight", "bias")
    return PublishedLayer(*(_read(state_dict, prefix + name) for name in names))


def _check_chain(layers: list[PublishedLayer], features: int) -> None:
    """Check that each layer takes what the one below gives, up to the features again."""
    columns = features
    for layer in layers:
        rows = layer.weight.shape[0] if layer.weight.dim() else 0
        shapes = [tuple(part.shape) for part in layer]
        if not features or shapes != [(rows, columns), (rows, 1), (rows,)] or rows % features:
            raise StorageError(
                f"Expected tensors of shapes (n, {columns}), (n, 1) and (n,) with n a multiple of "
                f"{features}, got {shapes}."
            )
        columns = rows
    if columns != features:
        raise StorageError(f"The last layer must give {features} features, got {columns}.")
