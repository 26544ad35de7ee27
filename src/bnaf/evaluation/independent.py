"""Columns of every kind as if they had nothing to do with each other: what a model must beat."""

from collections.abc import Sequence

import torch
from jaxtyping import Float64
from torch import Tensor

from bnaf.columns.schema import Schema
from bnaf.laws.cells import log_mass
from bnaf.laws.normal import log_normal_density
from bnaf.laws.packed import row_layout

SMOOTHING = 0.5  # rows that every level has more than were seen


def score_independent(
    schema: Schema,
    reference: Float64[Tensor, "rows columns"],
    tables: Sequence[Float64[Tensor, "_ columns"]],
) -> list[Float64[Tensor, " _"]]:
    """Return the log-probability of rows if columns were independent.

    Levels have the frequencies of the reference rows, and numbers are standard normal in the
    scale that the schema gives them: of a grid that is its own smoothed distribution, of other
    numbers the Gaussian of their mean and deviation.

    Args:
        schema: What the columns mean.
        reference: Codes of the rows that frequencies are counted in.
        tables: Codes of the rows to score.
    """
    layout = row_layout(schema.levels, schema.numbers, schema.statuses)
    seen = layout.split(schema.encode(schema.frame(reference)).rows).levels
    shares = [level_log_shares(seen[:, part], count) for part, count in enumerate(schema.levels)]
    found = []
    for codes in tables:
        encoded = schema.encode(schema.frame(codes))
        levels, middle, below, above = layout.split(encoded.rows)
        score = encoded.shift.sum(1).clone()
        for part, share in enumerate(shares):
            known = ~levels[:, part].isnan()  # an empty cell where none was seen has mass one
            score[known] += share[levels[known, part].long()]
        point = below + above == 0
        masses = torch.where(
            point, log_normal_density(middle), log_mass(middle, below, above).nan_to_num(nan=0.0)
        )
        found.append(score + torch.where(middle.isnan(), 0.0, masses).sum(1))
    return found


def level_log_shares(
    levels: Float64[Tensor, " rows"], count: int, weights: Float64[Tensor, " rows"] | None = None
) -> Float64[Tensor, " count"]:
    """Return the logarithm of the share of each level, none of which is zero.

    Args:
        levels: Codes of the levels of one column.
        count: How many levels it has.
        weights: How much each row counts.
    """
    known = ~levels.isnan()
    kept = None if weights is None else weights[known]
    counts = torch.bincount(levels[known].long(), kept, minlength=count).double() + SMOOTHING
    return (counts / counts.sum()).log()
