"""``bnaf reproduce toy``: densities of the plane, fitted to draws."""

from typing import Annotated

from typer import Argument

from bnaf.cli import options
from bnaf.cli.reproduce import _options as shared
from bnaf.cli.reproduce._plane import run_study

EXAMPLES = """Examples:

bnaf reproduce toy

bnaf reproduce toy checkerboard --steps 200 --out quick
"""


def toy(
    name: Annotated[
        str | None,
        Argument(metavar="NAME", help="8gaussians, 2spirals or checkerboard; all by default."),
    ] = None,
    flow: shared.Flows = None,
    seeds: shared.Seeds = None,
    steps: options.Steps = None,
    test_rows: shared.TestRows = None,
    out: shared.Out = shared.RESULTS,
    workers: shared.Workers = None,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Fit flows to draws from three laws of the plane, and measure how near they come.

    What is finished is not run again, and what was cut short goes on where it stood.
    """
    run_study(
        "toy",
        name,
        out,
        flows=options.split_names(flow),
        seeds=shared.read_seeds(seeds),
        steps=steps,
        workers=workers,
        quiet=quiet,
        as_json=as_json,
        **options.chosen(test_rows=test_rows),
    )
