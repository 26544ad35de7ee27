"""``bnaf report``: one page on what was fitted, and how well."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from bnaf._text import number
from bnaf.cli import options
from bnaf.cli.places import check_new, check_output, check_streams, is_stream

if TYPE_CHECKING:
    from bnaf.report import Assessment

EXAMPLES = """Examples:

bnaf report sales.safetensors sales.csv

bnaf report sales.safetensors sales.csv --test new.csv --out sales-report.html

bnaf report sales.safetensors sales.csv --out - > page.html
"""


@options.reads_tables
def report(
    model: options.ModelFile,
    table: options.TableFile,
    out: Annotated[
        Path | None,
        Option("--out", "-o", help="HTML file to write; - for standard output. MODEL.html else."),
    ] = None,
    test: Annotated[
        Path | None, Option(help="More rows to judge by, which the fit did not see.")
    ] = None,
    least: Annotated[
        int | None, Option(min=1, help="How many of the least likely rows to show.")
    ] = None,
    private: Annotated[
        bool, Option("--private", help="Leave out rows of the table, and figures that show some.")
    ] = False,
    drop_missing: options.DropMissing = False,
    dequantise: options.Dequantise = None,
    seed: options.Seed = None,
    force: options.Force = False,
    as_json: options.Json = False,
    *,
    reading: dict[str, Any],
) -> None:
    """Write a page on a model: how well it fits, calibration, least likely rows, what needs care.

    TABLE is that of the fit, read with the same options; its rows are then split as the fit split
    them. The page is one HTML file that needs no network.
    """
    check_streams(model, table, test)
    out = _default_out(model) if out is None else out
    check_output(out, as_json=as_json)
    check_new(out, force=force)
    from bnaf.cli.files import load_model, read_rows
    from bnaf.cli.screen import show_json, show_lines
    from bnaf.report import assess, write_report  # with matplotlib, which takes its time

    density = load_model(model)
    how: dict[str, Any] = {"drop_missing": drop_missing, "dequantise": options.noisy(dequantise)}
    rows = read_rows(density, table, reading, **how)
    how["dequantise"] = rows.grid
    found = assess(
        density,
        rows,
        new_rows=None if test is None else read_rows(density, test, reading, **how),
        private=private,
        **options.chosen(least=least, seed=seed),
    )
    write_report(
        found,
        out,
        overwrite=force,
        table_name="standard input" if is_stream(table) else table.name,
        model_name="model.safetensors" if is_stream(model) else model.name,
        **options.chosen(seed=seed),
    )
    if as_json:
        show_json(found.as_dict() | {"out": str(out)})
    else:
        show_lines(*_summary(found), f"report: {out}", beside=out)


def _default_out(model: Path) -> Path:
    if str(model) == "-":
        raise typer.BadParameter("--out is needed where the model is read from standard input.")
    return model.with_suffix(".html")


def _summary(found: "Assessment") -> list[str]:
    lines = []
    for entry in found.standings:
        gain = ""
        if entry.gain is not None:
            error = number(entry.gain[1]) or "?"
            gain = f", {number(entry.gain[0])} ± {error} above {found.baseline}"
        lines.append(
            f"{entry.part} rows: {number(entry.model[0])} ± {number(entry.model[1]) or '?'} nats "
            f"per row{gain} ({entry.rows:,} rows)"
        )
    lines.append(f"calibration: {found.verdict.sentence}")
    if found.care:
        names = list(dict.fromkeys(care.column for care in found.care))
        lines.append(f"columns that need care: {', '.join(names)}")
    return lines
