"""Text with one row per line: CSV and its kin."""

import io
import math
from typing import Any

from bnaf.errors import TableError

DELIMITERS = {",": "a comma", ";": "a semicolon", "\t": "a tab", "|": "a bar"}


def read_csv(
    text: bytes,
    name: str,
    *,
    delimiter: str | None = None,
    decimal: str = ".",
    header: bool = True,
) -> Any:
    """Return the Arrow table of a CSV file.

    Args:
        text: What stands in the file.
        name: What to call it in messages.
        delimiter: What stands between values; a comma by default.
        decimal: Mark before decimals.
        header: Whether the first line holds the names; otherwise they are x0, x1, ....

    Raises:
        TableError: If there is no table in it.
    """
    delimiter = "," if delimiter is None else delimiter
    if len(delimiter) != 1:
        raise TableError(f"delimiter must be one character, got {delimiter!r}.")
    if not text.strip():
        raise TableError(f"{name} is empty, expected lines of values; write it again.")
    start = text.lstrip()[:65536]
    lines = [line.decode(errors="replace") for line in start.splitlines() if line.strip()]
    _check_delimiter(lines, delimiter, name)
    if not text.endswith(b"\n"):
        text += b"\n"
    table = _parse(text, name, delimiter, decimal, header)
    try:
        names = [column.strip() for column in table.column_names]
    except UnicodeDecodeError:
        raise TableError(f"{name} is not written in UTF-8, as expected; save it so.") from None
    if header:
        _check_header(names, name)
    return table.rename_columns(names if header else [f"x{i}" for i in range(len(names))])


def _parse(text: bytes, name: str, delimiter: str, decimal: str, header: bool) -> Any:
    import pyarrow as pa
    from pyarrow import csv

    def parse(block_size: int | None, newlines: bool) -> Any:
        return csv.read_csv(
            io.BytesIO(text),
            read_options=csv.ReadOptions(
                autogenerate_column_names=not header, block_size=block_size
            ),
            parse_options=csv.ParseOptions(delimiter=delimiter, newlines_in_values=newlines),
            convert_options=csv.ConvertOptions(decimal_point=decimal),
        )

    try:
        try:
            return parse(None, newlines=False)
        except pa.ArrowInvalid:  # types are guessed from the first block: take all as one
            return parse(min(len(text) + 1, 2**31 - 1), newlines=True)
    except pa.ArrowException as error:
        raise TableError(
            f"{name} is no table of values between {DELIMITERS.get(delimiter, repr(delimiter))}: "
            f"{str(error)[:200]}. Every line needs as many values as the first; "
            "is the delimiter right (delimiter=...)?"
        ) from None


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
    called, remedy = DELIMITERS.get(other, "a space"), f"delimiter={other!r}"
    if other != "," and "," in "".join(lines[1:2]):  # 1,5;2,5
        remedy += ", decimal=','"
    raise TableError(
        f"{name} has one column when split at {DELIMITERS.get(delimiter, repr(delimiter))}, and "
        f"every line holds {called}: got {lines[0][:40]!r}. Give {remedy}."
    )


def _check_header(names: list[str], name: str) -> None:
    """Refuse a first line of values where names are expected."""
    counted = [str(index) for index in range(len(names))]
    if _numbers(names) and names != counted:
        raise TableError(
            f"{name} begins with numbers where names of columns are expected: got "
            f"{', '.join(names[:4])}. Add a line of names, or give header=False."
        )


def _numbers(cells: list[str]) -> bool:
    try:
        return all(math.isfinite(float(cell)) for cell in cells)
    except ValueError:
        return False
