"""``bnaf reproduce``: a study of the paper, with one command."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from bnaf.cli import options
from bnaf.cli.messages import say

if TYPE_CHECKING:
    from bnaf.studies.density.reproduction import DensityResults
    from bnaf.studies.density.trials import Limits

EXAMPLES = """Examples:

bnaf reproduce toy

bnaf reproduce energy u1 --flow bnaf,planar --seeds 0

bnaf reproduce toy checkerboard --steps 200 --out quick

bnaf reproduce density --data downloads   (all that is missing, one run at a time)

bnaf reproduce density --dataset power --flow bnaf,maf --seconds 60 --data downloads

bnaf reproduce density --table

bnaf reproduce vae --data downloads   (the whole queue, one run at a time)

bnaf reproduce vae --dataset frey --flow bnaf --epochs 2

bnaf reproduce vae --table
"""
TABLES = "Tables and images"
IMAGES = Path("data")  # folder of image sets, where none is told


def reproduce(
    study: Annotated[str, Argument(metavar="STUDY", help="toy, energy, density or vae.")],
    name: Annotated[
        str | None,
        Argument(metavar="[NAME]", help="One data set or energy of the study; all by default."),
    ] = None,
    flow: Annotated[
        list[str] | None,
        Option(
            "--flow",
            metavar="NAMES",
            help="Flows to compare, as bnaf,bnaf-paper,glow; all of the study by default.",
        ),
    ] = None,
    seeds: Annotated[
        list[str] | None,
        Option(metavar="NUMBERS", help="Seeds, as 0,1,2; those of the study by default."),
    ] = None,
    steps: options.Steps = None,
    seconds: Annotated[
        float | None,
        Option(help="Wall-clock time of each run; 300 by default.", rich_help_panel=TABLES),
    ] = None,
    dataset: Annotated[
        list[str] | None,
        Option(
            metavar="NAMES",
            help="Tables, as power,bsds300, or images, as caltech,frey; all by default.",
            rich_help_panel=TABLES,
        ),
    ] = None,
    epochs: Annotated[
        int | None, Option(help="Passes over the images of each run.", rich_help_panel=TABLES)
    ] = None,
    samples: Annotated[
        int | None,
        Option(
            help="Draws that the likelihood of an image is estimated with; 5,000 by default.",
            rich_help_panel=TABLES,
        ),
    ] = None,
    folder: Annotated[
        Path | None,
        Option(
            "--data",
            metavar="DIR",
            help="Folder of public files; data for vae.",
            rich_help_panel=TABLES,
        ),
    ] = None,
    table: Annotated[
        bool,
        Option("--table", help="Print the tables of stored results.", rich_help_panel=TABLES),
    ] = False,
    plot: Annotated[
        bool,
        Option("--plot", help="Draw stored results over time.", rich_help_panel=TABLES),
    ] = False,
    test_rows: Annotated[int | None, Option(help="Rows that each flow is measured on.")] = None,
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
    from bnaf._checks import one_of
    from bnaf.cli.reproduce_vae import run_vae
    from bnaf.cli.screen import show_json, show_lines, show_table
    from bnaf.studies.density.reproduction import reproduce_density, write_picture
    from bnaf.studies.density.trials import STUDY as DENSITY
    from bnaf.studies.density.trials import Limits
    from bnaf.studies.reproduction import reproduce as reproduce_study
    from bnaf.studies.running import STUDIES
    from bnaf.studies.tables import HEADERS
    from bnaf.studies.vae.plans import STUDY as VAE

    one_of("study", study, (*STUDIES, DENSITY, VAE))
    flows, numbers = options.split_names(flow), _whole_numbers(seeds)
    if study == VAE:
        _refuse(study, workers=workers, steps=steps, seconds=seconds, plot=plot or None)
        run_vae(
            out,
            folder or IMAGES,
            table=table,
            quiet=quiet,
            as_json=as_json,
            datasets=options.split_names([*(dataset or []), *([name] if name else [])]),
            flows=flows,
            seeds=numbers,
            **options.chosen(epochs=epochs, samples=samples, test_images=test_rows),
        )
        return
    _refuse(study, epochs=epochs, samples=samples)
    if study == DENSITY:
        _refuse(study, workers=workers)
        limits = Limits(seconds, steps, test_rows)
        if not table and not plot:
            reproduce_density(
                out=out,
                data=folder,
                datasets=options.split_names([*(dataset or []), *([name] if name else [])]),
                flows=flows,
                seeds=numbers,
                limits=limits,
                quiet=quiet,
                announce=None if quiet else say,
            )
        figure = write_picture(out, limits, needed=plot) if plot or not table else None
        _show_density(out, limits, figure, as_json=as_json)
        return
    only_tables = {"table": table or None, "plot": plot or None, "data": folder}
    _refuse(study, seconds=seconds, dataset=dataset, **only_tables)
    done = reproduce_study(
        study,
        name,
        out=out,
        flows=flows,
        seeds=numbers,
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


def _show_density(out: Path, limits: "Limits", figure: Path | None, *, as_json: bool) -> None:
    """Print the tables of stored results."""
    from bnaf.cli.screen import show_json, show_lines, show_table
    from bnaf.studies.density.reproduction import read_results

    results = read_results(out, limits)
    files = {"results": results.path} | ({"figure": figure} if figure else {})
    if as_json:
        facts = {key: str(path) for key, path in files.items()}
        show_json(facts | {"standings": _standings(results)})
        return
    for sheet in results.sheets:
        show_lines(sheet.title)
        show_table(sheet.headers, sheet.rows)
        show_lines(*sheet.notes, "")
    show_lines(*(f"{key}: {path}" for key, path in files.items()))


def _standings(results: "DensityResults") -> list[dict[str, Any]]:
    return [
        {
            "dataset": one.name,
            "flow": one.flow,
            "mean": one.mean if one.records else None,
            "seeds": [record["seed"] for record in one.records],
            "failure": one.failure,
        }
        for found in results.standings.values()
        for one in found.values()
    ]


def _refuse(study: str, **given: object) -> None:
    for name, value in given.items():
        if value is not None:
            raise typer.BadParameter(f"--{name} is not for the study {study}; leave it out.")


def _whole_numbers(words: list[str] | None) -> list[int] | None:
    numbers = options.split_names(words)
    if numbers is None:
        return None
    if not all(number.isdecimal() for number in numbers):
        raise typer.BadParameter(f"--seeds must be whole numbers, as 0,1,2; got {words}.")
    return [int(number) for number in numbers]
