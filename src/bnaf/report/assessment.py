"""What a report says: numbers and words, before they become a page."""

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bnaf._text import plain_name
from bnaf.evaluation.calibration import CalibrationCheck, Verdict, check_calibration, column_shares
from bnaf.evaluation.classical import fit_gaussian
from bnaf.evaluation.independent import score_independent
from bnaf.evaluation.scores import COLUMN, Scores, standard_error
from bnaf.model.description import describe
from bnaf.model.model import Model
from bnaf.report.care import Care, find_care
from bnaf.report.parts import Part, Parts, find_parts
from bnaf.tables.table import Table

LEAST = 10
UNUSUAL = 0.02  # a value further out than all but so many samples is what makes a row unlikely


class Standing(NamedTuple):
    """How likely some rows are, in nats per row and in the units of the table.

    Args:
        part: Name of the rows.
        rows: How many.
        model: Mean log-likelihood, and its standard error.
        baseline: The same under a simple density; ``None`` where it could not be fitted.
        gain: Mean of the differences row by row, and its standard error.
    """

    part: str
    rows: int
    model: tuple[float, float]
    baseline: tuple[float, float] | None
    gain: tuple[float, float] | None


class UnlikelyRow(NamedTuple):
    """A row among the least likely.

    Args:
        part: Which rows it is of.
        number: Its number in the file, from 1.
        log_density: In nats.
        values: Values as they are written, in the order of the columns, given ones last.
        column: The column whose value is out of the ordinary, if it is one alone.
        why: What is unlikely about it, in plain words.
    """

    part: str
    number: int
    log_density: float
    values: tuple[Any, ...]
    column: str | None
    why: str


@dataclass(frozen=True, eq=False)
class Assessment:
    """All that is found about a model and its rows.

    Args:
        model: The model.
        parts: The rows.
        scores: Log-densities of each part, by name.
        standings: How likely each part is.
        check: Calibration of the rows that the model is judged by.
        least: The least likely rows.
        care: Columns that need care.
        private: Whether rows are left out, and figures that show some.
    """

    model: Model
    parts: Parts
    scores: dict[str, Scores]
    standings: tuple[Standing, ...]
    check: CalibrationCheck
    least: tuple[UnlikelyRow, ...]
    care: tuple[Care, ...]
    private: bool = False

    @property
    def baseline(self) -> str:
        """What the model is held against."""
        return "a Gaussian" if self.model.encoding.schema is None else "independent columns"

    @property
    def standing(self) -> Standing:
        """That of the rows the model is judged by."""
        name = self.parts.judged.name
        return next(standing for standing in self.standings if standing.part == name)

    @property
    def verdict(self) -> Verdict:
        """What calibration says, with names of columns that are fit for a sentence."""
        columns = tuple(replace(test, name=plain_name(test.name)) for test in self.check.columns)
        return replace(self.check, columns=columns).judge()

    def as_dict(self) -> dict[str, Any]:
        """Return all of it ready for JSON."""
        columns = [*self.model.columns, *self.model.given_columns]
        return {
            "model": describe(self.model),
            "same_table": self.parts.same_table,
            "judged_by": self.parts.judged.name,
            "baseline": self.baseline,
            "standings": [_standing_facts(standing) for standing in self.standings],
            "calibration": self.verdict._asdict()
            | {
                "rows": self.check.rows,
                "columns": [test.as_dict() for test in self.check.columns],
                "whole_row": [test.as_dict() for test in self.check.whole_row],
            },
            "least": [
                {"part": row.part, "row": row.number, COLUMN: row.log_density, "why": row.why}
                | {"values": dict(zip(columns, row.values, strict=True))}
                for row in self.least
            ],
            "care": [care._asdict() for care in self.care],
        }


def assess(
    model: Model,
    table: Any,
    *,
    new_rows: Any = None,
    least: int = LEAST,
    private: bool = False,
    seed: int = 0,
) -> Assessment:
    """Look at a model and its rows.

    A table that is that of the fit is split as the fit split it. The model is judged by rows it
    did not see, where there are any.

    Args:
        model: The model.
        table: The table it was fitted to, or another one with its columns: a table, or anything
            that :func:`bnaf.read_table` reads.
        new_rows: More rows that it was not fitted to.
        least: How many of the least likely rows to show.
        private: Whether to leave out rows, and figures that show some.
        seed: Seed of samples.

    Raises:
        TableError: If a column is missing.
        InversionError: If the model cannot be sampled.
    """
    parts = find_parts(
        model, _as_table(model, table), None if new_rows is None else _as_table(model, new_rows)
    )
    scores = {part.name: Scores(model.log_prob(part.rows, warn=False)) for part in parts.parts}
    check = check_calibration(model, parts.judged.rows, seed=seed)
    return Assessment(
        model=model,
        parts=parts,
        scores=scores,
        standings=tuple(_standings(model, parts, scores)),
        check=check,
        least=() if private else tuple(_least_likely(model, parts.parts, scores, least, seed)),
        care=tuple(find_care(model, parts.reference, check)),
        private=private,
    )


