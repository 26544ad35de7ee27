"""What is looked at in the columns of a table before a density is fitted to them.

Values that are missing, columns of one value, and values that repeat: a density has no bound at
them, unless noise as wide as their grid spreads them.
"""

import warnings
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float64

from bnaf._checks import plain
from bnaf.errors import Argument, TableError, TableWarning
from bnaf.tables.names import find_columns, list_columns

LOOKED_AT = 100_000  # rows that ties are searched in, drawn at random from larger tables
Values = Float64[np.ndarray, "rows columns"]


class Ties(NamedTuple):
    """Column whose values repeat so often that a density has no bound at them."""

    distinct: int
    rows: int
    common: float
    """The most common value, and its share of the rows."""
    share: float
    step: float
    """Step of the grid that the values lie on."""


def finite_rows(
    rows: Values, names: Sequence[str], *, drop_missing: bool = False
) -> Bool[np.ndarray, " rows"]:
    """Return which rows are complete.

    Args:
        rows: Values; missing ones are nan.
        names: Names of the columns, for the message.
        drop_missing: Whether rows with a missing or infinite value are no error.

    Raises:
        TableError: If some are not complete and may not be dropped.
    """
    finite = np.isfinite(rows)
    complete: np.ndarray = finite.all(1)
    if drop_missing or complete.all():
        return complete
    missing, infinite = np.isnan(rows).sum(0), np.isinf(rows).sum(0)
    raise incomplete(names, missing, infinite, int((~complete).sum()), len(rows))


def incomplete(
    names: Sequence[str], missing: np.ndarray, infinite: np.ndarray, dropped: int, rows: int
) -> TableError:
    """Return the error that counts missing and infinite values by column."""
    bad = [index for index in range(len(names)) if missing[index] or infinite[index]]
    remarks = [
        " and ".join(
            f"{count:,} {kind}"
            for count, kind in ((missing[index], "missing"), (infinite[index], "infinite"))
            if count
        )
        for index in bad
    ]
    return TableError(
        f"Expected finite numbers only, got missing or infinite values: "
        f"{list_columns([names[index] for index in bad], remarks)}; fill them in, or leave out "
        f"those {dropped:,} of {rows:,} rows with ",
        Argument("drop_missing", True),
        ".",
    )


def constant_columns(rows: Values) -> list[int]:
    """Return the columns that hold one value in all rows; a single row tells nothing."""
    if len(rows) < 2:
        return []
    return [int(index) for index in np.flatnonzero((rows == rows[0]).all(0))]


def nothing_varies(names: Sequence[str], rows: int) -> TableError:
    """Return the error of a table that is left without columns."""
    return TableError(
        f"{list_columns(names)}: one value in all {rows:,} rows, and ",
        Argument("drop_constant", True),
        " leaves nothing; expected a column that varies.",
    )


def tied_columns(rows: Values, types: Sequence[str], seed: int = 0) -> dict[int, Ties]:
    """Return the columns with few distinct values or heavy ties.

    These are columns whose values occur twenty times or more on average, or one of whose values
    has a tenth of the rows. Constant columns and tables below twenty rows are left out.

    Args:
        rows: Values, all finite.
        types: Element types the columns had, which say how precise they are.
        seed: Seed of the rows looked at, where there are many.
    """
    if len(rows) > LOOKED_AT:
        rows = rows[np.random.default_rng(seed).choice(len(rows), LOOKED_AT, replace=False)]
    if len(rows) < 20:
        return {}
    found = {}
    for index, kind in enumerate(types):
        values, counts = np.unique(rows[:, index], return_counts=True)
        if len(values) > 1 and (20 * len(values) <= len(rows) or 10 * counts.max() >= len(rows)):
            common, share = values[counts.argmax()], counts.max() / len(rows)
            step = grid_step(values, kind)
            found[index] = Ties(len(values), len(rows), float(common), float(share), step)
    return found


def grid_step(values: Float64[np.ndarray, " rows"], kind: str = "float64") -> float:
    """Return the step of the grid that values lie on; 0 for a single one.

    It is the smallest gap between neighbours, rounding errors apart. Values that lie on no grid,
    such as those of a continuous column with one value that repeats, have the typical (median)
    gap instead.

    Args:
        values: Values of a column, in any order.
        kind: Element type they had, which says how large rounding errors are.

    Example:
        >>> grid_step(np.array([0.1, 0.2, 0.1 + 0.2, 0.3, 0.7]))
        0.1
    """
    values = np.unique(values)
    precision = np.finfo(kind).eps if kind.startswith("float") else 0.0
    with np.errstate(over="ignore"):
        gaps = np.diff(values)
    if not len(gaps):
        return 0.0
    if not np.isfinite(gaps).all():
        return float("inf")
    above_rounding = gaps > 8 * precision * np.abs(values).max()
    if above_rounding.any():
        gaps = gaps[above_rounding]
    smallest = float(np.median(gaps[gaps < 1.5 * gaps.min()]))
    steps = gaps / smallest
    on_grid = (np.abs(steps - steps.round()) < 0.05).all()
    return float(f"{smallest:.12g}") if on_grid else float(np.median(gaps))


