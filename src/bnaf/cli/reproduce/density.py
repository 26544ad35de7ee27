"""``bnaf reproduce density``: the five tables of the paper."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from bnaf.cli import options
from bnaf.cli.messages import say
from bnaf.cli.reproduce import _options as shared

if TYPE_CHECKING:
    from bnaf.studies.density.reproduction import DensityResults
    from bnaf.studies.density.trials import Limits

EXAMPLES = """Examples:

bnaf reproduce density --data downloads   (all that is missing, one run at a time)

bnaf reproduce density --dataset power --flow bnaf,maf --seconds 60 --data downloads

bnaf reproduce density --table
"""


def density(
    name: shared.DatasetName = None,
    dataset: Annotated[
        list[str] | None,
        Option(metavar="NAMES", help="Tables, as power,bsds300; all by default."),
    ] = None,
    flow: shared.Flows = None,
    seeds: shared.Seeds = None,
    seconds: Annotated[
        float | None, Option(help="Wall-clock time of each run; 300 by default.")
    ] = None,
    steps: options.Steps = None,
    test_rows: shared.TestRows = None,
    folder: Annotated[
        Path | None, Option("--data", metavar="DIR", help="Folder of the public files.")
    ] = None,
    table: shared.Stored = False,
    plot: Annotated[bool, Option("--plot", help="Draw stored results over time.")] = False,
    out: shared.Out = shared.RESULTS,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Train flows on the tables of the paper, and compare their log-likelihoods.

    What is finished is not run again, and what was cut short goes on where it stood.
    """
    from bnaf.studies.density.reproduction import reproduce_density, write_picture
    from bnaf.studies.density.trials import Limits

    seed_numbers = shared.read_seeds(seeds)
    limits = Limits(seconds, steps, test_rows)
    if not table and not plot:
        reproduce_density(
            out=out,
            data=folder,
            datasets=shared.all_names(dataset, name),
            flows=options.split_names(flow),
            seeds=seed_numbers,
            limits=limits,
            quiet=quiet,
            announce=None if quiet else say,
        )
    figure = write_picture(out, limits, needed=plot) if plot or not table else None
    _show(out, limits, figure, as_json=as_json)


def _show(out: Path, limits: "Limits", figure: Path | None, *, as_json: bool) -> None:
    """Print the tables of stored results."""
    from bnaf.cli.screen import show_json, show_lines, show_sheets
    from bnaf.studies.density.reproduction import read_results

    results = read_results(out, limits)
    files = {"results": results.path} | ({"figure": figure} if figure else {})
    if as_json:
        facts = {key: str(path) for key, path in files.items()}
        show_json(facts | {"standings": _standings(results)})
        return
    show_sheets(results.sheets)
    show_lines(*(f"{key}: {path}" for key, path in files.items()))


def _standings(results: "DensityResults") -> list[dict[str, Any]]:
    return [
        {
            "dataset": one.name,
            "flow": one.flow,
            "mean": one.mean if one.records else None,
            "seeds": [record["seed"] for record in one.records],
            "failures": list(one.failures),
        }
        for found in results.standings.values()
        for one in found.values()
    ]
