"""Roots of increasing functions, many at a time."""

from typing import NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from bnaf._torch import loop_in_graph, traced
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


class _Search(NamedTuple):
    """How far the search for roots has come, row by row."""

    x: Targets
    low: Targets
    high: Targets
    reach: Targets
    """Length of the next step to where the bracket is open."""
    previous: Targets
    """Error of the last point."""

    @classmethod
    def start(cls, target: Targets, bracket: tuple[Targets, Targets] | None) -> "_Search":
        """Return a search that begins within a bracket, or at the target where none is known."""
        infinite = torch.full_like(target, torch.inf)
        x, low, high = target.clone(), -infinite, infinite
        if bracket is not None:
            low, high = bracket
            x = low + (high - low) / 2
        return cls(x, low, high, torch.ones_like(target), infinite.clone())


def solve_increasing(
    function: Increasing, target: Targets, bracket: tuple[Targets, Targets] | None = None
) -> Targets:
    """Return the root of an increasing function of one unknown per row: Newton within a bracket.

    Each row has a bracket of its own, open until a point on either side is seen. A Newton step
    that leaves it, or that has not halved the error, gives way to bisection or, where the bracket
    is open, to a step twice as long as the last.

    Args:
        function: The function.
        target: Its values at the roots.
        bracket: Points below and above each root, where they are known.

    Raises:
        InversionError: If a root is not found.
    """
    if traced():
        return _solve_in_graph(function, target, bracket)
    solution = torch.empty_like(target)
    rows = torch.arange(target.shape[1], device=target.device)
    search = _Search.start(target, bracket)
    for _ in range(MAX_ITERATIONS if target.numel() else 0):
        search, settled, done = _advance(function, target, search)
        if done.any():
            finished = done.squeeze(0)
            solution[:, rows[finished]] = settled[:, finished]
            if finished.all():
                return solution
            left = ~finished
            rows, function, target = rows[left], function.keep(left), target[:, left]
            search = _Search(*(part[:, left] for part in search))
    if not target.numel():
        return solution
    ended = torch.ones(solution.shape[1], dtype=torch.bool)
    ended[rows.cpu()] = False
    check_ended(ended)
    return solution


def _advance(
    function: Increasing, target: Targets, search: _Search
) -> tuple[_Search, Targets, Bool[Tensor, "1 rows"]]:
    """Return the search one step further, the roots as far as known, and which rows are done."""
    x, low, high, reach, previous = search
    tolerance = 1e-6 if target.dtype == torch.float32 else 1e-13
    value, slope = function.value_and_slope(x)
    error = value - target
    low = torch.where(error < 0, x, low)
    high = torch.where(error > 0, x, high)
    newton = x - error / slope
    slow = error.abs() > 0.5 * previous
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
    done = done | ((proposal - x).abs() <= spacing)
    near = (newton - x).abs() <= 1e-3 * x.abs().clamp(min=1)  # in flat places it is not
    settled = torch.where(near, newton.clamp(low, high), x)
    return _Search(proposal, low, high, reach, error.abs()), settled, done


def _solve_in_graph(
    function: Increasing, target: Targets, bracket: tuple[Targets, Targets] | None
) -> Targets:
    """Return the same roots by one loop of a graph; rows that did not end are not a number."""

    def goes_on(count: Tensor, done: Tensor, solution: Tensor, *search: Tensor) -> Tensor:
        return (count < MAX_ITERATIONS) & ~done.all()

    def advance(
        count: Tensor, done: Tensor, solution: Tensor, *search: Tensor
    ) -> tuple[Tensor, ...]:
        onward, settled, ended = _advance(function, target, _Search(*search))
        solution = torch.where(ended & ~done, settled, solution)
        return count + 1, done | ended, solution, *onward

    count = torch.zeros((), dtype=torch.int64, device=target.device)
    done = torch.zeros_like(target, dtype=torch.bool)
    start = (count, done, torch.full_like(target, torch.nan), *_Search.start(target, bracket))
    return loop_in_graph(goes_on, advance, start)[2]


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
