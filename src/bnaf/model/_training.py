"""Training of the flow of a model, and what is kept of it."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bnaf.errors import TrainingError
from bnaf.flows.flow import Flow
from bnaf.model._data import FitData
from bnaf.model._scaling import scale_base
from bnaf.training import TrainingRecord, TrainingSettings, fit


def train_flow(
    flow: Flow,
    data: FitData,
    settings: TrainingSettings,
    *,
    scaled: bool,
    progress: bool,
    checkpoint: Path | str | None,
    logs: Path | str | None,
    loggers: Sequence[str],
) -> TrainingRecord:
    """Train a flow on the rows of a table, and show its course in the units of the table.

    Args:
        flow: The flow, as it starts.
        data: The rows.
        settings: How to train.
        scaled: Whether validation rows may scale its base.
        progress: Whether to show progress.
        checkpoint: File to keep the run in, and to go on from.
        logs: Folder for logs of every evaluation.
        loggers: Which.

    Raises:
        TrainingError: If training failed; it names the column that is to blame, if one is.
    """
    if not flow.takes_cells:
        data = data.spread(settings.seed)
    try:
        record = fit(
            flow,
            **data.arguments,
            settings=settings,
            checkpoint=checkpoint,
            logs=logs,
            loggers=loggers,
            progress=data.units if progress else False,
        )
    except TrainingError as error:
        message = str(error)
        if error.column is not None and not data.facts.white:
            message += f" Column {error.column} is {data.encoding.columns[error.column]!r}."
        raise TrainingError(message, error.record, column=error.column) from None
    gain = scale_base(flow, data) if scaled else None
    if gain is None or record.valid is None:
        return record
    return dataclasses.replace(record, valid=record.valid - gain)


def record_facts(data: FitData, record: TrainingRecord | None) -> dict[str, Any]:
    """Return what a model keeps of its training, ready for JSON."""
    facts = record.shortened().as_dict() if record else {}
    facts |= {"split": data.split.as_dict()}
    return facts | ({"shift": dict(data.shifts)} if data.shifts else {})
