"""Text with one row per line: CSV and its kin."""

import csv
import io
import math
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from bnaf.errors import Argument, TableError
from bnaf.tables.arrow import ArrowColumns, RawColumn, arrow_columns, arrow_table
from bnaf.tables.format import Format, Limits, Reading
from bnaf.tables.table import Table

DELIMITERS = {",": "a comma", ";": "a semicolon", "\t": "a tab", "|": "a bar"}
READ_BYTES = 2**20  # at a time
DATE_FORMATS = ("%Y/%m/%d", "%d.%m.%Y")  # beside ISO 8601; day and month are not to be mistaken


def read_csv(text: bytes, name: str, reading: Reading) -> Any:
    """Return the Arrow table of a CSV file.

    Args:
        text: What stands in the file.
        name: What to call it in messages.
        reading: What stands between values, before decimals, and in the first line.

    Raises:
        TableError: If there is no table in it.
    """
    delimiter = "," if reading.delimiter is None else reading.delimiter
    _check_mark("delimiter", delimiter)
    _check_mark("decimal", reading.decimal)
    if delimiter == reading.decimal:
        raise TableError(f"delimiter and decimal must differ, got {delimiter!r} for both.")
    if not text.strip():
        raise TableError(f"{name} is empty, expected lines of values; write it again.")
    start = text.lstrip()[:65536]
    lines = [line.decode(errors="replace") for line in start.splitlines() if line.strip()]
    _check_delimiter(lines, delimiter, name)
    first = _first_line(text)
    reading.limits.check_columns(first.count(delimiter.encode()) + 1, name)
    text = text.rstrip(b"\r\n") + b"\n"  # blank lines at the end are no rows
    table = _parse(text, name, delimiter, reading)
    names = _column_names(table, name, reading)
    guessed = _guessed(table, names, reading)
    if reading.missing is not None and _has_codes(text, delimiter):
        guessed += _codes(table, _parse(text, name, delimiter, reading, _whole(table)))
    if guessed:
        table = _parse(text, name, delimiter, reading, guessed)
    return _as_days(table.rename_columns(names))


def _column_names(table: Any, name: str, reading: Reading) -> list[str]:
    try:
        names = [column.strip() for column in table.column_names]
    except UnicodeDecodeError:
        raise TableError(f"{name} is not written in UTF-8, as expected; save it so.") from None
    if not reading.header:
        return [f"x{index}" for index in range(len(names))]
    _check_header(names, name)
    return names


def _guessed(table: Any, names: list[str], reading: Reading) -> list[str]:
    """Return the columns, as the file has them, that were not read as the text they are."""
    import pyarrow as pa

    columns = zip(table.column_names, table.columns, reading.names or names, strict=False)
    return [
        own
        for own, cells, name in columns
        if name in reading.texts and not pa.types.is_string(cells.type)
    ]


def _has_codes(text: bytes, delimiter: str) -> bool:
    """Return whether some value is of digits of which the first, but not the only one, is zero."""
    mark = re.escape(delimiter.encode())
    return re.search(b'(?:^|"|%b)0[0-9]+(?:"|%b|\r?$)' % (mark, mark), text, re.M) is not None


def _whole(table: Any) -> list[str]:
    import pyarrow as pa

    return [field.name for field in table.schema if pa.types.is_integer(field.type)]


def _codes(table: Any, spelled: Any) -> list[str]:
    """Return the columns of codes, such as 07030: numbers are not written so.

    Args:
        table: Columns as they were guessed.
        spelled: The same, with whole numbers as the texts they are.
    """
    from pyarrow import compute

    whole = {*_whole(table)}
    return [
        name
        for name, cells in zip(spelled.column_names, spelled.columns, strict=True)
        if name in whole and compute.any(compute.match_substring_regex(cells, "^0[0-9]")).as_py()
    ]


def _check_mark(setting: str, mark: str) -> None:
    if len(mark) != 1 or not mark.isascii() or mark in '\r\n"':
        raise TableError(f"{setting} must be one character of ASCII, got {mark!r}.")


def _first_line(text: bytes) -> bytes:
    """Return the first line, to its last value even where one in quotes has several lines."""
    start, end, quoted = 0, text.find(b"\n"), False
    while end >= 0:
        quoted ^= bool(text.count(b'"', start, end) % 2)
        if not quoted:
            return text[:end]
        start, end = end, text.find(b"\n", end + 1)
    return text


def _parse(
    text: bytes, name: str, delimiter: str, reading: Reading, texts: Sequence[str] = ()
) -> Any:
    import pyarrow as pa
    from pyarrow import csv as arrow

    text = text.lstrip(b"\r\n")
    # of one column alone, a blank line is a missing value
    alone = delimiter.encode() not in _first_line(text)

    def parse(block_size: int | None, newlines: bool) -> Any:
        return arrow.read_csv(
            io.BytesIO(text),
            read_options=arrow.ReadOptions(
                autogenerate_column_names=not reading.header, block_size=block_size
            ),
            parse_options=arrow.ParseOptions(
                delimiter=delimiter, newlines_in_values=newlines, ignore_empty_lines=not alone
            ),
            convert_options=_conversion(reading, texts),
        )

    try:
        try:
            return parse(None, newlines=False)
        except pa.ArrowInvalid:  # types are guessed from the first block: take all as one
            return parse(min(len(text) + 1, 2**31 - 1), newlines=True)
    except pa.ArrowException as error:
        raise TableError(
            f"{name} is no table of values between {DELIMITERS.get(delimiter, repr(delimiter))}: "
            f"{str(error)[:200]}. Every line needs as many values as the first; if values stand "
            "between others, give ",
            Argument("delimiter"),
            ".",
        ) from None


