"""From what a caller gives to sources of batches, checked at the door."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bnaf.errors import SettingsError, ShapeError, TableError
from bnaf.flows.bnaf import Flow
from bnaf.training.batches import BaseDraws, BatchSource, FreshRows, Rows, Stream
from bnaf.training.objectives import Objective, ReverseKL
from bnaf.training.recipe import STREAM_ROWS, choose_batch
from bnaf.training.settings import TrainingSettings

MAX_LISTED = 5  # columns an error names


def make_source(
    rows: Any,
    context: Any,
    weights: Any,
    objective: Objective,
    settings: TrainingSettings,
    like: Tensor,
) -> BatchSource:
    """Return where the batches of a fit come from."""
    flow = objective.flow
    if rows is None:
        if not isinstance(objective, ReverseKL):
            raise SettingsError(
                f"rows must be given for the objective {type(objective).__name__}; only ReverseKL "
                "draws its own."
            )
        return BaseDraws(
            flow.features, batch=choose_batch(STREAM_ROWS, settings.batch), seed=settings.seed
        )
    if isinstance(rows, Tensor | np.ndarray):
        table = _table(rows, context, weights, flow, like, "")
        batch = choose_batch(len(table[0]), settings.batch)
        return Rows(*table, batch=batch, seed=settings.seed, noise=settings.noise or 0.0)
    if settings.noise or settings.pull:
        raise SettingsError(
            f"noise and pull are for rows in memory, got noise={settings.noise} and pull="
            f"{settings.pull} with a stream; leave them out, or give the rows as one array."
        )
    source = _stream(rows, context, weights, "rows")
    if isinstance(source, FreshRows) and settings.batch not in (None, source.batch):
        raise SettingsError(
            f"batch must be that of the rows, {source.batch}, got {settings.batch} in the "
            "settings; make the rows with as many, or leave it out of the settings."
        )
    return source


def make_held_out(valid: Any, context: Any, weights: Any, flow: Flow, like: Tensor) -> BatchSource:
    """Return where the rows to validate on come from."""
    if isinstance(valid, Tensor | np.ndarray):
        return Rows(*_table(valid, context, weights, flow, like, "valid_"))
    return _stream(valid, context, weights, "valid")


def _table(
    rows: Any, context: Any, weights: Any, flow: Flow, like: Tensor, prefix: str
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Return rows with their contexts and weights, without those that weigh nothing."""
    table = as_rows(rows, flow.features, like, prefix.removesuffix("_") or "rows")
    if (context is None) != (flow.context_features == 0):
        raise SettingsError(
            f"{prefix}context must be given for a flow with context_features="
            f"{flow.context_features}."
            if context is None
            else f"{prefix}context was given, but the flow has context_features=0."
        )
    if context is not None:
        context = as_rows(context, flow.context_features, like, f"{prefix}context")
        if len(context) != len(table):
            raise SettingsError(
                f"{prefix}context must have one line per row, {len(table)}, got {len(context)}."
            )
    if weights is None:
        return table, context, None
    weights = as_weights(weights, len(table), like, f"{prefix}weights")
    counts = weights > 0
    return table[counts], None if context is None else context[counts], weights[counts]


def _stream(rows: Any, context: Any, weights: Any, name: str) -> BatchSource:
    if context is not None or weights is not None:
        raise SettingsError(
            f"A stream of {name} brings its own context and weights: yield them as "
            "bnaf.training.Batch."
        )
    if isinstance(rows, BatchSource):
        return rows
    if isinstance(rows, Iterable):
        return Stream(rows)
    raise SettingsError(
        f"{name} must be a tensor, an array or a stream of batches, got {type(rows).__name__}; "
        "convert it with torch.as_tensor(...)."
    )


def as_rows(value: Any, columns: int, like: Tensor, name: str) -> Tensor:
    """Return an array or tensor as rows of a flow's type, on its device.

    Raises:
        ShapeError: If it is not a table with that number of columns and at least one row.
        TableError: If a value is missing or infinite; the columns are named by position.
    """
    try:
        tensor = torch.as_tensor(np.asarray(value) if not isinstance(value, Tensor) else value)
    except (TypeError, ValueError) as error:
        raise TableError(f"{name} must hold numbers only: {error}.") from None
    if tensor.dim() != 2 or tensor.shape[1] != columns or not len(tensor):
        raise ShapeError(
            f"{name} must have at least one row and {columns} columns, "
            f"got shape {tuple(tensor.shape)}."
        )
    tensor = tensor.detach().to(device=like.device, dtype=like.dtype)
    bad = (~tensor.isfinite()).sum(0)
    if bad.any():
        listed = ", ".join(f"{int(i)} ({int(bad[i])})" for i in bad.nonzero()[:MAX_LISTED])
        raise TableError(
            f"{name} must hold finite numbers of {like.dtype}; missing or infinite values by "
            f"column, counted from 0: {listed}. Drop or fill those rows."
        )
    return tensor


def as_weights(value: Any, count: int, like: Tensor, name: str) -> Tensor:
    """Return the weights of rows, of a flow's type and on its device.

    Raises:
        ShapeError: If there is not one per row.
        SettingsError: If one is negative or not finite, or none is positive.
    """
    weights = torch.as_tensor(np.asarray(value) if not isinstance(value, Tensor) else value)
    weights = weights.detach().to(device=like.device, dtype=like.dtype)
    if weights.shape != (count,):
        raise ShapeError(
            f"{name} must hold one number per row, shape ({count},), "
            f"got shape {tuple(weights.shape)}."
        )
    if not bool((weights.isfinite() & (weights >= 0)).all()) or not bool(weights.any()):
        raise SettingsError(
            f"{name} must be finite, none negative and some positive, "
            f"got values from {float(weights.min())} to {float(weights.max())}."
        )
    return weights
