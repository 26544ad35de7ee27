"""The whole study: everything that is missing, one run at a time, then tables and picture."""

from collections.abc import Callable, Hashable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from bnaf._checks import between, whole
from bnaf._files import atomic_file
from bnaf.datasets.known import known_data
from bnaf.datasets.suite import SUITE, find_edition
from bnaf.errors import Argument, SettingsError
from bnaf.studies.density.contestants import contestants
from bnaf.studies.density.rows import StudyRows
from bnaf.studies.density.running import carry_out
from bnaf.studies.density.tables import Standings, all_sheets, stand
from bnaf.studies.density.trials import (
    NO_LIMITS,
    STUDY,
    DensityTrial,
    Limits,
    plan_best_rivals,
    plan_runs,
)
from bnaf.studies.ledger import Ledger, Record
from bnaf.studies.running import display
from bnaf.studies.sheets import Sheet, write_markdown

RUNS = "runs"  # folder of checkpoints and fitted models
COLOURS = 128  # of the picture, so that it is small


class DensityResults(NamedTuple):
    """What was stored, and the tables made of it."""

    standings: Standings
    sheets: list[Sheet]
    path: Path


def _occasion(record: Record) -> Hashable:
    return (*(record[part] for part in ("name", "flow", "seed")), *record["limits"])


def open_ledger(out: Path) -> Ledger:
    """Return the stored runs of the study.

    Raises:
        StorageError: If they cannot be read.
    """
    return Ledger(out / f"{STUDY}.json", _occasion)


def reproduce_density(
    *,
    out: Path,
    data: Path | None,
    datasets: Sequence[str] | None = None,
    flows: Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
    limits: Limits = NO_LIMITS,
    quiet: bool = False,
    announce: Callable[[str], None] | None = None,
) -> DensityResults:
    """Run what is missing of the study, one run at a time.

    Without flows and seeds this is the whole plan: every contestant on every table that is there,
    further seeds of ours and of the best rivals, then the long run. Every run that is finished is
    at once in ``density.json``; one that was cut short goes on from its checkpoint under ``runs``,
    and the time it has spent counts. A run that failed is tried again by the next command.

    Args:
        out: Folder for results, tables and picture.
        data: Folder of the public files.
        datasets: Names of tables; all whose files are there by default.
        flows: Names of contestants; all that are planned by default.
        seeds: Seeds, in place of those of the file.
        limits: Budgets and test rows, in place of those of the file.
        quiet: Whether to show no progress of the training.
        announce: Called with a line whenever there is something to tell.

    Raises:
        SettingsError: If there is no such table or contestant, or a number is not allowed.
        TableError: If a table that was asked for is not there.
        StorageError: If the results of before cannot be read.
    """
    tell = announce or (lambda line: None)
    _check(limits)
    if data is None:
        raise SettingsError(
            "The tables are read from their public files, got no folder of them; give ",
            Argument("folder"),
            ".",
        )
    editions = _editions(data, datasets, tell)
    folder = out / RUNS
    folder.mkdir(parents=True, exist_ok=True)
    ledger = open_ledger(out)
    runs = plan_runs(editions, flows=flows, seeds=seeds, limits=limits)
    whole_plan = flows is None and seeds is None
    rows: StudyRows | None = None
    for run, left in _waiting(runs, ledger, whole_plan=whole_plan):
        if rows is None or rows.name != run.name:
            rows = None  # before the next is read
            rows = StudyRows.read(run.name, data)
        tell(f"{run.label}: {left} to do")
        record = carry_out(run, rows, folder, display(run.label, quiet=quiet))
        ledger.add(record)
        write_results(out, limits)
        tell(f"{run.label}: {_describe(record)}")
    tell("nothing is left to do")
    return write_results(out, limits)


def _check(limits: Limits) -> None:
    if limits.seconds is not None:
        between("seconds", limits.seconds)
    for name, value, least in (("steps", limits.steps, 1), ("test_rows", limits.test_rows, 2)):
        if value is not None:
            whole(name, value, least=least)


def _editions(
    data: Path, datasets: Sequence[str] | None, tell: Callable[[str], None]
) -> dict[str, tuple[str, ...]]:
    """Return the files of each table; those that are not there are told, and left out."""
    known = {entry.name: entry for entry in known_data()}
    for name in datasets or ():
        contestants(name)
    found = {}
    for name in SUITE if datasets is None else dict.fromkeys(datasets):
        if datasets is None and not known[name].found(data):
            missing = " and ".join(known[name].missing(data))
            tell(f"{name} is left out: {missing} is not in {data}; see bnaf data")
            continue
        found[name] = find_edition(name, data).files
    return found


def _waiting(
    runs: Sequence[DensityTrial], ledger: Ledger, *, whole_plan: bool
) -> Iterator[tuple[DensityTrial, int]]:
    """Yield the runs that are not finished, each once, and how many are left, it included.

    Which are the best rivals shows only when the others are done.
    """
    tried: set[str] = set()
    while True:
        more = plan_best_rivals(runs, ledger.records) if whole_plan else []
        ordered = sorted([*runs, *more], key=lambda run: run.contestant.last)
        left = [run for run in ordered if run.stem not in tried and not _finished(run, ledger)]
        if not left:
            return
        tried.add(left[0].stem)
        yield left[0], len(left)


def _finished(run: DensityTrial, ledger: Ledger) -> bool:
    record = ledger.find(run.stem)
    return record is not None and not record["failure"]


def _describe(record: Record) -> str:
    if record["failure"]:
        return f"failed: {record['failure']}"
    measures = record["measures"]
    text = f"{measures['mean']:.4f} ± {measures['error']:.4f} nats"
    return text + (f", {record['seconds']:.0f} s" if "seconds" in record else "")


def read_results(out: Path, limits: Limits = NO_LIMITS) -> DensityResults:
    """Return the tables of what is stored.

    Args:
        out: Folder of the results.
        limits: Those under which they were run; by default those of the file.

    Raises:
        StorageError: If the results cannot be read.
    """
    ledger = open_ledger(out)
    standings = stand(ledger.records, limits)
    return DensityResults(standings, all_sheets(standings), ledger.path)


def write_results(out: Path, limits: Limits = NO_LIMITS) -> DensityResults:
    """Write the tables of what is stored, ``density.md``, and return them.

    Args:
        out: Folder of the results.
        limits: As in :func:`read_results`.
    """
    results = read_results(out, limits)
    with atomic_file(out / f"{STUDY}.md") as file:
        file.write(write_markdown(results.sheets).encode())
    return results


def write_picture(out: Path, limits: Limits = NO_LIMITS, *, needed: bool = True) -> Path | None:
    """Draw the course of all runs, ``density.png``, and return where it is.

    Args:
        out: Folder of the results.
        limits: As in :func:`read_results`.
        needed: Whether it is an error if there is nothing to draw, rather than no picture.

    Raises:
        SettingsError: If there is nothing to draw, and there should be.
    """
    from bnaf.plots import write_figure  # loads matplotlib
    from bnaf.studies.density.curves import draw_curves, with_curves

    standings = read_results(out, limits).standings
    if not needed and not with_curves(standings):
        return None
    path = out / f"{STUDY}.png"
    write_figure(draw_curves(standings), path, overwrite=True, colours=COLOURS)
    return path
