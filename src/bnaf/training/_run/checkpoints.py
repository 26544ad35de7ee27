"""Checkpoints: one safetensors file, replaced whole or not at all."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from bnaf._files import check_place, stored_file
from bnaf.errors import StorageError

KEY = "bnaf.checkpoint"
VERSION = 3  # 3: settings leave nothing open, objective and rows have facts of their own


class Checkpoint(NamedTuple):
    """All of a run: tensors by name, and facts that JSON can hold."""

    tensors: dict[str, Tensor]
    facts: dict[str, Any]


def check_checkpoint(path: Path) -> None:
    """Check, before the work is done, that a checkpoint can be written, and make its folder.

    Raises:
        StorageError: If it cannot.
    """
    check_place(path, overwrite=True, make_folder=True)


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
    with stored_file(path) as file:
        file.write(content)


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
    if not isinstance(facts, dict) or facts.get("version") not in (2, VERSION):
        found = facts.get("version") if isinstance(facts, dict) else "none"
        raise StorageError(f"{path} must be a checkpoint of version {VERSION}, got {found}.")
    return Checkpoint(tensors, facts)


def find_difference(facts: Mapping[str, Any], here: dict[str, Any]) -> tuple[str, Any, Any] | None:
    """Return in what the run of a checkpoint is another: a name, what is there and what is here.

    Args:
        facts: Those of the checkpoint.
        here: Identity of the run at hand.
    """
    there = facts["identity"]
    ours = _flatten(here)
    theirs = _flatten(_upgrade(there) if facts["version"] == 2 else there)
    if facts["version"] == 2:  # what was left open is not told there
        theirs = {name: value for name, value in theirs.items() if value is not None}
        ours = {name: value for name, value in ours.items() if name in theirs}
    for name in sorted(theirs.keys() | ours.keys()):
        if theirs.get(name) != ours.get(name):
            return name, theirs.get(name), ours.get(name)
    return None


def _upgrade(identity: dict[str, Any]) -> dict[str, Any]:
    """Return the identity of a run of version 2 as it is told today."""
    name = str(identity["objective"]).replace("ConditionalLikelihood", "MaximumLikelihood")
    rows = {"seed": identity["seed"], "batch": identity["batch"], "fingerprint": identity["rows"]}
    return {
        "settings": identity["settings"],
        "flow": identity["flow"],
        "objective": {"name": name, "anneal": identity["anneal"]},
        "rows": rows,
        "valid": identity["valid"],
    }


def _flatten(facts: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in facts.items():
        nested = isinstance(value, dict)
        flat |= _flatten(value, f"{prefix}{name}.") if nested else {prefix + name: value}
    return flat


def flatten_optimiser(optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the tensors an optimiser keeps, by number of the parameter and name."""
    state = optimiser.state_dict()["state"]
    odd = {
        name
        for values in state.values()
        for name, value in values.items()
        if value is not None and not isinstance(value, Tensor)
    }
    if odd:
        raise StorageError(
            f"A checkpoint keeps tensors of the optimiser, got {', '.join(sorted(odd))} that are "
            "none; use an optimiser of torch."
        )
    return {
        f"{number}.{name}": value
        for number, values in state.items()
        for name, value in values.items()
        if isinstance(value, Tensor)
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
