"""Options that several studies share; what is left out is the study's choice."""

from pathlib import Path
from typing import Annotated

from typer import Argument, BadParameter, Option

from bnaf.cli.options import split_names

Flows = Annotated[
    list[str] | None,
    Option(
        "--flow",
        metavar="NAMES",
        help="Flows to compare, as bnaf,bnaf-paper,glow; all of the study by default.",
    ),
]
Seeds = Annotated[
    list[str] | None,
    Option(metavar="NUMBERS", help="Seeds, as 0,1,2; those of the study by default."),
]
Out = Annotated[Path, Option("--out", "-o", help="Folder for results, table and figure.")]
Workers = Annotated[
    int | None,
    Option(help="Runs at a time, of one thread each; as many as there are cores by default."),
]
TestRows = Annotated[int | None, Option(help="Rows that each flow is measured on.")]
Stored = Annotated[bool, Option("--table", help="Print the tables of stored results.")]
DatasetName = Annotated[str | None, Argument(metavar="NAME", help="One data set; all by default.")]
RESULTS = Path("results")  # folder, where none is told


def whole_numbers(words: list[str] | None) -> list[int] | None:
    """Return seeds given as 0,1 and one by one as a list.

    Raises:
        BadParameter: If one is no whole number.
    """
    numbers = split_names(words)
    if numbers is None:
        return None
    if not all(number.isdecimal() for number in numbers):
        raise BadParameter(f"--seeds must be whole numbers, as 0,1,2; got {words}.")
    return [int(number) for number in numbers]


def all_names(several: list[str] | None, one: str | None) -> list[str] | None:
    """Return the names of an option and that of an argument as one list."""
    return split_names([*(several or []), *([one] if one else [])])
