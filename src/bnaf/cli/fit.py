"""``bnaf fit``: from a table to a model file."""

from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Option

from bnaf._text import number
from bnaf.cli import options
from bnaf.cli.messages import INTERRUPTED, say
from bnaf.cli.places import check_new, check_output, check_streams
from bnaf.errors import TrainingError

EXAMPLES = """Examples:

bnaf fit sales.csv --out sales.safetensors

bnaf fit sales.csv --columns price,amount --given weekday --seconds 60 --out sales.safetensors

bnaf fit sales.csv --test 0.2 --out sales.safetensors   (rows for bnaf report to judge by)

bnaf fit sales.csv --dry-run   (how every column is read)

bnaf fit sales.csv --as zip=category --bounds price=0: --out sales.safetensors

bnaf fit big.parquet --stream --checkpoint run.ckpt --out big.safetensors   (again to resume)

zcat rows.csv.gz | bnaf fit - --out - | bnaf sample - -n 100
"""


@options.reads_tables
def fit(
    table: options.TableFile,
    out: Annotated[
        Path | None, Option("--out", "-o", help="Model file to write; - for standard output.")
    ] = None,
    columns: options.Columns = None,
    given: Annotated[
        list[str] | None,
        Option("--given", "-g", metavar="NAMES", help="Columns to condition on, as a,b."),
    ] = None,
    kinds: options.Kinds = None,
    bounds: options.Bounds = None,
    dry_run: Annotated[
        bool, Option("--dry-run", help="Show how columns are read, and fit nothing.")
    ] = False,
    valid: Annotated[
        str | None, Option(help="Validation rows: a file, or a share of the rows; 0 for none.")
    ] = None,
    test: Annotated[
        float, Option(help="Share of the rows that the fit never sees; bnaf report judges by it.")
    ] = 0.0,
    flow: Annotated[
        str | None, Option(help="Which flow.", autocompletion=options.complete_flow)
    ] = None,
    members: Annotated[
        int | None,
        Option(help="Flows whose densities are averaged, of one column given others."),
    ] = None,
    seconds: options.Seconds = None,
    epochs: options.Epochs = None,
    steps: options.Steps = None,
    seed: options.Seed = None,
    checkpoint: Annotated[
        Path | None,
        Option(help="File to keep the run in, and to go on from.", rich_help_panel="Training"),
    ] = None,
    logs: Annotated[
        Path | None,
        Option(help="Folder for a CSV log of every evaluation.", rich_help_panel="Training"),
    ] = None,
    devices: options.Devices = None,
    nodes: options.Nodes = None,
    strategy: options.Strategy = None,
    precision: options.Precision = None,
    compile: options.Compile = False,
    drop_missing: options.DropMissing = False,
    drop_constant: options.DropConstant = False,
    dequantise: options.Dequantise = None,
    stream: options.Stream = None,
    force: options.Force = False,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
    *,
    reading: dict[str, Any],
) -> None:
    """Fit a density to the rows of a table, and keep it as a model file.

    Columns may be text, whole or rounded numbers, dates or numbers, and cells may be empty. The
    same command with the same --checkpoint goes on with a run that was cut short.
    """
    meanings = options.read_meanings(kinds, bounds)
    check_streams(table, valid)
    names, conditions = options.split_names(columns), options.split_names(given) or []
    for name in conditions:
        if name in (names or []):
            raise typer.BadParameter(f"{name!r} is both in --columns and in --given; choose one.")
    if not dry_run:
        if out is None:
            raise typer.BadParameter("--out is needed, or --dry-run; name the file to write.")
        check_output(out, as_json=as_json)
    from bnaf.cli.files import (
        continues,
        numbers_alone,
        read_any,
        read_share,
        reads_kinds,
        save_model,
        show_kinds,
        streams_kinds,
    )
    from bnaf.model.description import describe
    from bnaf.model.model import Model
    from bnaf.tables.frame_streams import FrameStream
    from bnaf.tables.frames import Frame
    from bnaf.tables.opening import is_large, open_stream
    from bnaf.tables.reading import read_table
    from bnaf.tables.streams import ParquetStream
    from bnaf.tables.table import Table
    from bnaf.training import TrainingSettings

    if out is not None and not dry_run:
        force = force or continues(out, checkpoint)
        check_new(out, force=force)
    settings = TrainingSettings(
        **options.chosen(seconds=seconds, epochs=epochs, steps=steps, seed=seed),
        **options.chosen(devices=options.count_devices(devices), nodes=nodes, strategy=strategy),
        **options.chosen(precision=precision, compile=compile or None),
    )
    how = reading | {
        "columns": [*names, *conditions] if names else None,
        "drop_missing": drop_missing,
        "dequantise": options.noisy(dequantise),
        "given": conditions,
        "seed": settings.seed,
    }
    rows: Table | ParquetStream | Frame | FrameStream
    with numbers_alone([] if flow is None or reads_kinds(flow) else [flow]):
        if stream or (stream is None and is_large(table, how["columns"])):
            rows = open_stream(
                table,
                drop_constant=drop_constant,
                kinds=streams_kinds(flow, meanings, dequantise),
                **options.streaming(how),
            )
        elif dequantise or not reads_kinds(flow):
            rows = read_table(table, **how, drop_constant=drop_constant)
        else:
            rows = read_any(table, reading, how["columns"], drop_missing, drop_constant)
    if out is None or dry_run:
        show_kinds(rows, conditions, meanings, as_json=as_json)
        return
    if isinstance(rows, Table | ParquetStream):
        how |= {"dequantise": rows.grid}
    try:
        model = Model.fit(
            rows,
            given=conditions,
            valid=read_share(valid, how, beside=rows),
            announce=None if quiet else say,
            **{name: value for name, value in meanings.items() if value},
            test=test,
            settings=settings,
            checkpoint=checkpoint,
            logs=logs,
            progress=not quiet,
            **options.chosen(flow=flow, members=members),
        )
    except TrainingError as error:
        if not _is_first_process():
            return
        if error.model is not None:
            save_model(error.model, out, force=force)
            say(f"{out} has the best weights so far.")
        raise
    if not _is_first_process():
        return
    if isinstance(rows, Table | ParquetStream) and rows.grid:
        model.record["grid"] = dict(rows.grid)
    save_model(model, out, force=force)
    split = model.record["split"]
    seen = split["rows"] - split["test"]
    _report(describe(model) | {"rows": seen, "out": str(out)}, out, as_json=as_json)