def _conversion(reading: Reading, texts: Sequence[str]) -> Any:
    """Return how text becomes values, but in some columns; with empty cells, also in text."""
    import pyarrow as pa
    from pyarrow import csv as arrow

    if reading.missing is None:
        return arrow.ConvertOptions(decimal_point=reading.decimal)
    return arrow.ConvertOptions(
        decimal_point=reading.decimal,
        null_values=[*arrow.ConvertOptions().null_values, *reading.missing],
        strings_can_be_null=True,
        timestamp_parsers=[arrow.ISO8601, *DATE_FORMATS],
        column_types=dict.fromkeys(texts, pa.string()),
    )


def _as_days(table: Any) -> Any:
    """Return a table whose times are days where all are at midnight, as 31.12.2024 is read."""
    import pyarrow as pa
    from pyarrow import compute

    for place, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type) and field.type.tz is None:
            times = table.column(place)
            days = times.cast(pa.date32())
            if compute.all(compute.equal(days.cast(field.type), times)).as_py():
                table = table.set_column(place, field.name, days)
    return table


def _check_delimiter(lines: list[str], delimiter: str, name: str) -> None:
    """Refuse a table of one column whose lines hold another delimiter."""
    if delimiter in lines[0]:
        return
    others = [
        other
        for other in DELIMITERS
        if other != delimiter and all(other in line for line in lines[:2])
    ]
    if not others:
        spaced = all(len(line.split()) > 1 for line in lines[:2])
        if not spaced or not _numbers(lines[:2][-1].split()):
            return
        others = [" "]
    other = others[0]
    remedy: list[str | Argument] = [Argument("delimiter", other)]
    if other != "," and "," in "".join(lines[1:2]):  # 1,5;2,5
        remedy += [" and ", Argument("decimal", ",")]
    raise TableError(
        f"{name} has one column when split at {DELIMITERS.get(delimiter, repr(delimiter))}, and "
        f"every line holds {DELIMITERS.get(other, 'a space')}: got {lines[0][:40]!r}. Give ",
        *remedy,
        ".",
    )


def _check_header(names: list[str], name: str) -> None:
    """Refuse a first line of values where names are expected."""
    counted = [str(index) for index in range(len(names))]
    if _numbers(names) and names != counted:
        raise TableError(
            f"{name} begins with numbers where names of columns are expected: got "
            f"{', '.join(names[:4])}. Add a line of names, or give ",
            Argument("header", False),
            ".",
        )


def _numbers(cells: list[str]) -> bool:
    try:
        return all(math.isfinite(float(cell)) for cell in cells)
    except ValueError:
        return False


def _read_file(path: Path, reading: Reading) -> list[RawColumn]:
    import pyarrow as pa

    if ".tsv" in path.suffixes and reading.delimiter is None:
        reading = reading._replace(delimiter="\t")
    try:
        with pa.input_stream(str(path), compression="detect") as stream:
            content = _read_bounded(stream, path, reading.limits)
    except (OSError, pa.ArrowException) as error:
        raise TableError(f"{path.name} cannot be read: {error}; is it whole?") from None
    return arrow_columns(read_csv(content, path.name, reading))


def _read_bounded(stream: Any, path: Path, limits: Limits) -> bytes:
    """Return what a file unpacks to, unless that is far more than the file."""
    packed = path.stat().st_size
    parts, read = [], 0
    while part := bytes(stream.read(READ_BYTES)):
        parts.append(part)
        read += len(part)
        limits.check_bytes(read, packed, path.name)
    return b"".join(parts)


def _write(table: Table | ArrowColumns, delimiter: str | None) -> bytes:
    from pyarrow import csv as arrow

    delimiter = "," if delimiter is None else delimiter
    _check_mark("delimiter", delimiter)
    cells = arrow_table(table)
    header = io.StringIO()
    csv.writer(header, delimiter=delimiter, lineterminator="\n").writerow(cells.column_names)
    content = io.BytesIO()
    content.write(header.getvalue().encode())
    options = arrow.WriteOptions(include_header=False, delimiter=delimiter)
    arrow.write_csv(_spelled_out(cells), content, options)
    return content.getvalue()


def _spelled_out(table: Any) -> Any:
    """Return a table with categories as their levels, and no fractions of whole seconds."""
    import pyarrow as pa

    columns = []
    for column in table.columns:
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        elif pa.types.is_timestamp(column.type):
            with suppress(pa.ArrowInvalid):  # there are fractions
                column = column.cast(pa.timestamp("s", column.type.tz))
        columns.append(column)
    return pa.Table.from_arrays(columns, names=table.column_names)


CSV = Format((".csv", ".tsv", ".txt"), None, _read_file, _write)
