"""``bnaf reproduce vae``: its part of the command."""

from pathlib import Path
from typing import Any

from bnaf.cli.messages import say
from bnaf.cli.screen import show_json, show_lines, show_table
from bnaf.studies.vae.reproduction import VaeResults, read_results, reproduce_vae
from bnaf.studies.vae.tables import NOTES


def run_vae(
    out: Path, folder: Path, *, table: bool, quiet: bool, as_json: bool, **chosen: Any
) -> None:
    """Run the study, unless its table alone is asked for, and print the table.

    Args:
        out: Folder of results.
        folder: Folder of public files.
        table: Whether to print stored results and run nothing.
        quiet: Whether to show no progress.
        as_json: Whether to print JSON.
        chosen: What else :func:`bnaf.studies.vae.reproduction.reproduce_vae` takes.
    """
    if table:
        results = read_results(out)
    else:
        announce = None if quiet else say
        results = reproduce_vae(out=out, data=folder, quiet=quiet, announce=announce, **chosen)
    _show(results, as_json=as_json)


def _show(results: VaeResults, *, as_json: bool) -> None:
    if as_json:
        standings = [standing.as_dict() for standing in results.standings]
        show_json({"results": str(results.results), "standings": standings})
        return
    for sheet in results.sheets:
        show_lines(sheet.title)
        show_table(sheet.headers, sheet.rows)
        show_lines("")
    show_lines(*NOTES, f"results: {results.results}")
