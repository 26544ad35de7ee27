"""From what a caller gives to sources of batches, checked at the door."""

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bnaf.errors import SettingsError, ShapeError, TableError
from bnaf.flows.flow import Flow
from bnaf.training.arrays import ArrayRows
from bnaf.training.batches import Batch, BatchSource, as_weights
from bnaf.training.objectives import MaximumLikelihood, Objective
from bnaf.training.recipe import TableFacts, resolve
from bnaf.training.settings import TrainingSettings
from bnaf.training.streams import StreamRows

MAX_LISTED = 5  # columns an error names


def _not_finite(rows: Tensor) -> Tensor:
    return ~rows.isfinite()


def choose_objective(module: nn.Module) -> Objective:
    """Return the objective of a flow that comes without one.

    Raises:
        SettingsError: If it is no flow.
    """
    if not isinstance(module, Flow):
        raise SettingsError(
            f"objective must be given for a {type(module).__name__}; only flows have one by "
            "default, the likelihood."
        )
    return MaximumLikelihood(module)


def make_source(
    rows: Any,
    context: Any,
    weights: Any,
    objective: Objective,
    settings: TrainingSettings,
    valid: BatchSource | None,
    like: Tensor,
) -> tuple[BatchSource, TrainingSettings]:
    """Return where the batches of a fit come from, and settings that leave nothing open."""
    valid_rows = None if valid is None else valid.count
    more: Mapping[str, Tensor] = {}
    if isinstance(rows, Batch) and context is None and weights is None:
        rows, context, weights, more = rows.rows, rows.context, rows.weights, rows.more
    if isinstance(rows, Tensor | np.ndarray):
        table, known, counts, more = _table(rows, context, weights, objective, like, "", more)
        given = 0 if known is None else known.shape[1]
        columns = table.shape[1] + given
        facts = TableFacts(rows=len(table), columns=columns, given=given, valid_rows=valid_rows)
        settings = resolve(settings, facts, objective)
        source: BatchSource = ArrayRows(
            table,
            known,
            counts,
            batch=settings.batch,
            seed=settings.seed,
            noise=settings.noise or 0.0,
            more=more,
        )
        return source, settings
    if rows is None:
        settings = resolve(settings, TableFacts(batches=100), objective)
        assert settings.batch is not None
        made = objective.make_rows(settings.batch, settings.seed)
        if made is None:
            raise SettingsError(
                f"rows must be given for the objective {type(objective).__name__}, which does "
                "not draw its own."
            )
        return made, settings
    source = _stream(rows, context, weights, "rows")
    if settings.noise or (settings.pull and source.worth is None):
        raise SettingsError(
            f"noise and pull are for rows that come as one array, got noise={settings.noise} and "
            f"pull={settings.pull} with a source of batches; leave them out, or give an array."
        )
    if source.batch is not None and settings.batch not in (None, source.batch):
        raise SettingsError(
            f"batch must be that of the rows, {source.batch}, got {settings.batch} in the "
            "settings; make the rows with as many, or leave it out of the settings."
        )
    facts = TableFacts(
        rows=source.count,
        worth=source.worth,
        valid_rows=valid_rows,
        batch=source.batch,
        batches=source.batch_count(_process_count(settings)),
    )
    return source, resolve(settings, facts, objective)


def _process_count(settings: TrainingSettings) -> int:
    """Return how many processes will train, as far as it is known before they do."""
    started = os.environ.get("WORLD_SIZE")
    if started is not None:
        return int(started)
    return (settings.devices if isinstance(settings.devices, int) else 1) * settings.nodes


def make_held_out(
    valid: Any, context: Any, weights: Any, objective: Objective, like: Tensor
) -> BatchSource:
    """Return where the rows to validate on come from."""
    more: Mapping[str, Tensor] = {}
    if isinstance(valid, Batch) and context is None and weights is None:
        valid, context, weights, more = valid.rows, valid.context, valid.weights, valid.more
    if isinstance(valid, Tensor | np.ndarray):
        table, *others, more = _table(valid, context, weights, objective, like, "valid_", more)
        return ArrayRows(table, *others, more=more)
    return _stream(valid, context, weights, "valid")


def _table(
    rows: Any,
    context: Any,
    weights: Any,
    objective: Objective,
    like: Tensor,
    prefix: str,
    more: Mapping[str, Tensor],
) -> tuple[Tensor, Tensor | None, Tensor | None, dict[str, Tensor]]:
    """Return rows, contexts, weights and whatever else, without rows that weigh nothing."""
    name = prefix.removesuffix("_") or "rows"
    table = as_rows(rows, objective.features, like, name, objective.impossible)
    wanted = objective.context_features
    if wanted is not None and (context is None) != (wanted == 0):
        raise SettingsError(
            f"{prefix}context must be given for a flow with context_features={wanted}."
            if context is None
            else f"{prefix}context was given, but the flow has context_features=0."
        )
    if context is not None:
        context = as_rows(context, wanted, like, f"{prefix}context")
        if len(context) != len(table):
            raise SettingsError(
                f"{prefix}context must have one line per row, {len(table)}, got {len(context)}."
            )
    if weights is None:
        return table, context, None, dict(more)
    weights = as_weights(weights, len(table), like, f"{prefix}weights")
    counts = weights > 0
    known = None if context is None else context[counts]
    rest = {name: lines[counts.to(lines.device)] for name, lines in more.items()}
    return table[counts], known, weights[counts], rest


def _stream(rows: Any, context: Any, weights: Any, name: str) -> BatchSource:
    if context is not None or weights is not None:
        raise SettingsError(
            f"A stream of {name} brings its own context and weights: yield them as "
            "bnaf.training.Batch."
        )
    if isinstance(rows, BatchSource):
        return rows
    if isinstance(rows, Iterable):
        return StreamRows(rows)
    raise SettingsError(
        f"{name} must be a tensor, an array or a stream of batches, got {type(rows).__name__}; "
        "convert it with torch.as_tensor(...)."
    )


def as_rows(
    value: Any,
    columns: int | None,
    like: Tensor,
    name: str,
    impossible: Callable[[Tensor], Tensor] = _not_finite,
) -> Tensor:
    """Return an array or tensor as rows of a flow's type, on its device.

    Args:
        value: What was given.
        columns: Number of columns; ``None`` for any.
        like: A tensor of the flow.
        name: What to call the rows in messages.
        impossible: Tells which values they cannot have.

    Raises:
        ShapeError: If it is not a table with that number of columns and at least one row.
        TableError: If a value is missing or infinite; the columns are named by position.
    """
    try:
        tensor = torch.as_tensor(np.asarray(value) if not isinstance(value, Tensor) else value)
    except (TypeError, ValueError) as error:
        raise TableError(f"{name} must hold numbers only: {error}.") from None
    fits = tensor.dim() == 2 and columns in (None, tensor.shape[1])
    if not fits or not len(tensor):
        raise ShapeError(
            f"{name} must have at least one row and {columns or 'some'} columns, "
            f"got shape {tuple(tensor.shape)}."
        )
    tensor = tensor.detach().to(device=like.device, dtype=like.dtype)
    bad = impossible(tensor).sum(0)
    if bad.any():
        listed = ", ".join(f"{int(i)} ({int(bad[i])})" for i in bad.nonzero()[:MAX_LISTED])
        raise TableError(
            f"{name} must hold finite numbers of {like.dtype}; missing or infinite values by "
            f"column, counted from 0: {listed}. Drop or fill those rows."
        )
    return tensor