def _as_table(model: Model, rows: Any) -> Table:
    return rows if isinstance(rows, Table) else model.read(rows)


def _standings(model: Model, parts: Parts, scores: dict[str, Scores]) -> list[Standing]:
    baseline = _baseline(model, parts.reference, [part.rows for part in parts.parts])
    standings = []
    for index, part in enumerate(parts.parts):
        own = scores[part.name].log_densities
        other = None if baseline is None else baseline[index]
        standings.append(
            Standing(
                part.name,
                len(part.rows),
                _mean(own),
                None if other is None else _mean(other),
                None if other is None else _mean(own - other),
            )
        )
    return standings


def _baseline(model: Model, reference: Table, tables: Sequence[Table]) -> list[Tensor] | None:
    """Return log-densities under a simple density: a Gaussian, or independent columns."""
    schema = model.encoding.schema
    if schema is None:
        return _gaussian(model, reference, tables)
    rows = [table.select(model.columns).rows for table in (reference, *tables)]
    return score_independent(schema, rows[0], rows[1:])


def _gaussian(model: Model, reference: Table, tables: Sequence[Table]) -> list[Tensor] | None:
    """Return log-densities under a Gaussian, given what the model is given.

    p(x | c) is p(x, c) / p(c), which is a linear regression with Gaussian noise.
    """
    if len(reference) < 2:
        return None
    rows = Table(torch.cat([table.rows for table in tables]), reference.columns)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            scores = fit_gaussian(reference, rows, 0).scores
            if model.given_columns:
                given = list(model.given_columns)
                scores = (
                    scores - fit_gaussian(reference.select(given), rows.select(given), 0).scores
                )
        except ValueError:  # scikit-learn's word for a covariance that has no inverse
            return None
    return list(scores.split([len(table) for table in tables]))


def _least_likely(
    model: Model, parts: Sequence[Part], scores: dict[str, Scores], count: int, seed: int
) -> list[UnlikelyRow]:
    """Return the least likely rows of all parts, the least likely first."""
    densities = torch.cat([scores[part.name].log_densities for part in parts])
    chosen = Scores(densities).least_likely(count)
    names = [part.name for part in parts for _ in range(len(part.rows))]
    numbers = torch.cat([part.numbers for part in parts])
    everything = Table(torch.cat([part.rows.rows for part in parts]), parts[0].rows.columns)
    rows = everything.take(chosen)
    explain = _explainer(model, rows, seed)
    values = model.encoding.values(rows.rows)
    found = []
    for place, index in enumerate(chosen.tolist()):
        column, why = explain(place)
        found.append(
            UnlikelyRow(
                names[index],
                int(numbers[index]),
                densities[index].item(),
                tuple(values[place]),
                column,
                why,
            )
        )
    return found


def _explainer(model: Model, rows: Table, seed: int) -> Callable[[int], tuple[str | None, str]]:
    """Return what says of each row which column is unlikely in it, and why."""
    if model.encoding.schema is None:
        shares = column_shares(model, rows, seed=seed)
        return lambda place: _explain(model, shares[place])
    cells = model.log_shares(rows)

    def explain(place: int) -> tuple[str | None, str]:
        index = int(cells[place].argmin())
        name = model.columns[index]
        return name, f"{plain_name(name)}: {cells[place, index]:.2f} nats given the cells before"

    return explain


def _explain(model: Model, shares: Tensor) -> tuple[str | None, str]:
    """Return the column that is furthest out, if any is, and what is unlikely about the row."""
    tails = 2 * torch.minimum(shares, 1 - shares)
    index = int(tails.argmin())
    if tails[index] >= UNUSUAL:
        alone = (
            "its value" if model.features == 1 else "the combination: no value alone is unusual"
        )
        return None, alone
    low = bool(shares[index] < 0.5)
    share = 1 - float(shares[index]) if low else float(shares[index])
    side = "below" if low else "above"
    name = model.columns[index]
    return name, f"{plain_name(name)}: {side} {_percent(share)} of samples"


def _percent(share: float) -> str:
    return "more than 99.9%" if share > 0.999 else f"{share:.1%}"


def _mean(values: Tensor) -> tuple[float, float]:
    return values.mean().item(), standard_error(values)


def _standing_facts(standing: Standing) -> dict[str, Any]:
    facts: dict[str, Any] = {"part": standing.part, "rows": standing.rows}
    for name in ("model", "baseline", "gain"):
        mean, error = getattr(standing, name) or (math.nan, math.nan)
        facts |= {name: mean, f"{name}_error": error}
    return facts
