"""Columns that need care: what in them makes a density hard to fit or to read."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bnaf._text import plain_name
from bnaf.evaluation.calibration import LEVEL, SMALL_GAP, CalibrationCheck
from bnaf.model.model import Model
from bnaf.tables.table import Table
from bnaf.tables.ties import constant_columns, tied_columns

FAR = 10.0  # deviations from the mean
SAME = 0.999  # correlation of columns that say the same
FEW_ROWS = 10  # per column


class Care(NamedTuple):
    """A column, what was found in it, and what can be done."""

    column: str
    found: str
    advice: str


def find_care(model: Model, table: Table, check: CalibrationCheck) -> list[Care]:
    """Return the columns of a model that need care.

    Args:
        model: The model.
        table: The rows it was fitted to, as far as they are known.
        check: How it is calibrated.
    """
    rows = table.select(model.columns)
    found = [*_miscalibrated(check)]
    if model.encoding.noisy:  # else what repeats has a mass, and codes are no amounts
        given = table.select(model.given_columns)
        found = [*_constant(rows), *_constant(given), *_tied(rows), *_far(rows), *_same(rows)]
        found += _miscalibrated(check)
    if len(rows) < FEW_ROWS * rows.features:
        few = f"{len(rows):,} rows for {rows.features} columns"
        found.append(Care("all columns", few, "Take more rows, or fewer columns."))
    return found


def _constant(table: Table) -> list[Care]:
    return [
        Care(
            table.columns[index],
            "One value in all rows.",
            "Leave it out (--drop-constant): a density has no bound there.",
        )
        for index in constant_columns(table.rows.numpy())
    ]


def _tied(table: Table) -> list[Care]:
    found = []
    for index, ties in tied_columns(table.rows.numpy(), table.types).items():
        what = f"{ties.distinct:,} distinct values in {ties.rows:,} rows"
        if 20 * ties.distinct > ties.rows:
            what = f"{ties.share:.0%} of the rows are {ties.common:g}"
        advice = (
            "Values that repeat have no density, and log-likelihoods say little. Spread them "
            "(--dequantise), or condition on the column (--given)."
        )
        found.append(Care(table.columns[index], f"{what}.", advice))
    return found


def _far(table: Table) -> list[Care]:
    """Return columns with values very far out, which few rows can teach a model."""
    rows = table.rows.numpy()
    deviations = rows.std(0)
    far = np.abs(rows - rows.mean(0)) > FAR * np.where(deviations > 0, deviations, np.inf)
    return [
        Care(
            table.columns[index],
            f"Values more than {FAR:g} deviations from the mean, in {far[:, index].sum():,} of "
            f"{len(rows):,} rows.",
            "Check them; if they are right, a logarithm may tame the column.",
        )
        for index in np.flatnonzero(far.any(0))
    ]


def _same(table: Table) -> list[Care]:
    """Return columns that are a straight line of an earlier one."""
    varying = [
        index
        for index in range(table.features)
        if index not in constant_columns(table.rows.numpy())
    ]
    if len(varying) < 2 or len(table) < 3:
        return []
    correlation = np.abs(np.corrcoef(table.rows.numpy()[:, varying].T))
    found = []
    for place in range(1, len(varying)):
        other = int(correlation[place, :place].argmax())
        if correlation[place, other] > SAME:
            same = plain_name(table.columns[varying[other]])
            said = f"Correlation {correlation[place, other]:.5f} with {same}."
            advice = "They say the same; leave one out, or the density has almost no width."
            found.append(Care(table.columns[varying[place]], said, advice))
    return found


def _miscalibrated(check: CalibrationCheck) -> Sequence[Care]:
    return [
        Care(
            test.name,
            f"Miscalibrated: the shares of rows are off by up to {test.gap:.1%}.",
            "See Calibration; more rows or a longer fit may help.",
        )
        for test in check.columns
        if test.p_value < LEVEL and test.gap >= SMALL_GAP
    ]
