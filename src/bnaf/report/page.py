"""The report as a page: HTML with its style, script and figures inside."""

import base64
import hashlib
import math
import shlex
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from bnaf import __version__
from bnaf._files import stored_file
from bnaf._text import typeset
from bnaf.model.description import describe
from bnaf.report.assessment import Assessment, Standing
from bnaf.report.pictures import draw_figures, paired_columns
from bnaf.report.words import clean, say_fit, say_gain, say_judged, say_memory, say_rows

COLUMNS_TEXT = {
    True: "Columns are standardised by the mean and the deviation of the training rows; "
    "log-densities are in the units of the table.",
    False: "What is discrete has a mass, what is continuous a density in the units of the table, "
    "and empty cells are integrated out; the log-likelihood of a row adds their logarithms.",
}
"""What becomes of columns, by whether all are plain numbers."""


class Cell(NamedTuple):
    """One cell of a table: what it says, and the number it is sorted by, if it is one."""

    text: str
    value: float | None = None

    @property
    def key(self) -> str:
        """The number as JavaScript reads it."""
        return str(self.value).replace("inf", "Infinity")


def render_report(
    assessment: Assessment,
    *,
    table_name: str = "table",
    model_name: str = "model.safetensors",
    created: datetime | None = None,
    seed: int = 0,
) -> str:
    """Return a report as HTML.

    Args:
        assessment: What was found.
        table_name: What the table is called.
        model_name: File of the model, for the lines that load it.
        created: When; now, by default.
        seed: Seed of samples in figures.
    """
    from jinja2 import Environment, StrictUndefined

    parts = files("bnaf.report")
    style, script, template = (
        (parts / name).read_text(encoding="utf-8")
        for name in ("report.css", "report.js", "report.html")
    )
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    page: str = environment.from_string(template).render(
        style=style,
        script=script,
        script_digest=f"sha256-{digest}",
        pictures=draw_figures(assessment, seed=seed),
        created=(created or datetime.now(UTC)).strftime("%Y-%m-%d"),
        version=__version__,
        **_names(table_name, model_name),
        **_facts(assessment),
    )
    return page


def write_report(
    assessment: Assessment,
    path: Path | str,
    *,
    overwrite: bool = False,
    table_name: str = "table",
    model_name: str = "model.safetensors",
    seed: int = 0,
) -> None:
    """Write a report as one HTML file, whole or not at all.

    Args:
        assessment: What was found.
        path: The file; "-" for standard output.
        overwrite: Whether it may replace one that exists.
        table_name: What the table is called.
        model_name: File of the model, for the lines that load it.
        seed: Seed of samples in figures.

    Raises:
        StorageError: If the file exists and may not be replaced, or cannot be written.
    """

    def render() -> bytes:
        page = render_report(assessment, table_name=table_name, model_name=model_name, seed=seed)
        return page.encode()

    if str(path) == "-":
        sys.stdout.buffer.write(render())
        sys.stdout.buffer.flush()
        return
    with stored_file(Path(path), overwrite=overwrite) as file:
        file.write(render())


def _names(table_name: str, model_name: str) -> dict[str, str]:
    return {
        "table_name": clean(table_name),
        "model_name": clean(model_name),
        "model_literal": repr(clean(model_name)),
        "model_word": shlex.quote(clean(model_name)),
    }


