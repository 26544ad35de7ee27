"""Roots of increasing functions, many at a time."""

from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from bnaf.errors import InversionError

MAX_ITERATIONS = 200
Targets = Float[Tensor, "1 rows"]


@runtime_checkable
class Increasing(Protocol):
    """An increasing function of one unknown per row."""

    def value_and_slope(self, x: Targets) -> tuple[Targets, Targets]:
        """Return the value at x and the derivative there."""

    def keep(self, rows: Bool[Tensor, " rows"]) -> "Increasing":
        """Return the function of some of the rows."""


def solve_increasing(function: Increasing, target: Targets) -> Targets:
    """Return the root of an increasing function of one unknown per row: Newton within a bracket.

    Each row has a bracket of its own, open until a point on either side is seen. A Newton step
    that leaves it, or that has not halved the error, gives way to bisection or, where the bracket
    is open, to a step twice as long as the last.
    """
    tolerance = 1e-6 if target.dtype == torch.float32 else 1e-13
    solution = torch.empty_like(target)
    rows = torch.arange(target.shape[1], device=target.device)
    x = target.clone()
    low, high = torch.full_like(x, -torch.inf), torch.full_like(x, torch.inf)
    reach = torch.ones_like(x)
    previous = torch.full_like(x, torch.inf)
    for _ in range(MAX_ITERATIONS if target.numel() else 0):
        value, slope = function.value_and_slope(x)
        error = value - target
        low = torch.where(error < 0, x, low)
        high = torch.where(error > 0, x, high)
        newton = x - error / slope
        slow = error.abs() > 0.5 * previous
        previous = error.abs()
        step = torch.where(error < 0, reach, -reach)
        open_end = torch.where(error < 0, high, low).isinf()
        beyond = (newton - x).abs() > reach
        proposal = torch.where(open_end & (beyond | ~newton.isfinite()), x + step, newton)
        outside = ~((proposal > low) & (proposal < high)) | (slow & ~open_end)
        middle = low + (high - low) / 2
        proposal = torch.where(outside & ~open_end, middle, proposal)
        reach = torch.where(open_end, 2 * reach, reach)
        spacing = torch.finfo(x.dtype).eps * x.abs().clamp(min=torch.finfo(x.dtype).tiny)
        done = (error.abs() <= tolerance * target.abs().clamp(min=1)) | (high - low <= 2 * spacing)
        done |= (proposal - x).abs() <= spacing
        if done.any():
            finished = done.squeeze(0)
            near = (newton - x).abs() <= 1e-3 * x.abs().clamp(min=1)  # in flat places it is not
            settled = torch.where(near, newton.clamp(low, high), x)
            solution[:, rows[finished]] = settled[:, finished]
            if finished.all():
                return solution
            left = ~finished
            rows, function = rows[left], function.keep(left)
            x, target, low, high, reach, previous = (
                part[:, left] for part in (proposal, target, low, high, reach, previous)
            )
        else:
            x = proposal
    if not target.numel():
        return solution
    ended = torch.ones(solution.shape[1], dtype=torch.bool)
    ended[rows.cpu()] = False
    check_ended(ended)
    return solution


def check_ended(ended: Bool[Tensor, " rows"]) -> None:
    """Check that the iteration of every row came to its end.

    Raises:
        InversionError: If one did not.
    """
    if not ended.all():
        raise InversionError(
            f"{int((~ended).sum())} of {len(ended)} rows were not inverted within "
            f"{MAX_ITERATIONS} steps; check the weights for extreme values, or use float64."
        )
