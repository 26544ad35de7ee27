"""Where a run takes place: Fabric, and what its processes agree on."""

import atexit
import os
from collections.abc import Sequence
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor

from bnaf import _torch
from bnaf.errors import SettingsError
from bnaf.training.settings import TrainingSettings


def make_fabric(
    settings: TrainingSettings, device: torch.device, loggers: Sequence[Any] = ()
) -> Fabric:
    """Return the Fabric of a run.

    Args:
        settings: Devices, nodes, strategy and precision.
        device: Where the flow lies, for what the settings leave open.
        loggers: Fabric's loggers.

    Raises:
        SettingsError: If Fabric knows no such devices, strategy or precision.
    """
    devices: Any = settings.devices
    nodes, strategy = settings.nodes, settings.strategy
    if devices is None and torch.distributed.is_torchelastic_launched():
        devices = int(os.environ["LOCAL_WORLD_SIZE"])
        nodes = int(os.environ["WORLD_SIZE"]) // devices
        strategy = "ddp" if strategy == "auto" else strategy
    if devices is None:
        devices = 1 if device.index is None else [device.index]
    try:
        fabric: Fabric = _torch.QuietFabric(
            accelerator=settings.accelerator or device.type,
            devices=devices,
            num_nodes=nodes,
            strategy=strategy,
            precision=settings.precision,
            loggers=list(loggers),
        )
    except (ValueError, TypeError, RuntimeError) as error:
        raise SettingsError(
            f"devices, nodes, strategy and precision must be what Fabric takes, got {devices!r}, "
            f"{nodes}, {strategy!r} and {settings.precision!r}: {error}"
        ) from None
    return fabric


def is_first_process() -> bool:
    """Tell whether this process was not started as one of several but the first."""
    return int(os.environ.get("RANK") or os.environ.get("LOCAL_RANK") or 0) == 0


def leave_at_exit() -> None:
    """Let this process leave its group before it ends: gloo's threads may abort it else."""
    atexit.unregister(_leave)
    atexit.register(_leave)


def _leave() -> None:
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def sum_over(fabric: Fabric, tensor: Tensor) -> Tensor:
    """Return the sum of a tensor over processes; all get the same bits."""
    if fabric.world_size == 1:
        return tensor
    total = fabric.all_reduce(tensor, reduce_op="sum")
    assert isinstance(total, Tensor)
    return total
