"""Checkpoints: one safetensors file, replaced whole or not at all."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from bnaf.errors import StorageError

KEY = "bnaf.checkpoint"
VERSION = 1


class Checkpoint(NamedTuple):
    """All of a run: tensors by name, and facts that JSON can hold."""

    tensors: dict[str, Tensor]
    facts: dict[str, Any]


def write_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint so that a crash at any moment leaves the old file or the new one."""
    tensors = {
        name: tensor.detach().cpu().contiguous().clone()
        for name, tensor in checkpoint.tensors.items()
    }
    facts = json.dumps({"version": VERSION, **checkpoint.facts})
    content = safetensors.torch.save(tensors, {KEY: facts})
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(path.name + ".part")
    with unfinished.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)
    if os.name == "posix":  # where a folder can be opened: its new entry must survive, too
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint.

    Raises:
        StorageError: If the file is damaged, or not a checkpoint of this version.
    """
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            facts = json.loads((file.metadata() or {}).get(KEY, "null"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (safetensors.SafetensorError, json.JSONDecodeError, OSError) as error:
        raise StorageError(f"{path} cannot be read as a checkpoint: {error}.") from error
    if not isinstance(facts, dict) or facts.get("version") != VERSION:
        found = facts.get("version") if isinstance(facts, dict) else "none"
        raise StorageError(f"{path} must be a checkpoint of version {VERSION}, got {found}.")
    return Checkpoint(tensors, facts)


def flatten_optimiser(optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the tensors an optimiser keeps, by number of the parameter and name."""
    state = optimiser.state_dict()["state"]
    return {
        f"{number}.{name}": value
        for number, values in state.items()
        for name, value in values.items()
    }


def restore_optimiser(optimiser: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Put back what :func:`flatten_optimiser` returned."""
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        number, name = key.split(".", 1)
        state.setdefault(int(number), {})[name] = value.clone()
    groups = optimiser.state_dict()["param_groups"]
    optimiser.load_state_dict({"state": state, "param_groups": groups})


def part(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the tensors whose name begins with a prefix, without it."""
    return {
        name.removeprefix(prefix): tensor
        for name, tensor in tensors.items()
        if name.startswith(prefix)
    }
