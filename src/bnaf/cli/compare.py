"""``bnaf compare``: several densities of one table, ranked."""

from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from bnaf._text import number
from bnaf.cli import options
from bnaf.cli.messages import say
from bnaf.cli.places import check_streams

if TYPE_CHECKING:
    from bnaf.evaluation.comparison import Comparison

EXAMPLES = """Examples:

bnaf compare sales.csv --flows bnaf,glow --seconds 60

bnaf compare sales.csv --flows all --seconds 60

bnaf compare train.csv --test test.csv --json
"""


@options.reads_tables
def compare(
    table: options.TableFile,
    columns: options.Columns = None,
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
    rows of every kind beside independent columns. Budgets are those of each flow.
    """
    check_streams(table, test)
    from bnaf.cli.files import read_any, read_share
    from bnaf.columns.detection import is_plain
    from bnaf.evaluation.comparison import compare_densities, compare_kinds
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
    if flows is None and not dequantise:
        frame = read_any(table, reading, how["columns"], drop_missing, drop_constant)
        if not is_plain(frame, frame.names, (), {}, {}):
            judged = read_share(test, how, beside=frame)
            comparison = compare_kinds(frame, **fitting, **options.chosen(test=judged))
            _report(comparison, as_json=as_json)
            return
    rows = read_table(table, **how, drop_constant=drop_constant)
    comparison = compare_densities(
        rows,
        flows=options.split_names(flows),
        **fitting,
        **options.chosen(test=read_share(test, how | {"dequantise": rows.grid})),
    )
    _report(comparison, as_json=as_json)


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
