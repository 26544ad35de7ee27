"""Checkpoints: one safetensors file, replaced whole or not at all."""

import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from bnaf._digest import digest_contents
from bnaf._files import check_place, stored_file
from bnaf.errors import BnafError, StorageError

KEY = "bnaf.checkpoint"
DIGEST = "sha256"
VERSION = 4  # 4: with a digest; 3: settings leave nothing open, objective and rows have facts
READ = (2, 3, VERSION)


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
    metadata = {KEY: facts, DIGEST: digest_contents(facts, tensors)}
    content = safetensors.torch.save(tensors, metadata)
    with stored_file(path) as file:
        file.write(content)


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint.

    Raises:
        StorageError: If the file is damaged, or not a checkpoint of this version.
    """
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        text = metadata.get(KEY, "null")
        digest = digest_contents(text, tensors)
        facts = json.loads(text)
    except (safetensors.SafetensorError, ValueError, TypeError, RuntimeError, OSError) as error:
        raise StorageError(
            f"{path} cannot be read as a checkpoint: {str(error)[:200]}. Remove it to start anew."
        ) from error
    version = facts.get("version") if isinstance(facts, dict) else None
    if version not in READ or (version == VERSION and DIGEST not in metadata):
        raise StorageError(
            f"{path} must be a checkpoint of version {VERSION}, got {version!r:.40}. Remove it to "
            "start anew."
        )
    if metadata.get(DIGEST, digest) != digest:
        raise StorageError(
            f"{path} was damaged after it was written: its digest is not the one expected. Remove "
            "it to start anew."
        )
    return Checkpoint(tensors, facts)


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Tell of a checkpoint that it does not fit the run, where something in it does not.

    Raises:
        StorageError: In place of what was raised.
    """
    try:
        yield
    except (LookupError, TypeError, ValueError, RuntimeError, AttributeError) as error:
        if isinstance(error, BnafError):
            raise
        raise StorageError(
            f"{path} is a checkpoint that does not fit this run: {str(error)[:200]}. Remove it to "
            "start anew."
        ) from None


def find_difference(
    facts: Mapping[str, Any], here: dict[str, Any], *, but: Collection[str] = ()
) -> tuple[str, Any, Any] | None:
    """Return in what the run of a checkpoint is another: a name, what is there and what is here.

    Args:
        facts: Those of the checkpoint.
        here: Identity of the run at hand.
        but: Names in which runs may differ.
    """
    there = facts["identity"]
    ours = _flatten(here)
    theirs = _flatten(_upgrade(there) if facts["version"] == 2 else there)
    if facts["version"] == 2:  # what was left open is not told there
        theirs = {name: value for name, value in theirs.items() if value is not None}
        ours = {name: value for name, value in ours.items() if name in theirs}
    for name in sorted((theirs.keys() | ours.keys()) - set(but)):
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
    weights = [weight for group in optimiser.param_groups for weight in group["params"]]
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        number, name = key.split(".", 1)
        shapes = ((), weights[int(number)].shape)
        if not value.is_floating_point() or value.shape not in shapes:
            raise ValueError(f"the optimiser's {name} is of {value.dtype} and {value.shape}")
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