def _facts(assessment: Assessment) -> dict[str, Any]:
    """Return what the template fills in; every name and number as plain text."""
    model, facts = assessment.model, describe(assessment.model)
    standing = assessment.standing
    return {
        "flow": facts["flow"],
        "weights": f"{facts['weights']:,}",
        "column_headers": _column_headers(facts),
        "columns": _column_rows(facts),
        "given": [clean(name) for name in model.given_columns],
        "features": model.features,
        "settings": [(clean(name), clean(value)) for name, value in facts["settings"].items()],
        "fit_text": say_fit(facts["training"]),
        "rows_text": say_rows(assessment),
        "judged": assessment.parts.judged.name,
        "judged_text": say_judged(assessment.parts.judged.name),
        "nats": typeset(standing.model[0], 3),
        "error": typeset(standing.model[1], 3),
        "gain": None if standing.gain is None else typeset(standing.gain[0], 2, sign=True),
        "gain_text": say_gain(standing, assessment.baseline),
        "baseline": assessment.baseline,
        "baseline_text": _baseline_text(assessment),
        "column_text": COLUMNS_TEXT[model.encoding.noisy],
        "memory_text": say_memory(assessment),
        "has_validation": model.record.get("valid") is not None,
        "standings": [_standing_row(entry) for entry in assessment.standings],
        "verdict": assessment.verdict,
        "tests": _test_rows(assessment),
        "shown_pairs": [clean(name) for name in paired_columns(assessment)],
        "least_headers": _least_headers(assessment),
        "least": _least_rows(assessment),
        "private": assessment.private,
        "care": [[clean(part) for part in care] for care in assessment.care],
    }


def _baseline_text(assessment: Assessment) -> str:
    """Return what the model is held against, as part of a sentence."""
    if not assessment.model.encoding.noisy:
        return "that every column has its own distribution, whatever the others are"
    if assessment.model.given_columns:
        return "a linear regression with Gaussian noise"
    return "a Gaussian with the covariance of the training rows"


def _column_headers(facts: dict[str, Any]) -> list[str]:
    kinds = any("read_as" in column for column in facts["columns"])
    return ["column", "type", "read as"] if kinds else ["column", "type", "mean", "deviation"]


def _column_rows(facts: dict[str, Any]) -> list[list[Cell]]:
    given = [column | {"type": "given"} for column in facts["given_columns"]]
    rows = []
    for column in [*facts["columns"], *given]:
        named = [Cell(clean(column["name"])), Cell(clean(column["type"]))]
        if "read_as" in column:
            rows.append([*named, Cell(clean(column["read_as"]))])
            continue
        moments = [Cell(f"{column[key]:.6g}", column[key]) for key in ("mean", "deviation")]
        rows.append([*named, *moments])
    return rows


def _standing_row(standing: Standing) -> list[Cell]:
    cells = [Cell(standing.part), Cell(f"{standing.rows:,}", standing.rows)]
    for pair, sign in ((standing.model, False), (standing.baseline, False), (standing.gain, True)):
        mean, error = pair or (math.nan, math.nan)
        if pair is None:
            cells.append(Cell("–", math.nan))
        else:
            spread = f" ± {typeset(error, 3)}" if not math.isnan(error) else ""
            cells.append(Cell(f"{typeset(mean, 3, sign=sign)}{spread}", mean))
    return cells


def _test_rows(assessment: Assessment) -> list[list[Cell]]:
    check = assessment.check
    rows = []
    for test in check.tests:
        kind = "column" if test in check.columns else "whole row"
        chance = "< 0.0001" if test.p_value < 1e-4 else f"{test.p_value:.4f}"
        rows.append(
            [
                Cell(clean(test.name)),
                Cell(kind),
                Cell(f"{test.gap:.1%}", test.gap),
                Cell(chance, test.p_value),
            ]
        )
    return rows


def _least_headers(assessment: Assessment) -> Sequence[str]:
    model = assessment.model
    names = [clean(name) for name in (*model.columns, *model.given_columns)]
    return ["row", "of", "log-density", "what is unlikely", *names]


def _least_rows(assessment: Assessment) -> list[list[Cell]]:
    return [
        [
            Cell(f"{row.number:,}", row.number),
            Cell(row.part),
            Cell(typeset(row.log_density, 2), row.log_density),
            Cell(clean(row.why)),
            *(_value(value) for value in row.values),
        ]
        for row in assessment.least
    ]


def _value(value: Any) -> Cell:
    """Return the cell of a value as it is written; nothing where it is empty."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return Cell(f"{value:.6g}", value)
    return Cell("" if value is None else clean(value))