def add_grid_noise(
    rows: Values, steps: dict[int, float], generator: np.random.Generator
) -> Values:
    """Return rows whose gridded columns are spread evenly over the cells of their grids.

    Cells are centred on the values, so that rounding to the grid gives the values back.

    Args:
        rows: Values.
        steps: Step of the grid, per column to spread.
        generator: Source of randomness.
    """
    rows = rows.copy()
    for index, step in steps.items():
        rows[:, index] += step * (generator.random(len(rows)) - 0.5)
    return rows


def noise_steps(
    names: Sequence[str],
    wanted: bool | Sequence[str] | Mapping[str, float],
    ties: dict[int, Ties],
    rows: Values,
    types: Sequence[str],
) -> dict[int, float]:
    """Return the grid steps of the columns that noise is wanted for.

    Args:
        names: Names of all columns.
        wanted: ``True`` for the columns with ties, or names, or steps by name.
        ties: The columns with ties.
        rows: Values that the grids are read off.
        types: Element types the columns had.

    Raises:
        TableError: If a named column is not there, or constant, or its step not above zero.
    """
    if isinstance(wanted, bool):
        steps = {index: found.step for index, found in ties.items()} if wanted else {}
    elif isinstance(wanted, Mapping):
        _check_steps(wanted)
        steps = dict(zip(find_columns([*wanted], names), wanted.values(), strict=True))
    else:
        steps = {i: grid_step(rows[:, i], types[i]) for i in find_columns(wanted, names)}
    _check_range(names, steps, rows)
    if isinstance(wanted, bool | Mapping):
        return steps
    flat = [names[index] for index, step in steps.items() if not step]
    if flat:
        raise TableError(
            "Noise expects columns with a grid, of two values or more, got one in "
            f"{list_columns(flat).replace('Column', 'column', 1)}; leave it out of ",
            Argument("dequantise"),
            ".",
        )
    return steps


def _check_steps(wanted: Mapping[str, float]) -> None:
    """Refuse steps of grids that are no numbers above zero."""
    for name, step in wanted.items():
        if not isinstance(plain(step), int | float) or not step > 0:
            raise TableError(
                f"Noise expects steps above 0, got {step!r} for column {name!r}; give the step of "
                "its grid in ",
                Argument("dequantise"),
                ".",
            )


def _check_range(names: Sequence[str], steps: Mapping[int, float], rows: Values) -> None:
    """Refuse noise that would lead out of the range of numbers."""
    with np.errstate(over="ignore"):
        wide = [
            names[index]
            for index, step in steps.items()
            if not np.isfinite(np.abs(rows[:, index]).max() + np.float64(step) / 2)
        ]
    if wide:
        raise TableError(
            f"{list_columns(wide)}: noise as wide as the grid would make values infinite; "
            "expected smaller ones: give them in other units, or leave them out of ",
            Argument("dequantise"),
            ".",
        )


def warn_of_columns(
    names: Sequence[str],
    rows: int,
    constant: Sequence[int],
    ties: dict[int, Ties],
    *,
    of: str = "",
) -> None:
    """Warn of constant columns, of heavy ties, and of fewer rows than columns.

    Args:
        names: Names of the columns.
        rows: Number of rows.
        constant: Which columns have one value.
        ties: What repeats in which of them.
        of: Whose arguments are told, where they are not those of the caller.
    """
    if constant:
        _warn(
            f"{list_columns([names[index] for index in constant])}: one value in all {rows:,} "
            "rows. A density has no bound there; leave them out with ",
            Argument("drop_constant", True),
            f"{of}.",
        )
    if ties:
        remarks = [
            f"{found.distinct:,} distinct values in {found.rows:,} rows"
            if 20 * found.distinct <= found.rows
            else f"{found.share:.0%} of the rows are {found.common:g}"
            for found in ties.values()
        ]
        _warn(
            f"{list_columns([names[index] for index in ties], remarks)}: few distinct values or "
            "heavy ties. A density grows without bound at values that repeat, and its "
            "log-likelihood says little; add uniform noise of each column's own grid with ",
            Argument("dequantise", True),
            ", or to some of them with ",
            Argument("dequantise", ["a", "b"]),
            f"{of}.",
        )
    if rows < len(names):
        _warn(
            f"The table has fewer rows ({rows:,}) than columns ({len(names):,}); a density fitted "
            "to it describes those rows alone. Expected many more rows; take more of them, or "
            "fewer columns."
        )


def warn_of_rounding(names: Sequence[str]) -> None:
    """Warn of whole numbers so large that neighbours become one."""
    if names:
        _warn(
            f"{list_columns(names)}: whole numbers above 2^53, which float64 rounds, so that "
            "neighbours become one. If they are labels, leave them out; else give them in other "
            "units."
        )


def warn_of_index() -> None:
    """Warn of a first column that is left out as an index."""
    _warn(
        "The first column has no name and is left out: it is taken for an index, which R and "
        "pandas write. If it is to be modelled, give it a name."
    )


def _warn(*parts: str | Argument) -> None:
    warnings.warn(TableWarning(*parts), stacklevel=4)
