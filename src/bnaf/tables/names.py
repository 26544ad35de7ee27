"""Names of columns: each its own, found again, and listed in messages."""

from collections.abc import Sequence

from bnaf.errors import Argument, KindError, TableError

MOST_LISTED = 40


def list_columns(names: Sequence[str], remarks: Sequence[str] | None = None) -> str:
    """Write names of columns as part of a message, the first few of many."""
    said = [repr(name) for name in names[:MOST_LISTED]]
    if remarks is not None:
        said = [f"{name} ({remark})" for name, remark in zip(said, remarks, strict=False)]
    more = len(names) - len(said)
    listed = ", ".join(said) + (f" and {more} more" if more else "")
    return f"Column {listed}" if len(names) == 1 else f"Columns {listed}"


def check_names(names: Sequence[str]) -> None:
    """Check that every column has a name of its own.

    Raises:
        TableError: If a name is empty or occurs twice.
    """
    if "" in names:
        raise TableError(
            f"Every column needs a name, got none for column {list(names).index('') + 1} of "
            f"{len(names)}; name it in the file (an index written by pandas: use index=False)."
        )
    seen = dict.fromkeys(names, 0)
    for name in names:
        seen[name] += 1
    twice = [name for name, count in seen.items() if count > 1]
    if twice:
        raise TableError(
            f"Every column needs a name of its own, got "
            f"{', '.join(f'{name!r} {seen[name]} times' for name in twice[:MOST_LISTED])}; "
            "rename them."
        )


def find_columns(wanted: Sequence[str], names: Sequence[str]) -> list[int]:
    """Return where the wanted columns stand.

    Raises:
        TableError: If one of them is not there, or wanted twice.
    """
    if isinstance(wanted, str):
        raise TableError(f"Expected a list of names, got {wanted!r}; write [{wanted!r}].")
    missing = [name for name in wanted if name not in names]
    if missing:
        raise TableError(
            f"{list_columns(missing)} not found; the table has "
            f"{list_columns(names).replace('Column', 'column', 1)}."
        )
    check_names(list(wanted))
    place = {name: index for index, name in enumerate(names)}
    return [place[name] for name in wanted]


def text_columns(names: Sequence[str], remarks: Sequence[str]) -> KindError:
    """Return the error of columns that are no numbers."""
    return KindError(
        f"{list_columns(names, remarks)} hold{'s' if len(names) == 1 else ''} text or dates, "
        "expected numbers",
        "; encode them as numbers, or name the columns to read with ",
        Argument("columns"),
        ".",
    )
