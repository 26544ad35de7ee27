"""``bnaf plot``: figures of a model."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from bnaf.cli import options
from bnaf.cli.places import check_new, check_streams, is_stream
from bnaf.cli.sample import read_conditions

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from bnaf.model.model import Model
    from bnaf.report.parts import Part

EXAMPLES = """Examples:

bnaf plot density sales.safetensors --columns price,amount --out density.png

bnaf plot density sales.safetensors sales.csv --columns city,price --out density.png

bnaf plot pairs sales.safetensors sales.csv --out pairs.svg

bnaf plot calibration sales.safetensors sales.csv --out calibration.pdf

bnaf plot training sales.safetensors --out - > training.png
"""


class Kind(StrEnum):
    """What can be drawn."""

    density = "density"
    pairs = "pairs"
    training = "training"
    calibration = "calibration"
    scores = "scores"


USED: dict[Kind, tuple[str, ...]] = {  # what each is drawn from, beside the model
    Kind.density: ("a table", "--columns", "--given"),
    Kind.pairs: ("a table", "--columns"),
    Kind.training: (),
    Kind.calibration: ("a table",),
    Kind.scores: ("a table",),
}
NEEDS_TABLE = (Kind.pairs, Kind.calibration, Kind.scores)


@options.reads_tables
def plot(
    kind: Annotated[Kind, Argument(metavar="KIND", help=f"One of {', '.join(Kind)}.")],
    model: options.ModelFile,
    out: Annotated[
        Path, Option("--out", "-o", help="File to write: .png, .svg or .pdf; - for a stream.")
    ],
    table: Annotated[
        Path | None,
        Argument(
            metavar="[TABLE]",
            help="Table, for pairs, calibration and scores, and to be shown beside a density.",
        ),
    ] = None,
    columns: Annotated[
        list[str] | None,
        Option("--columns", "-c", metavar="NAMES", help="Columns to draw, as a,b."),
    ] = None,
    given: Annotated[
        list[str] | None,
        Option("--given", "-g", metavar="COLUMN=VALUE", help="Value of a given column (density)."),
    ] = None,
    image: Annotated[
        str | None, Option("--image", help="png, svg or pdf, where the name does not tell.")
    ] = None,
    drop_missing: options.DropMissing = False,
    dequantise: options.Dequantise = None,
    seed: options.Seed = None,
    force: options.Force = False,
    *,
    reading: dict[str, Any],
) -> None:
    """Draw a model: density of two columns, pairs of columns, training, calibration or scores.

    Rows of the table of the fit are split as the fit split them, and those that it did not see
    are drawn, where there are any.
    """
    check_streams(model, table)
    check_new(out, force=force)
    _check_used(kind, {"a table": table, "--columns": columns, "--given": given})
    from bnaf import plots  # with matplotlib, which takes its time
    from bnaf.cli.files import load_model, read_rows
    from bnaf.cli.screen import show_lines
    from bnaf.plots.style import check_format, encode_figure
    from bnaf.report.parts import find_parts

    format = "png" if is_stream(out) and image is None else check_format(out, image)
    density = load_model(model)
    part = None
    if table is not None:
        how: dict[str, Any] = {
            "drop_missing": drop_missing,
            "dequantise": options.noisy(dequantise),
        }
        rows = read_rows(density, table, reading, **how)
        part = find_parts(density, rows).judged
    with plots.styled():
        figure = _draw(
            kind,
            density,
            part,
            columns=options.split_names(columns),
            given=read_conditions(given or [], density),
            seed=0 if seed is None else seed,
        )
        if is_stream(out):
            sys.stdout.buffer.write(encode_figure(figure, format))
            sys.stdout.buffer.flush()
        else:
            plots.write_figure(figure, out, overwrite=force, format=format)
    drawn = "" if part is None else f" of {len(part.rows):,} {part.name} rows"
    show_lines(f"{kind}{drawn}: {out}", beside=out)


def _check_used(kind: Kind, found: dict[str, Any]) -> None:
    """Refuse what a figure would not show, and ask for the table that it needs."""
    if kind in NEEDS_TABLE and found["a table"] is None:
        raise typer.BadParameter(f"{kind} needs a table; give it after the model.")
    for name, value in found.items():
        if value and name not in USED[kind]:
            raise typer.BadParameter(f"{kind} takes no {name.removeprefix('a ')}; leave it out.")
    if found["a table"] is not None and found["--given"]:
        raise typer.BadParameter(f"{kind} takes a table or --given, not both; leave one out.")


def _draw(
    kind: Kind, model: "Model", part: "Part | None", *, columns: Any, given: Any, seed: int
) -> "Figure":
    from bnaf import plots
    from bnaf.evaluation.calibration import check_calibration

    if kind is Kind.density:
        rows = None if part is None else part.rows
        return plots.density_figure(model, columns, given=given, rows=rows, seed=seed)
    if kind is Kind.training or part is None:
        return plots.training_figure(model)
    if kind is Kind.pairs:
        return plots.pairs_figure(model, part.rows, columns, seed=seed)
    if kind is Kind.calibration:
        return plots.calibration_figure(check_calibration(model, part.rows, seed=seed))
    scores = {f"{part.name} rows": model.log_prob(part.rows)}
    return plots.scores_figure(model, scores, part.rows, seed=seed)
