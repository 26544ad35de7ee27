"""Logs of evaluations, written by Fabric's loggers."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from bnaf.errors import SettingsError
from bnaf.training.record import Evaluation

KINDS = ("csv", "tensorboard")


def check_kinds(kinds: Sequence[str]) -> None:
    """Raise a SettingsError for a kind of log there is not."""
    for kind in kinds:
        if kind not in KINDS:
            listed = ", ".join(map(repr, KINDS))
            raise SettingsError(f"loggers must be among {listed}, got {kind!r}.")


def next_version(folder: Path) -> str:
    """Return the name of the first folder for a run that does not exist yet."""
    number = 0
    while (folder / f"version_{number}").exists():
        number += 1
    return f"version_{number}"


def make_loggers(folder: Path, version: str, kinds: Sequence[str]) -> list[Any]:
    """Return Fabric's loggers for a run, to begin from nothing.

    Args:
        folder: Where all runs lie.
        version: Folder of this one; files of its earlier part are replaced.
        kinds: "csv", "tensorboard" or both.

    Raises:
        SettingsError: If TensorBoard is asked for and not installed.
    """
    from lightning_fabric.loggers.csv_logs import CSVLogger
    from lightning_fabric.loggers.tensorboard import TensorBoardLogger

    loggers: list[Any] = []
    for old in (folder / version).glob("*"):
        if old.name == "metrics.csv" or old.name.startswith("events.out.tfevents"):
            old.unlink(
                missing_ok=True
            )  # its evaluations are in the checkpoint, and are written anew
    if "csv" in kinds:
        loggers.append(CSVLogger(folder, name="", version=version, flush_logs_every_n_steps=1))
    if "tensorboard" in kinds:
        try:
            loggers.append(TensorBoardLogger(folder, name="", version=version))
        except ModuleNotFoundError as error:
            raise SettingsError(
                "loggers='tensorboard' needs the package tensorboard; "
                "install it with pip install 'bnaf[tensorboard]'."
            ) from error
    return loggers


def close_loggers(loggers: Sequence[Any]) -> None:
    """Write what is left to every log, if it can be written; that it cannot was told before."""
    for logger in loggers:
        with suppress(OSError):
            logger.finalize("success")


def log(loggers: Sequence[Any], entry: Evaluation) -> None:
    """Write one evaluation to every log."""
    metrics = {
        name: value
        for name, value in entry._asdict().items()
        if value is not None and name != "step"
    }
    for logger in loggers:
        logger.log_metrics(metrics, step=entry.step)
        logger.save()
