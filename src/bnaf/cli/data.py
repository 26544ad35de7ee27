"""``bnaf data``: the data sets that are known by name."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from bnaf.cli import options
from bnaf.cli.places import is_stream

if TYPE_CHECKING:
    from bnaf.datasets.known import KnownData

EXAMPLES = """Examples:

bnaf data

bnaf data --data downloads   (what is missing there)

bnaf data iris --out iris.csv

bnaf data power --data downloads --out power.parquet   (also power.valid.parquet and .test)
"""


def complete_name(incomplete: str) -> list[str]:
    """Return the names of data sets that begin so, for the shell."""
    from bnaf.datasets.known import known_data

    return [known.name for known in known_data() if known.name.startswith(incomplete)]


def data(
    name: Annotated[
        str | None, Argument(help="Table or images to prepare.", autocompletion=complete_name)
    ] = None,
    folder: Annotated[
        Path | None, Option("--data", metavar="DIR", help="Folder of the public files.")
    ] = None,
    out: Annotated[
        Path | None,
        Option("--out", "-o", help="File to write: .csv, .parquet or .npy; parts get names."),
    ] = None,
    force: options.Force = False,
    as_json: options.Json = False,
) -> None:
    """List the known data sets and where each comes from, or prepare one of them."""
    if name is not None and out is None:
        raise typer.BadParameter("--out FILE must say where to write the rows.")
    from bnaf.cli.files import check_new_table, write_rows
    from bnaf.cli.screen import show_json, show_lines
    from bnaf.datasets.known import prepare_known

    if name is None or out is None:
        _list(folder, as_json=as_json)
        return
    check_new_table(out, force=force)
    parts = dict(zip(("train", "valid", "test"), prepare_known(name, folder), strict=True))
    tables = {part: table for part, table in parts.items() if table is not None}
    paths = {part: _place(out, part) for part in tables}
    if len(paths) > 1 and is_stream(out):
        raise typer.BadParameter(f"{name} comes in {len(paths)} parts; --out must be a file.")
    for path in paths.values():
        check_new_table(path, force=force)
    for part, table in tables.items():
        write_rows(table, paths[part], force=force)
    facts = {
        part: {"rows": len(table), "file": str(paths[part])} for part, table in tables.items()
    }
    if as_json:
        show_json(facts)
        return
    show_lines(*(f"{fact['file']}: {fact['rows']:,} rows" for fact in facts.values()), beside=out)


def _place(out: Path, part: str) -> Path:
    """Return the file of a part: rows to train on have the name that was given."""
    return out if part == "train" else out.with_name(f"{out.stem}.{part}{out.suffix}")


def _list(folder: Path | None, *, as_json: bool) -> None:
    from bnaf.cli.screen import show_json, show_table
    from bnaf.datasets.known import known_data

    known = known_data()
    if as_json:
        show_json(
            [
                {
                    **entry._asdict(),
                    "found": entry.found(folder),
                    "missing": entry.missing(folder),
                }
                for entry in known
            ]
        )
        return
    rows = [
        [
            entry.name,
            entry.kind,
            "" if entry.rows is None else f"{entry.rows:,}",
            entry.columns,
            *([] if folder is None else [_missing(entry, folder)]),
            " or ".join(" and ".join(files) for files in (entry.files, *entry.others)),
            entry.source,
        ]
        for entry in known
    ]
    missing = [] if folder is None else ["missing"]
    show_table(
        ["name", "kind", "rows as published", "columns", *missing, "put at", "source"], rows
    )


def _missing(entry: "KnownData", folder: Path) -> str:
    """Return what a folder lacks of a data set, or what it has in its place."""
    stand_in = entry.stand_in(folder)
    if stand_in:
        return f"the published rows, for which {' and '.join(stand_in)} {_stand(stand_in)} in"
    return " and ".join(entry.missing(folder)) or "nothing"


def _stand(files: tuple[str, ...]) -> str:
    return "stands" if len(files) == 1 else "stand"
