"""What the studies of the plane, ``toy`` and ``energy``, have in common."""

from pathlib import Path
from typing import Any

from bnaf.cli.messages import say


def run_study(
    study: str, name: str | None, out: Path, *, quiet: bool, as_json: bool, **chosen: Any
) -> None:
    """Run a study, or what is left of it, and print its table.

    Args:
        study: Its name.
        name: One data set or energy; all by default.
        out: Folder of results.
        quiet: Whether to show no progress.
        as_json: Whether to print JSON.
        chosen: What else :func:`bnaf.studies.reproduction.reproduce` takes.
    """
    from bnaf.cli.screen import show_json, show_lines, show_table
    from bnaf.studies.reproduction import reproduce
    from bnaf.studies.tables import HEADERS

    announce = None if quiet else say
    done = reproduce(study, name, out=out, quiet=quiet, announce=announce, **chosen)
    files = {"results": done.results, "table": done.table, "figure": done.figure}
    if as_json:
        facts = {key: str(path) for key, path in files.items()}
        show_json(facts | {"summaries": [summary.as_dict() for summary in done.summaries]})
        return
    show_table(HEADERS, [summary.cells for summary in done.summaries])
    show_lines(*(f"{key}: {path}" for key, path in files.items()))
