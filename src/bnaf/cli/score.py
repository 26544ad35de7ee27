"""``bnaf score``: log-densities of the rows of a table."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from bnaf._text import number
from bnaf.cli import options
from bnaf.cli.places import check_output, check_streams

if TYPE_CHECKING:
    from torch import Tensor

    from bnaf.evaluation.scores import Scores
    from bnaf.model.model import Model
    from bnaf.tables.table import Table

SHOWN = 10  # rows, where cells are asked for and nothing else
EXAMPLES = """Examples:

bnaf score sales.safetensors new.csv

bnaf score sales.safetensors new.csv --least 10 --out scores.csv

bnaf score sales.safetensors new.csv --cells   (which cell makes a row unlikely)

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
    cells: Annotated[
        bool,
        Option(
            "--cells",
            help="Give the share of each cell, log p(cell | the cells before it), and show the 10 "
            "least likely rows unless --least or --out says otherwise.",
        ),
    ] = False,
    drop_missing: options.DropMissing = False,
    force: options.Force = False,
    as_json: options.Json = False,
    *,
    reading: dict[str, Any],
) -> None:
    """Print the mean log-density of the rows of a table, in nats and in its units.

    What is discrete has a mass, what is continuous a density; empty cells are integrated out.
    Rows count from 1, as they stand in the file.
    """
    check_streams(model, table)
    check_output(out, as_json=as_json)
    from bnaf.cli.files import check_new_table, load_model, read_rows, write_rows
    from bnaf.cli.screen import show_json, show_lines, show_table
    from bnaf.evaluation.scores import COLUMN, Scores, score_table

    check_new_table(out, force=force)
    density = load_model(model)
    rows = read_rows(density, table, reading, drop_missing=drop_missing)
    if cells and least is None and out is None:  # what they are asked for
        least = SHOWN
    shares = density.log_shares(rows) if cells else None
    scores = score_table(density, rows) if shares is None else Scores(shares.sum(1))
    if out is not None:
        numbers = rows.numbers if drop_missing else None
        write_rows(scores.as_table(numbers, shares, density.columns), out, force=force)
    found = _least(density, scores, rows, least, shares) if least else []
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
        why = ["least likely cell"] if cells else []
        shown = [
            [row["row"], row[COLUMN], *([row["least"]] if cells else []), *row["values"].values()]
            for row in found
        ]
        show_table(["row", COLUMN, *why, *rows.columns], shown, beside=out)


def _least(
    model: "Model", scores: "Scores", rows: "Table", count: int, shares: "Tensor | None"
) -> list[dict[str, Any]]:
    """Return the least likely rows: number, score, and by name the values of the columns."""
    from bnaf.evaluation.scores import COLUMN

    indices = scores.least_likely(count)
    chosen = rows.take(indices)
    assert chosen.numbers is not None
    values = model.encoding.values(chosen.rows)
    found: list[dict[str, Any]] = [
        {
            "row": int(chosen.numbers[place]) + 1,
            COLUMN: float(scores.log_densities[index]),
            "values": dict(zip(rows.columns, values[place], strict=True)),
        }
        for place, index in enumerate(indices.tolist())
    ]
    if shares is not None:
        for row, own in zip(found, shares[indices].tolist(), strict=True):
            row["cells"] = dict(zip(model.columns, own, strict=True))
            name = min(row["cells"], key=row["cells"].__getitem__)
            row["least"] = f"{name} ({number(row['cells'][name])})"
    return found
