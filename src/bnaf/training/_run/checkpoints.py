"""Checkpoints: one safetensors file, replaced whole or not at all."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from bnaf.errors import StorageError
from bnaf._files import sync_folder

KEY = "bnaf.checkpoint"
VERSION = 2


class Checkpoint(NamedTuple):
    """All of a run: tensors by name, and facts that JSON can hold."""

    tensors: dict[str, Tensor]
    facts: dict[str, Any]


def check_checkpoint(path: Path) -> None:
    """Check, before the work is done, that a checkpoint can be written.

    Raises:
        StorageError: If it cannot.
    """
    if path.is_dir():
        raise StorageError(f"The checkpoint {path} must be a file, got a folder; add a name.")
    with _unfinished(path) as part:
        part.open("ab").close()


def write_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint so that a crash at any moment leaves the old file or the new one.

    Raises:
        StorageError: If it cannot be written.
    """
    tensors = {
        name: tensor.detach().cpu().contiguous().clone()
        for name, tensor in checkpoint.tensors.items()
    }
    facts = json.dumps({"version": VERSION, **checkpoint.facts})
    content = safetensors.torch.save(tensors, {KEY: facts})
    with _unfinished(path) as part:
        with part.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
        sync_folder(path.parent)


@contextmanager
def _unfinished(path: Path) -> Iterator[Path]:
    """Lend a path beside a checkpoint: one for all runs, so that killed ones leave one file."""
    part = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield part
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise StorageError(
            f"The checkpoint {path} cannot be written: {error}; check its folder."
        ) from None


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
