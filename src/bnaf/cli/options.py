"""Arguments and options that several commands share; what is left out is the library's choice."""

import csv
import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, BadParameter, Option

from bnaf.flows.registry import flow_names

TIES = "*"  # stands for all columns whose values repeat
READING, TRAINING = "How the table is written", "Training"


def complete_flow(incomplete: str) -> list[str]:
    """Return the names of flows that begin so, for the shell."""
    return [name for name in flow_names() if name.startswith(incomplete)]


ModelFile = Annotated[
    Path, Argument(metavar="MODEL", help="Model file (.safetensors); - for standard input.")
]
TableFile = Annotated[
    Path,
    Argument(
        metavar="TABLE",
        help="Table: .csv, .tsv, .parquet, .npy or .npz; - for CSV on standard input.",
    ),
]
Columns = Annotated[
    list[str] | None,
    Option(
        "--columns",
        "-c",
        metavar="NAMES",
        help="Columns to model, as a,b,c; all that are not given.",
    ),
]
Kinds = Annotated[
    list[str] | None,
    Option(
        "--as",
        metavar="COLUMN=KIND",
        help="What a column is, where it is read wrongly: category, whole, grid, number, date "
        "or text, which is left out; once for each.",
    ),
]
Bounds = Annotated[
    list[str] | None,
    Option(
        "--bounds",
        metavar="COLUMN=LOW:HIGH",
        help="Least and largest value of a column, either of which may be left open, as "
        "price=0:; once for each.",
    ),
]
DropMissing = Annotated[
    bool, Option("--drop-missing", help="Leave out rows with a missing or infinite value.")
]
DropConstant = Annotated[
    bool, Option("--drop-constant", help="Leave out columns that hold one value.")
]
Dequantise = Annotated[
    list[str] | None,
    Option(
        "--dequantise",
        metavar="[=NAMES]",
        help="Add uniform noise, as wide as the column's grid, where values repeat; or, as "
        "--dequantise=a,b, to these columns.",
    ),
]
Delimiter = Annotated[
    str | None, Option(help="What stands between values of a CSV file.", rich_help_panel=READING)
]
Decimal = Annotated[
    str | None, Option(help="Mark before decimals in a CSV file.", rich_help_panel=READING)
]
NoHeader = Annotated[
    bool,
    Option("--no-header", help="The CSV file has no line of names.", rich_help_panel=READING),
]
Format = Annotated[
    str | None,
    Option(
        "--format",
        help="csv, parquet, npy or npz, where the name does not tell.",
        rich_help_panel=READING,
    ),
]
Key = Annotated[str | None, Option(help="Which array of an npz file.", rich_help_panel=READING)]
MostColumns = Annotated[
    int | None,
    Option(min=1, help="Most columns that a file may have.", rich_help_panel=READING),
]
MostExpansion = Annotated[
    float | None,
    Option(
        min=1,
        help="Most bytes that each byte of a packed file may become.",
        rich_help_panel=READING,
    ),
]
Seconds = Annotated[
    float | None, Option(help="Budget in wall-clock time.", rich_help_panel=TRAINING)
]
Epochs = Annotated[
    int | None, Option(help="Budget in passes over the rows.", rich_help_panel=TRAINING)
]
Steps = Annotated[
    int | None, Option(help="Budget in steps of the optimiser.", rich_help_panel=TRAINING)
]
Devices = Annotated[
    str | None,
    Option(help="Devices to train on, or auto.", metavar="N", rich_help_panel=TRAINING),
]
Nodes = Annotated[int | None, Option(help="Machines to train on.", rich_help_panel=TRAINING)]
Strategy = Annotated[
    str | None,
    Option(
        help="How processes work together, as Fabric names it: ddp, ddp_spawn.",
        rich_help_panel=TRAINING,
    ),
]
Precision = Annotated[
    str | None,
    Option(
        help="Numbers used, as Fabric names them: bf16-true, 64-true.", rich_help_panel=TRAINING
    ),
]
Compile = Annotated[
    bool,
    Option("--compile", help="Compile the objective by torch.compile.", rich_help_panel=TRAINING),
]
Seed = Annotated[int | None, Option(help="Seed of all that is drawn.")]
Force = Annotated[bool, Option("--force", "-f", help="Replace files that exist.")]
Json = Annotated[bool, Option("--json", help="Print JSON, for programs.")]
Stream = Annotated[
    bool | None,
    Option(
        "--stream/--no-stream",
        help="Read a Parquet file batch by batch, in little memory, or at once; by its size.",
        rich_help_panel=READING,
        show_default=False,
    ),
]
Quiet = Annotated[bool, Option("--quiet", "-q", help="Show no progress.")]


def split_names(names: Sequence[str] | None) -> list[str] | None:
    """Return names given as a,b and one by one as a list; a name with a comma stands in quotes.

    Example:
        >>> split_names(["a,b", '"c,d"'])
        ['a', 'b', 'c,d']
    """
    if not names:
        return None
    return [name.strip() for row in csv.reader(names) for name in row]


def noisy(names: Sequence[str] | None) -> bool | list[str]:
    """Return which columns to dequantise, as an argument of :func:`bnaf.read_table`.

    Example:
        >>> noisy(["*"]), noisy(["a,b"]), noisy(None)
        (True, ['a', 'b'], False)
    """
    wanted = split_names(names)
    return wanted == [TIES] or (wanted or False)


