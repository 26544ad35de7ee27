"""``bnaf compare``: several densities of one table, ranked."""

from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from bnaf._text import number
from bnaf.cli import options
from bnaf.cli.messages import say
from bnaf.cli.places import check_streams

if TYPE_CHECKING:
    from bnaf.evaluation.comparison import Comparison
    from bnaf.tables.frames import Frame

EXAMPLES = """Examples:

bnaf compare sales.csv --flows bnaf,glow --seconds 60

bnaf compare sales.csv --flows all --seconds 60

bnaf compare sales.csv --as zip=category --bounds price=0: --seconds 60

bnaf compare train.csv --test test.csv --json
"""


@options.reads_tables
def compare(
    table: options.TableFile,
    columns: options.Columns = None,
    kinds: options.Kinds = None,
    bounds: options.Bounds = None,
    flows: Annotated[
        list[str] | None,
        Option(
            metavar="NAMES",
            help="Flows, as a,b, or all; bnaf,glow,planar by default.",
            autocompletion=options.complete_flow,
        ),
    ] = None,
    test: Annotated[str | None, Option(help="Test rows: a file, or a share of the rows.")] = None,
    seconds: options.Seconds = None,
    epochs: options.Epochs = None,
    steps: options.Steps = None,
    seed: options.Seed = None,
    drop_missing: options.DropMissing = False,
    drop_constant: options.DropConstant = False,
    dequantise: options.Dequantise = None,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
    *,
    reading: dict[str, Any],
) -> None:
    """Rank flows, a Gaussian mixture, a kernel density and a Gaussian by held-out rows.

    Where columns are text, discrete or have empty cells and no flows are named, it is the flow of
    rows of every kind beside independent columns; so it is where all that are named take every
    kind (bnaf, mixed) and columns are no complete numbers. Where one that is named takes numbers
    alone and no columns are, all get the columns of numbers. Budgets are those of each flow.
    """
    check_streams(table, test)
    from bnaf.cli.files import numbers_alone, read_any, read_numbers, read_share, reads_kinds
    from bnaf.evaluation.comparison import EVERY_FLOW, compare_densities, compare_kinds
    from bnaf.flows.registry import flow_names
    from bnaf.tables.reading import read_table
    from bnaf.training import TrainingSettings

    settings = TrainingSettings(
        **options.chosen(seconds=seconds, epochs=epochs, steps=steps, seed=seed)
    )
    how = reading | {
        "columns": options.split_names(columns),
        "drop_missing": drop_missing,
        "dequantise": options.noisy(dequantise),
        "seed": settings.seed,
    }
    fitting: dict[str, Any] = {
        "settings": settings,
        "announce": None if quiet else lambda name: say(f"fitting {name}"),
        "progress": not quiet,
    }
    names, meanings = options.split_names(flows), options.read_meanings(kinds, bounds)
    wanted = flow_names() if EVERY_FLOW in (names or ()) else names
    numeric = [name for name in wanted or () if not reads_kinds(name)]
    if dequantise or numeric:
        _refuse_meanings(meanings, numeric)
        with numbers_alone(numeric):
            if numeric and how["columns"] is None:
                rows = read_numbers(table, numeric, how | {"drop_constant": drop_constant})
                how["columns"] = list(rows.columns)
            else:
                rows = read_table(table, **how, drop_constant=drop_constant)
    else:
        frame = read_any(table, reading, how["columns"], drop_missing, drop_constant)
        if not _are_numbers(frame, wanted, meanings):
            judged = read_share(test, how, beside=frame)
            meant = {name: value for name, value in meanings.items() if value}
            comparison = compare_kinds(frame, **meant, **fitting, **options.chosen(test=judged))
            _report(comparison, as_json=as_json)
            return
        rows = read_table(frame.to_arrow())
    comparison = compare_densities(
        rows,
        flows=names,
        **fitting,
        **options.chosen(test=read_share(test, how | {"dequantise": rows.grid})),
    )
    _report(comparison, as_json=as_json)


def _refuse_meanings(meanings: dict[str, Any], flows: list[str]) -> None:
    """Refuse what is told of columns that are taken for plain numbers."""
    why = f"the flow {flows[0]!r} takes numbers alone" if flows else "--dequantise for numbers"
    for option, told in zip(("--as", "--bounds"), meanings.values(), strict=True):
        if told:
            raise typer.BadParameter(
                f"{option} is for columns of every kind, and {why}; leave one of them out."
            )


def _are_numbers(frame: "Frame", flows: list[str] | None, meanings: dict[str, Any]) -> bool:
    """Return whether columns are to have densities, as plain numbers do."""
    from bnaf.columns.detection import is_plain
    from bnaf.flows.registry import flow_named

    if flows is None or any(meanings.values()):
        return is_plain(frame, frame.names, (), **meanings)
    if not all(flow_named(name).takes_numbers for name in flows):
        return False
    return all(column.holds == "numbers" and not column.empty.any() for column in frame.columns)


def _report(comparison: "Comparison", *, as_json: bool) -> None:
    from bnaf.cli.screen import show_json, show_lines, show_table

    entries = [entry.as_dict() for entry in comparison.entries]
    if as_json:
        counts = {"train_rows": comparison.train_rows, "test_rows": comparison.test_rows}
        show_json(counts | {"entries": entries})
        return
    show_lines(
        f"mean log-likelihood of {comparison.test_rows:,} test rows, in nats per row; "
        f"{comparison.train_rows:,} rows to train on"
    )
    headers = ["", "density", "nats", "±", "behind", "±", "weights", "seconds", "note"]
    rows = [
        [
            rank,
            entry["name"],
            number(entry["mean"]),
            number(entry["standard_error"]),
            number(entry["behind"]),
            number(entry["behind_error"]),
            "" if entry["weights"] is None else f"{entry['weights']:,}",
            number(entry["seconds"], 1),
            entry["note"],
        ]
        for rank, entry in enumerate(entries, 1)
    ]
    show_table(headers, rows)
