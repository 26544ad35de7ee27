"""Rows in parts, so that memory stays bounded however many there are."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from bnaf.errors import ShapeError
from bnaf.flows.flow import Flow

CHUNK_ROWS = 8192  # scored or drawn at a time


def measure_rows(
    flow: Flow,
    x: Tensor,
    context: Tensor | None,
    measure: Callable[[Any, Tensor], Tensor],
) -> Tensor:
    """Return what is measured of rows under the law of their context, some rows at a time.

    Args:
        flow: The flow.
        x: Rows, as the flow sees them.
        context: One row for all of them, or one for each; ``None`` where the flow takes none.
        measure: From a law and some rows to one value, or several, per row.

    Raises:
        ShapeError: If rows and contexts do not broadcast.
    """
    if context is None or context.dim() == 1:
        law, batch = flow(context), x.shape[:-1]
        parts = [measure(law, part) for part in x.reshape(-1, flow.features).split(CHUNK_ROWS)]
    elif x.dim() > context.dim() == 2 and len(context) == x.shape[-2]:
        return _measure_under(flow, x, context, measure)
    else:
        batch = common_batch(x, context)
        rows = x.expand(*batch, -1).reshape(-1, flow.features).split(CHUNK_ROWS)
        contexts = context.expand(*batch, -1).reshape(-1, flow.context_features).split(CHUNK_ROWS)
        parts = [measure(flow(given), part) for part, given in zip(rows, contexts, strict=True)]
    found = torch.cat(parts)
    return found.reshape((*batch, *found.shape[1:]))


def _measure_under(
    flow: Flow, x: Tensor, context: Tensor, measure: Callable[[Any, Tensor], Tensor]
) -> Tensor:
    """Return what is measured of several rows under each law, which is made once."""
    rows = x.flatten(0, -3)
    size = max(1, CHUNK_ROWS // max(1, len(rows)))
    found = []
    for part, given in zip(rows.split(size, 1), context.split(size), strict=True):
        law = flow(given)
        found.append(torch.cat([measure(law, some) for some in part.split(CHUNK_ROWS)]))
    under = torch.cat(found, 1)
    return under.reshape(*x.shape[:-1], *under.shape[2:])


def chunk_rows(x: Tensor, context: Tensor | None) -> Iterator[tuple[Tensor, Tensor | None]]:
    """Yield some rows at a time with their contexts: one for all of them, or one for each."""
    for start in range(0, len(x), CHUNK_ROWS):
        part = slice(start, start + CHUNK_ROWS)
        shared = context is None or context.dim() == 1 or len(context) == 1
        yield x[part], context if shared or context is None else context[part]


def common_batch(x: Tensor, context: Tensor) -> torch.Size:
    """Return the batch shape of rows with their contexts.

    Raises:
        ShapeError: If they do not broadcast.
    """
    try:
        return torch.Size(torch.broadcast_shapes(x.shape[:-1], context.shape[:-1]))
    except RuntimeError:
        raise ShapeError(
            f"rows of shape {tuple(x.shape)} do not broadcast with given ones of shape "
            f"{tuple(context.shape)}; give one row of them per row, or one."
        ) from None
