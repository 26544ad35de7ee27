"""State dicts and checkpoints of the authors' code."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from bnaf.errors import Argument, StorageError

_LAYER_KEY = re.compile(r"(\d+)\.(\d+)\.(_weight|_diag_weight|bias|mask_d|mask_o)")
_GATE_KEY = re.compile(r"(\d+)\.gate")
_MASKS = (".mask_d", ".mask_o")  # which follow from the sizes


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


def read_checkpoint(path: Path, *, averaged: bool = True) -> dict[str, Tensor]:
    """Return the state dict in a checkpoint of the authors' scripts; nothing in it is run.

    Their optimiser averages the weights as it goes, and the numbers that they report are those of
    the averages.

    Args:
        path: The file: a dict of "model", "optimizer" and "epoch", or a state dict alone.
        averaged: Whether to return the averages, rather than the weights of the last step.

    Raises:
        StorageError: If the file is no such checkpoint, or has no averages.
    """
    try:
        held = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a file that is none may end in any
        said = str(error).partition("\n")[0].partition(". ")[0]
        raise StorageError(
            f"{path.name} is no checkpoint of tensors alone ({said}); expected what the authors' "
            "scripts save."
        ) from None
    model = held.get("model", held) if isinstance(held, dict) else None
    if not isinstance(model, dict) or not all(isinstance(part, Tensor) for part in model.values()):
        raise StorageError(
            f"{path.name} holds no tensors by name; expected a checkpoint of the authors' scripts."
        )
    weights = {str(key): value for key, value in model.items() if not str(key).endswith(_MASKS)}
    if averaged and model is not held:
        weights = _averages(weights, held.get("optimizer"), path)
    _check_size(weights, path)
    return weights


def _averages(weights: dict[str, Tensor], optimizer: Any, path: Path) -> dict[str, Tensor]:
    """Return the averages that an optimiser keeps of weights, which it knows by number alone."""
    try:
        numbers = [number for group in optimizer["param_groups"] for number in group["params"]]
        found = [optimizer["state"][number]["exp_avg_param"] for number in numbers]
        averages = dict(zip(weights, found, strict=True))
        alike = all(averages[name].shape == weight.shape for name, weight in weights.items())
    except (KeyError, TypeError, ValueError, AttributeError):
        alike = False
    if not alike:
        raise StorageError(
            f"{path.name} has no averages of its weights; take those of the last step with ",
            Argument("averaged", False),
            ".",
        )
    return averages


def _check_size(weights: Mapping[str, Tensor], path: Path) -> None:
    """Check that tensors are no larger than the file: a few bytes may claim to be many."""
    claimed = sum(part.numel() * part.element_size() for part in weights.values())
    there = path.stat().st_size
    if claimed > there:
        raise StorageError(
            f"The tensors of {path.name} claim {claimed:,} bytes, and the file has {there:,}; it "
            "is not whole, or was made to mislead."
        )


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
