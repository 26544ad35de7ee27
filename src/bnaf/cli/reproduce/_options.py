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
    Option(
        metavar="COUNT|LIST",
        help="How many seeds, as 3 for 0,1,2; or which: a comma makes a list, as 1,4 or 2, for "
        "seed 2 alone. Those of the study by default.",
    ),
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


def read_seeds(words: list[str] | None) -> list[int] | None:
    """Return seeds given by their count, as a list with commas, or one by one.

    Raises:
        BadParameter: If they are no whole numbers, or none.

    Example:
        >>> read_seeds(["3"]), read_seeds(["0,2"]), read_seeds(["2,"]), read_seeds(["4", "5"])
        ([0, 1, 2], [0, 2], [2], [4, 5])
    """
    if not words:
        return None
    numbers = [number.strip() for word in words for number in word.removesuffix(",").split(",")]
    if not all(number.isdecimal() for number in numbers):
        told = " ".join(words)
        raise BadParameter(f"--seeds must be a whole number or a list, as 3 or 0,1,2; got {told}.")
    if len(words) == 1 and "," not in words[0]:
        if int(words[0]) == 0:
            raise BadParameter("--seeds must be at least 1, or a list, as 0, for seed 0; got 0.")
        return list(range(int(words[0])))
    return [int(number) for number in numbers]


def all_names(several: list[str] | None, one: str | None) -> list[str] | None:
    """Return the names of an option and that of an argument as one list."""
    return split_names([*(several or []), *([one] if one else [])])
