"""``bnaf sample``: rows drawn from a model."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from bnaf.cli import options

if TYPE_CHECKING:
    from bnaf.model.model import Model

EXAMPLES = """Examples:

bnaf sample sales.safetensors -n 1000 --out drawn.parquet

bnaf sample sales.safetensors -n 5 --given weekday=3 --seed 0

bnaf sample sales.safetensors -n 1000 | head
"""


def sample(
    model: options.ModelFile,
    count: Annotated[int, Option("-n", "--count", min=0, help="How many rows.")],
    out: Annotated[
        Path, Option("--out", "-o", help="File to write: .csv, .parquet or .npy; - for CSV.")
    ] = Path("-"),
    given: Annotated[
        list[str] | None,
        Option(
            "--given",
            "-g",
            metavar="COLUMN=VALUE",
            help="Value of a given column, or of any one of several kinds; COLUMN= for an empty "
            "cell. Once for each.",
        ),
    ] = None,
    seed: options.Seed = None,
    complete: Annotated[
        bool, Option("--complete", help="Draw rows without empty cells only.")
    ] = False,
    within_range: Annotated[
        bool,
        Option("--within-range", help="Draw no number or date beyond those of the fit."),
    ] = False,
    redraw: Annotated[
        bool, Option("--redraw", help="Draw again where a flow that is not onto reaches nothing.")
    ] = False,
    format: Annotated[
        str | None,
        Option("--format", help="csv, parquet or npy, where the name does not tell."),
    ] = None,
    force: options.Force = False,
) -> None:
    """Draw rows, with the names, the types and the order of the columns that were modelled."""
    from bnaf.cli.files import check_new_table, load_model, write_rows

    check_new_table(out, format, force=force)
    density = load_model(model)
    drawn = density.sample_table(
        count,
        given=read_conditions(given or [], density),
        complete=complete,
        within_range=within_range,
        **options.chosen(seed=seed, outside="redraw" if redraw else None),
    )
    write_rows(drawn, out, format, force=force)


def conditions_of(model: "Model") -> Sequence[str]:
    """Return the columns that may be given: all of every kind, where none has to be."""
    return model.given_columns or (() if model.encoding.noisy else model.columns)


def read_conditions(pairs: Sequence[str], model: "Model") -> dict[str, str | None] | None:
    """Return one row of given columns, as it was written, from column=value pairs.

    No value is an empty cell, of a column that has some.

    Raises:
        BadParameter: If there is no such column, or it has no empty cells.
    """
    columns = conditions_of(model)
    values = options.read_pairs("--given", pairs, empty=True, columns=columns)
    unknown = [name for name in values if name not in columns]
    if unknown and columns:
        raise typer.BadParameter(
            f"--given names {unknown[0]!r}; the model can be given {', '.join(columns)}."
        )
    found: dict[str, str | None] = {}
    for name, value in values.items():
        found[name] = value or _empty_cell(model, name)
    return found or None


def _empty_cell(model: "Model", name: str) -> str | None:
    """Return what an empty cell of a column holds: nothing, or a text without letters."""
    schemas = (model.encoding.schema, getattr(model.encoding, "given_schema", None))
    kinds = [schema[name] for schema in schemas if schema is not None and name in schema.names]
    if kinds and "" in kinds[0].labels:
        return ""
    inner = getattr(kinds[0], "inner", kinds[0]) if kinds else None  # dates are numbers, too
    if not getattr(inner, "empty", 0):
        raise typer.BadParameter(
            f"--given {name}= stands for an empty cell, and {name!r} had none in the fit; give it "
            "a value."
        )
    return None