def read_pairs(
    option: str,
    words: Sequence[str] | None,
    *,
    empty: bool = False,
    columns: Sequence[str] = (),
) -> dict[str, str]:
    """Return what was told of columns as column=value, by column.

    Args:
        option: What they were told with.
        words: The pairs.
        empty: Whether a value may be left out.
        columns: Columns that are known; values of others hold no equals sign.

    Raises:
        BadParameter: If one is no such pair, or a column is told of twice.

    Example:
        >>> read_pairs("--given", ["income=<=50K"], columns=["age", "income"])
        {'income': '<=50K'}
    """
    found: dict[str, str] = {}
    for word in words or ():
        known = max((name for name in columns if word.startswith(f"{name}=")), key=len, default="")
        name, value = known, word[len(known) + 1 :]
        if not known:
            name, _, value = word.rpartition("=")
        if not name or not (value or empty):
            raise BadParameter(f"{option} expects column=value, got {word!r}.")
        if name in found:
            raise BadParameter(f"{option} names {name!r} twice; name each column once.")
        found[name] = value
    return found


def read_meanings(kinds: Sequence[str] | None, bounds: Sequence[str] | None) -> dict[str, Any]:
    """Return what is told of columns, as arguments of :meth:`bnaf.Model.fit`.

    Example:
        >>> read_meanings(["zip=category"], ["price=0:"])
        {'kinds': {'zip': 'category'}, 'bounds': {'price': (0.0, None)}}
    """
    return {"kinds": read_pairs("--as", kinds), "bounds": read_bounds(bounds)}


def read_bounds(words: Sequence[str] | None) -> dict[str, tuple[float | None, float | None]]:
    """Return bounds of columns by name, ``None`` where one is left open.

    Raises:
        BadParameter: If they are no two numbers.

    Example:
        >>> read_bounds(["price=0:"])
        {'price': (0.0, None)}
    """
    found: dict[str, tuple[float | None, float | None]] = {}
    for name, text in read_pairs("--bounds", words).items():
        low, colon, high = text.partition(":")
        try:
            ends = [float(end) if end.strip() else None for end in (low, high)]
        except ValueError:
            colon = ""
        if not colon:
            raise BadParameter(
                f"--bounds expects column=low:high with numbers, either left open, got {text!r}."
            )
        found[name] = (ends[0], ends[1])
    return found


def count_devices(devices: str | None) -> int | str | None:
    """Return a number of devices as one.

    Example:
        >>> count_devices("2"), count_devices("auto")
        (2, 'auto')
    """
    return int(devices) if devices is not None and devices.isdigit() else devices


def name_ties(words: Sequence[str]) -> list[str]:
    """Return the words of a command line with ``--dequantise`` on its own made explicit.

    Its names follow an equals sign, so that they are not taken for a table, nor a table for them.
    """
    return [f"--dequantise={TIES}" if word == "--dequantise" else word for word in words]


def chosen(**values: Any) -> dict[str, Any]:
    """Return the options that were given, so that the others keep the library's defaults."""
    return {name: value for name, value in values.items() if value is not None}


def reads_tables(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that say how a table is written.

    Args:
        command: A command with an argument ``reading``, which gets them as arguments of
            :func:`bnaf.read_table`.
    """

    @wraps(command)
    def with_options(**values: Any) -> None:
        options = {name: values.pop(name) for name in _READING}
        command(**values, reading=_reading(**options))

    signature = inspect.signature(command)
    own = [each for name, each in signature.parameters.items() if name != "reading"]
    more = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, (kind, default) in _READING.items()
    ]
    with_options.__signature__ = signature.replace(parameters=[*own, *more])  # type: ignore[attr-defined]
    with_options.__annotations__ = {each.name: each.annotation for each in [*own, *more]}
    return with_options


_READING: dict[str, tuple[Any, Any]] = {
    "delimiter": (Delimiter, None),
    "decimal": (Decimal, None),
    "no_header": (NoHeader, False),
    "format": (Format, None),
    "key": (Key, None),
    "most_columns": (MostColumns, None),
    "most_expansion": (MostExpansion, None),
}


def _reading(
    delimiter: str | None,
    decimal: str | None,
    no_header: bool,
    format: str | None,
    key: str | None,
    most_columns: int | None,
    most_expansion: float | None,
) -> dict[str, Any]:
    if delimiter == "\\t":  # as a shell passes it on
        delimiter = "\t"
    return chosen(
        delimiter=delimiter,
        decimal=decimal,
        header=False if no_header else None,
        format=format,
        key=key,
        most_columns=most_columns,
        most_expansion=most_expansion,
    )


def streaming(how: Mapping[str, Any]) -> dict[str, Any]:
    """Return of the arguments of :func:`bnaf.read_table` those that a stream takes.

    Raises:
        BadParameter: If one says how a text file is written.
    """
    textual = [name for name in ("delimiter", "decimal", "header", "key") if name in how]
    if textual:
        raise BadParameter(f"--stream reads Parquet, which has no {textual[0]}; leave one out.")
    bounds = ("most_columns", "most_expansion")  # a stream holds little of its file at a time
    return {name: value for name, value in how.items() if name not in bounds}
