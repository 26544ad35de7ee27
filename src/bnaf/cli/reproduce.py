"""``bnaf reproduce``: a study of the paper, with one command."""

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from bnaf.cli import options
from bnaf.cli.messages import say

EXAMPLES = """Examples:

bnaf reproduce toy

bnaf reproduce energy u1 --flow bnaf,planar --seeds 0

bnaf reproduce toy checkerboard --steps 200 --out quick
"""


def reproduce(
    study: Annotated[str, Argument(metavar="STUDY", help="toy or energy.")],
    name: Annotated[
        str | None,
        Argument(metavar="[NAME]", help="One data set or energy of the study; all by default."),
    ] = None,
    flow: Annotated[
        list[str] | None,
        Option(
            "--flow",
            metavar="NAMES",
            help="Flows to compare, as bnaf,bnaf-paper,glow,planar,planar-8; all by default.",
        ),
    ] = None,
    seeds: Annotated[
        list[str] | None,
        Option(metavar="NUMBERS", help="Seeds, as 0,1,2; those of the study by default."),
    ] = None,
    steps: options.Steps = None,
    test_rows: Annotated[
        int | None, Option(help="Fresh rows that each flow is measured on.")
    ] = None,
    out: Annotated[
        Path, Option("--out", "-o", help="Folder for results, table and figure.")
    ] = Path("results"),
    workers: Annotated[
        int | None,
        Option(help="Runs at a time, of one thread each; as many as there are cores by default."),
    ] = None,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Run a study of the paper: train, measure, write results, table and figure.

    What is finished is not run again, and what was cut short goes on where it stood.
    """
    from bnaf.cli.screen import show_json, show_lines, show_table
    from bnaf.studies.reproduction import reproduce as reproduce_study
    from bnaf.studies.tables import HEADERS

    done = reproduce_study(
        study,
        name,
        out=out,
        flows=options.split_names(flow),
        seeds=_whole_numbers(seeds),
        steps=steps,
        workers=workers,
        quiet=quiet,
        announce=None if quiet else say,
        **options.chosen(test_rows=test_rows),
    )
    files = {"results": done.results, "table": done.table, "figure": done.figure}
    if as_json:
        facts = {key: str(path) for key, path in files.items()}
        show_json(facts | {"summaries": [summary.as_dict() for summary in done.summaries]})
        return
    show_table(HEADERS, [summary.cells for summary in done.summaries])
    show_lines(*(f"{key}: {path}" for key, path in files.items()))


def _whole_numbers(words: list[str] | None) -> list[int] | None:
    numbers = options.split_names(words)
    if numbers is None:
        return None
    if not all(number.isdecimal() for number in numbers):
        raise typer.BadParameter(f"--seeds must be whole numbers, as 0,1,2; got {words}.")
    return [int(number) for number in numbers]
