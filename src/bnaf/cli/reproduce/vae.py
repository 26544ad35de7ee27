"""``bnaf reproduce vae``: posteriors of variational auto-encoders."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from bnaf.cli import options
from bnaf.cli.messages import say
from bnaf.cli.reproduce import _options as shared

if TYPE_CHECKING:
    from bnaf.studies.vae.reproduction import VaeResults

EXAMPLES = """Examples:

bnaf reproduce vae --data downloads   (the whole queue, one run at a time)

bnaf reproduce vae --dataset frey --flow bnaf --epochs 2

bnaf reproduce vae --dataset caltech --flow bnaf --seeds 3

bnaf reproduce vae --table
"""
IMAGES = Path("data")  # folder of image sets, where none is told


def vae(
    name: shared.DatasetName = None,
    dataset: Annotated[
        list[str] | None,
        Option(metavar="NAMES", help="Images, as caltech,frey; all by default."),
    ] = None,
    flow: Annotated[
        list[str] | None,
        Option(
            metavar="NAMES",
            help="Posteriors to compare, as gaussian,iaf,bnaf; all by default, or those of the "
            "queue where no option names runs.",
        ),
    ] = None,
    seeds: shared.Seeds = None,
    epochs: Annotated[int | None, Option(help="Passes over the images of each run.")] = None,
    samples: Annotated[
        int | None,
        Option(help="Draws that the likelihood of an image is estimated with; 5,000 by default."),
    ] = None,
    test_rows: Annotated[
        int | None, Option(help="Images whose likelihood each posterior is measured by.")
    ] = None,
    folder: Annotated[
        Path, Option("--data", metavar="DIR", help="Folder of the public files.")
    ] = IMAGES,
    table: shared.Stored = False,
    out: shared.Out = shared.RESULTS,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Train auto-encoders with several posteriors, and estimate the likelihood of images.

    What is finished is not run again, and what was cut short goes on where it stood. With --table
    the figures of what is stored are drawn, too.
    """
    from bnaf.studies.vae.reproduction import read_results, reproduce_vae, write_all

    seed_numbers = shared.read_seeds(seeds)
    if table:
        _show(read_results(out), as_json=as_json)
        write_all(out, folder, None if quiet else say)
        return
    results = reproduce_vae(
        out=out,
        data=folder,
        datasets=shared.all_names(dataset, name),
        flows=options.split_names(flow),
        seeds=seed_numbers,
        quiet=quiet,
        announce=None if quiet else say,
        **options.chosen(epochs=epochs, samples=samples, test_images=test_rows),
    )
    _show(results, as_json=as_json)


def _show(results: "VaeResults", *, as_json: bool) -> None:
    from bnaf.cli.screen import show_json, show_lines, show_sheets

    if as_json:
        standings = [standing.as_dict() for standing in results.standings]
        show_json({"results": str(results.results), "standings": standings})
        return
    show_sheets(results.sheets)
    show_lines(f"results: {results.results}")