def _is_first_process() -> bool:
    """Return whether this process, of those that may have trained together, is to speak."""
    import torch

    group = torch.distributed
    return not (group.is_available() and group.is_initialized() and group.get_rank() > 0)


def _report(facts: dict[str, Any], out: Path, *, as_json: bool) -> None:
    """Print how the fit went; one that was interrupted has kept its best weights."""
    from bnaf.cli.screen import show_json, show_lines

    training = facts["training"]
    if as_json:
        show_json(facts)
    else:
        found = number(training.get("log_likelihood"))
        said = [f"log-likelihood {found} nats per row while training"]
        if "valid_log_likelihood" in training:
            said.append(f"validation {number(training['valid_log_likelihood'])}")
        given = f" given {len(facts['given_columns'])}" if facts["given_columns"] else ""
        show_lines(
            f"{facts['flow']} with {facts['weights']:,} weights, fitted to {facts['rows']:,} rows "
            f"of {len(facts['columns'])} columns{given} in {training['seconds']:.1f} s "
            f"({training['steps']:,} steps, {training['reason']})",
            ", ".join(said),
            f"model: {out}",
            beside=out,
        )
    if training["reason"] == "interrupted":
        say("interrupted; the model has the best weights so far.")
        raise typer.Exit(INTERRUPTED)
