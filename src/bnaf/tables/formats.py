"""The file formats of tables by name: a new one is a file of its own, and a line here."""

from pathlib import Path

from bnaf.errors import Argument, TableError
from bnaf.tables.arrays import NPY, NPZ
from bnaf.tables.delimited import CSV
from bnaf.tables.format import Format
from bnaf.tables.parquet import PARQUET

FORMATS: dict[str, Format] = {"csv": CSV, "parquet": PARQUET, "npy": NPY, "npz": NPZ}
COMPRESSIONS = (".gz", ".bz2", ".zst")


def file_format(path: Path, kind: str | None = None) -> str:
    """Return the format of a file: the one told, or that of its name.

    Raises:
        TableError: If neither says which.
    """
    if kind is not None:
        if kind not in FORMATS:
            raise TableError(f"format must be one of {', '.join(sorted(FORMATS))}, got {kind!r}.")
        return kind
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in COMPRESSIONS:
        suffixes.pop()
    found = _by_suffix(suffixes[-1] if suffixes else "")
    if found is None:
        known = ", ".join(suffix for format in FORMATS.values() for suffix in format.suffixes)
        raise TableError(
            f"Expected a file name that ends in {known}, got {path.name!r}; rename it, or say "
            "what it is, such as ",
            Argument("format", "csv"),
            ".",
        )
    return found


def written_format(path: Path, kind: str | None = None) -> str:
    """Return the format a table is written in: the one told, or that of the name of the file.

    Raises:
        TableError: If tables are not written in it.
    """
    written = [name for name, format in FORMATS.items() if format.write is not None]
    listed = ", ".join(written)
    if kind is not None:
        if kind not in written:
            raise TableError(f"Tables are written as {listed}, got {kind!r}; choose one.")
        return kind
    found = "csv" if str(path) == "-" else _by_suffix(path.suffix.lower())
    if found not in written:
        raise TableError(
            f"Tables are written as {listed}, got the file name {path.name!r}; end it in .csv, "
            ".parquet or .npy."
        )
    return str(found)


def _by_suffix(suffix: str) -> str | None:
    return next((name for name, format in FORMATS.items() if suffix in format.suffixes), None)
