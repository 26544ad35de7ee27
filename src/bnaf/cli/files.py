"""Models and tables at the command line, where - stands for a standard stream."""

import math
import secrets
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Any

import typer

from bnaf.cli.messages import say
from bnaf.cli.places import check_new, is_stream
from bnaf.cli.screen import show_json, show_lines, show_table
from bnaf.errors import Argument, KindError, StorageError, TableError
from bnaf.flows.flow import Flow
from bnaf.flows.registry import flow_named
from bnaf.model.files import load, save
from bnaf.model.model import Model
from bnaf.tables.arrow import ArrowColumns
from bnaf.tables.formats import written_format
from bnaf.tables.frame_streams import FrameStream
from bnaf.tables.frames import Frame, read_frame
from bnaf.tables.names import find_columns, list_columns
from bnaf.tables.reading import read_table
from bnaf.tables.streams import ParquetStream
from bnaf.tables.table import Table
from bnaf.tables.ties import nothing_varies
from bnaf.tables.writing import write_table
from bnaf.training import is_of_run


def load_any(path: Path) -> Flow | Model:
    """Return what a model file, or standard input, holds."""
    if not is_stream(path):
        kept: Flow | Model = load(path)
        return kept
    with TemporaryDirectory() as folder:
        copy = Path(folder) / "standard-input"
        copy.write_bytes(sys.stdin.buffer.read())
        kept = load(copy)
        return kept


def load_model(path: Path) -> Model:
    """Return the model of a file; a bare flow becomes one of columns x0, x1, ...."""
    kept = load_any(path)
    return kept if isinstance(kept, Model) else Model(kept)


def save_model(model: Model, path: Path, *, force: bool) -> None:
    """Write a model to a file, or to standard output.

    Where the file cannot be written the model is kept elsewhere, and that is told.

    Raises:
        StorageError: If it could not be written where it was wanted.
    """
    if not is_stream(path):
        try:
            save(model, path, overwrite=force)
        except StorageError:
            _rescue(model, path)
            raise
        return
    with TemporaryDirectory() as folder:
        copy = Path(folder) / "standard-output"
        save(model, copy)
        sys.stdout.buffer.write(copy.read_bytes())
        sys.stdout.buffer.flush()


def _rescue(model: Model, path: Path) -> None:
    """Keep a model in another folder than the one it was meant for, and say where."""
    name = f"{path.stem}-{secrets.token_hex(4)}.safetensors"
    for folder in (Path(gettempdir()), Path.home(), Path.cwd()):
        with suppress(StorageError):
            save(model, folder / name, overwrite=False)
            say(f"the model is kept in {folder / name}.")
            return


def continues(out: Path, checkpoint: Path | None) -> bool:
    """Return whether a file holds a model of the very run that a checkpoint is of."""
    if checkpoint is None or is_stream(out) or not out.is_file() or not checkpoint.is_file():
        return False
    try:
        kept = load(out)
        return isinstance(kept, Model) and is_of_run(checkpoint, kept.record)
    except StorageError:
        return False


def read_rows(
    model: Model,
    path: Path,
    reading: dict[str, Any],
    *,
    drop_missing: bool = False,
    dequantise: bool | Sequence[str] | Mapping[str, float] = False,
) -> Table:
    """Return the columns of a model from a table, given ones included.

    Noise is that of the fit, so that the same options give the same rows.

    Args:
        model: The model.
        path: The table.
        reading: Arguments of :func:`bnaf.read_table` that say how it is written.
        drop_missing: Whether to leave out rows with a missing or infinite value.
        dequantise: Whether to spread values that repeat, or of which columns.
    """
    how = dict(reading)
    if model.encoding.noisy:
        dequantise = dequantise or model.record.get("grid", False)
    elif dequantise:
        raise typer.BadParameter(
            "--dequantise is for models of plain numbers, and this one knows what its columns "
            "hold; leave it out."
        )
    if dequantise:
        settings = model.record.get("settings")
        seed = settings.get("seed") if isinstance(settings, dict) else None
        how |= {"dequantise": dequantise, "seed": seed if type(seed) is int and seed >= 0 else 0}
    return model.read(path, drop_missing=drop_missing, **how)


def reads_kinds(flow: str | None) -> bool:
    """Return whether a flow takes columns of every kind."""
    return flow is None or flow_named(flow).takes_kinds


def streams_kinds(
    flow: str | None, meanings: Mapping[str, Any], dequantise: object
) -> bool | None:
    """Return whether a stream is one of columns of every kind; none if that is up to the file."""
    if dequantise or not reads_kinds(flow):
        return False
    told = any(meanings.values()) or (flow is not None and not flow_named(flow).takes_numbers)
    return True if told else None


@contextmanager
def numbers_alone(flows: Sequence[str]) -> Iterator[None]:
    """Say who takes numbers alone, flows or ``--dequantise``, where columns are of other kinds.

    Args:
        flows: Names of the flows that do.

    Raises:
        KindError: If a table is read that has other columns.
    """
    try:
        yield
    except KindError as error:
        more = ("; or name columns of numbers with ", Argument("columns"), ".")
        raise KindError(error.found, ". ", *_takers(flows), *more) from None


def _takers(flows: Sequence[str]) -> tuple[str | Argument, ...]:
    if not flows:
        return (
            "They are read as they are, and need no noise: leave out ",
            Argument("dequantise", True),
        )
    return (
        f"The {_name_flows(flows)} numbers alone, and likelihoods of fewer columns are not "
        "comparable: choose 'bnaf' or 'mixed', which take columns of every kind as they are",
    )


def _name_flows(flows: Sequence[str]) -> str:
    listed = ", ".join(map(repr, flows))
    return f"flows {listed} take" if len(flows) > 1 else f"flow {listed} takes"


