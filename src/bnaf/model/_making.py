"""From the rows of a table to the flow that is fitted to them, as it starts."""

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch

from bnaf._random import without_draws
from bnaf.columns.schema import Schema
from bnaf.errors import Argument, TableWarning
from bnaf.flows.ensemble import Ensemble
from bnaf.flows.flow import Flow
from bnaf.flows.mixed import Mixed
from bnaf.flows.registry import flow_named
from bnaf.model._data import FitData

BYTES_PER_WEIGHT = 50  # of a flow while it trains: gradients, moments, averages and matrices
WORTH_TELLING = 1.0  # gigabytes
GIVEN_AWAY = 4  # rows that mean, deviation, least and largest value determine


def make_flow(name: str, data: FitData, flow_settings: Mapping[str, Any]) -> Flow:
    """Return the flow that suits a table, as it starts."""
    if data.encoding.schema is not None:
        return _make_mixed(data, data.encoding.schema, flow_settings)
    kind, facts = flow_named(name), data.facts
    columns, given = data.encoding.features, data.encoding.context_features
    sizes = kind.sizes_for(columns, small=facts.small, many=facts.many, given=given)
    sizes |= flow_settings
    if sizes.get("base") == "scaled":  # by a fit before this one; it is scaled anew
        sizes["base"] = "normal"
    _warn_of_cost(
        lambda: kind(columns, **{"context_features": given} | sizes), columns, data.members
    )
    if data.members > 1:
        flow: Flow = Ensemble(columns, given, flow=name, members=data.members, settings=sizes)
    else:
        flow = kind(columns, **{"context_features": given} | sizes)
    if facts.white or given:
        flow.start_smoothly()
    contexts = data.known.context if given else None
    if contexts is not None:
        flow.see_contexts(contexts)
    return flow


def _make_mixed(data: FitData, schema: Schema, flow_settings: Mapping[str, Any]) -> Mixed:
    """Return the flow of rows of every kind, which starts as if columns were independent."""
    facts = data.facts
    sizes = Mixed.sizes_for_parts(
        schema.levels, schema.numbers, small=facts.small, few=facts.few, given=facts.given
    )
    sizes |= flow_settings
    _warn_of_cost(lambda: Mixed(**data.encoding.parts, **sizes), len(schema.names))
    flow = Mixed(**data.encoding.parts, **sizes)
    known, like = data.known, next(flow.parameters())
    context = None if known.context is None else known.context.to(like.dtype)
    flow.start_smoothly()
    counted = slice(None) if known.weights is None else known.weights > 0
    rows = known.rows[counted].to(like.dtype)
    flow.start_from(rows, None if context is None else context[counted])
    return flow


def _warn_of_cost(make: Callable[[], Flow], columns: int, members: int = 1) -> None:
    """Warn before much memory is taken, of a table so wide that its flow needs it."""
    with torch.device("meta"), without_draws():
        weights = members * sum(part.numel() for part in make().parameters())
    gigabytes = BYTES_PER_WEIGHT * weights / 1e9
    if gigabytes > WORTH_TELLING:
        warnings.warn(
            TableWarning(
                f"{columns:,} columns make a flow of {weights:,} weights, which takes about "
                f"{gigabytes:.1f} GB of memory to train. If that is too much, model fewer with ",
                Argument("columns"),
                ".",
            ),
            stacklevel=4,
        )


def warn_of_secrets(rows: int | None) -> None:
    """Warn of rows so few that what a model keeps of columns gives them away."""
    if rows is not None and rows <= GIVEN_AWAY:
        warnings.warn(
            TableWarning(
                f"The fit has {rows} row{'s' * (rows > 1)}, which the means, deviations and "
                "ranges in its model give away exactly. Expected many more rows; share the model "
                "only with those who may see them."
            ),
            stacklevel=3,
        )
