"""``bnaf score``: log-densities of the rows of a table."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from bnaf._text import number
from bnaf.cli import options

if TYPE_CHECKING:
    from bnaf.evaluation.scores import Scores
    from bnaf.tables.table import Table

EXAMPLES = """Examples:

bnaf score sales.safetensors new.csv

bnaf score sales.safetensors new.csv --least 10 --out scores.csv

cat new.csv | bnaf score sales.safetensors - --json
"""


@options.reads_tables
def score(
    model: options.ModelFile,
    table: options.TableFile,
    out: Annotated[
        Path | None,
        Option("--out", "-o", help="File for the nats per row: .csv, .parquet, .npy or -."),
    ] = None,
    least: Annotated[
        int | None, Option(min=1, help="How many of the least likely rows to show.")
    ] = None,
    drop_missing: options.DropMissing = False,
    force: options.Force = False,
    as_json: options.Json = False,
    *,
    reading: dict[str, Any],
) -> None:
    """Print the mean log-density of the rows of a table, in nats and in its units.

    Rows count from 1, after those that are left out.
    """
    from bnaf.cli.files import (
        check_new_table,
        check_output,
        check_streams,
        load_model,
        read_rows,
    )
    from bnaf.cli.screen import show_json, show_lines, show_table
    from bnaf.evaluation.scores import COLUMN, score_table
    from bnaf.tables.writing import write_table

    check_streams(model, table)
    check_output(out, as_json=as_json)
    check_new_table(out, force=force)
    density = load_model(model)
    rows = read_rows(density, table, reading, drop_missing=drop_missing)
    scores = score_table(density, rows)
    if out is not None:
        write_table(scores.as_table(), out, overwrite=force)
    found = _least(scores, rows, least) if least else []
    if as_json:
        show_json(
            {"rows": len(scores), "mean": scores.mean, "standard_error": scores.standard_error}
            | ({"least": found} if least else {})
        )
        return
    show_lines(
        f"{number(scores.mean)} ± {number(scores.standard_error) or '?'} nats per row over "
        f"{len(scores):,} rows",
        beside=out,
    )
    if found:
        rows_shown = [[row["row"], row[COLUMN], *row["values"].values()] for row in found]
        show_table(["row", COLUMN, *rows.columns], rows_shown, beside=out)


def _least(scores: "Scores", rows: "Table", count: int) -> list[dict[str, Any]]:
    """Return the least likely rows: number, score, and by name the values of the columns."""
    from bnaf.evaluation.scores import COLUMN

    indices = scores.least_likely(count)
    values = zip(
        indices.tolist(),
        scores.log_densities[indices].tolist(),
        rows.take(indices).rows.tolist(),
        strict=True,
    )
    return [
        {"row": index + 1, COLUMN: score, "values": dict(zip(rows.columns, row, strict=True))}
        for index, score, row in values
    ]