def read_any(
    path: Path,
    reading: dict[str, Any],
    columns: Sequence[str] | None,
    drop_missing: bool,
    drop_constant: bool,
) -> Frame:
    """Return a table with columns of every kind, and say what of it is left out."""
    frame = read_frame(path, columns=columns, **reading)
    if frame.index is not None:
        say("the first column, which numbers the rows, is left out.")
    return _without(frame, drop_missing, drop_constant)


def _without(frame: Frame, drop_missing: bool, drop_constant: bool) -> Frame:
    """Return a frame without rows that have an empty cell, and without columns of one value.

    Raises:
        TableError: If nothing is left.
    """
    if drop_missing:
        complete = frame.take(frame.complete)
        if not len(complete):
            raise TableError(
                f"All {len(frame):,} rows have an empty cell, expected some without; leave out ",
                Argument("drop_missing", True),
                ", for empty cells are taken as they are.",
            )
        frame = complete
    if drop_constant:
        kept = [column.name for column in frame.columns if not column.constant]
        if not kept:
            raise nothing_varies(list(frame.names), len(frame))
        frame = frame.select(kept)
    return frame


def read_numbers(path: Path, flows: Sequence[str], how: Mapping[str, Any]) -> Table:
    """Return the columns of numbers of a table, and say which others are left out, and for whom.

    Args:
        path: The table.
        flows: Names of the flows that take numbers alone.
        how: Arguments of :func:`bnaf.read_table`.

    Raises:
        KindError: If it has no column of numbers.
    """
    own = ("drop_missing", "drop_constant", "dequantise", "seed")
    reading = {name: value for name, value in how.items() if name not in (*own, "columns")}
    frame = read_any(path, reading, None, False, False)
    others = [column for column in frame.columns if column.holds != "numbers"]
    if 0 < len(others) < len(frame.columns):
        said = list_columns([one.name for one in others], [one.type for one in others])
        say(f"{said} left out: the {_name_flows(flows)} numbers alone.")
        frame = frame.select([one.name for one in frame.columns if one.holds == "numbers"])
    return read_table(frame.to_arrow(), **{name: how[name] for name in own})


def show_kinds(
    rows: Table | ParquetStream | Frame | FrameStream,
    given: Sequence[str],
    meanings: dict[str, Any],
    *,
    as_json: bool,
) -> None:
    """Print how a fit would read the columns of a table.

    Args:
        rows: The table, as the fit takes it.
        given: Columns to condition on.
        meanings: What is told of columns.
        as_json: Whether to print JSON.
    """
    from bnaf.columns.schema import Schema

    if isinstance(rows, FrameStream):
        frame = rows.sample()
        if len(frame) < rows.rows:
            say(f"columns are read off a random sample, {len(frame):,} of {rows.rows:,} rows.")
        rows = frame
    if isinstance(rows, Frame):
        count, told = len(rows), Schema.fit(rows, **meanings).describe()
        empty = {name: int(rows[name].empty.sum()) for name in rows.names}
    else:
        count = rows.rows if isinstance(rows, ParquetStream) else len(rows)
        told, empty = dict.fromkeys(rows.columns, "numbers"), dict.fromkeys(rows.columns, 0)
    find_columns(given, [*empty])
    lines = [
        [name, f"given, {told[name]}" if name in given else told[name], cells]
        for name, cells in empty.items()
    ]
    if as_json:
        keys = ("name", "read_as", "empty")
        listed = [dict(zip(keys, line, strict=True)) for line in lines]
        show_json({"rows": count, "columns": listed})
        return
    show_table(["column", "read as"], [line[:2] for line in lines])
    show_lines(f"{count:,} rows, {len(lines)} columns")


def read_share(
    value: str | None, reading: dict[str, Any], *, beside: object = None
) -> Table | Frame | float | None:
    """Return the rows of a file, or the share of the rows that a number stands for.

    Args:
        value: What was given.
        reading: Arguments of :func:`bnaf.read_table`.
        beside: Rows that these go with. Beside a frame they may be of every kind, and what is
            text there is text here.
    """
    if value is None:
        return None
    try:
        share = float(value)
    except ValueError:
        share = math.nan
    if math.isfinite(share):
        return share
    if not isinstance(beside, Frame | FrameStream):
        return read_table(value, **reading, warn=False)
    own = ("drop_missing", "dequantise", "given", "seed")
    how = {name: each for name, each in reading.items() if name not in own}
    frame = read_frame(value, texts=beside.texts, **how)
    return frame.take(frame.complete) if reading["drop_missing"] else frame


def write_rows(
    table: Table | ArrowColumns, path: Path, format: str | None = None, *, force: bool = False
) -> None:
    """Write a table to a file or to standard output; a terminal gets no control characters.

    Args:
        table: What to write.
        path: Where.
        format: "csv", "parquet" or "npy", where the name of the file does not tell.
        force: Whether it may replace a file that exists.
    """
    shown = is_stream(path) and sys.stdout.isatty() and written_format(path, format) == "csv"
    if not shown:
        write_table(table, path, overwrite=force, format=format)
        return
    with TemporaryDirectory() as folder:
        copy = Path(folder) / "standard-output.csv"
        write_table(table, copy)
        show_lines(*copy.read_text(encoding="utf-8").rstrip("\n").split("\n"))


def check_new_table(path: Path | None, format: str | None = None, *, force: bool) -> None:
    """Check, before the work is done, that a table can be written so.

    Raises:
        StorageError: As :func:`check_new`.
        TableError: If tables are not written in the format.
    """
    check_new(path, force=force)
    if path is not None:
        written_format(path, format)
