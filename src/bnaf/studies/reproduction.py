"""A study from beginning to end: runs, results, table and figure."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from bnaf._checks import one_of, whole
from bnaf._files import atomic_file
from bnaf.studies.ledger import Ledger, Record
from bnaf.studies.plans import TEST_ROWS, Trial, experiment_names, plan_trials, read_experiment
from bnaf.studies.running import STUDIES, carry_out_all, core_count, flow_file
from bnaf.studies.tables import Summary, summarise, write_markdown

RUNS = "runs"  # folder of checkpoints and trained flows
COLOURS = 256  # of the figure, so that it is small


class Reproduction(NamedTuple):
    """What a study came to, and where it was written."""

    summaries: list[Summary]
    results: Path
    table: Path
    figure: Path


def reproduce(
    study: str,
    name: str | None = None,
    *,
    out: Path,
    flows: Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
    steps: int | None = None,
    test_rows: int = TEST_ROWS,
    workers: int | None = None,
    quiet: bool = False,
    announce: Callable[[str], None] | None = None,
) -> Reproduction:
    """Run a study of the paper, or what is left of it.

    Every run that is finished is at once in ``<study>.json``, with the trained flow under
    ``runs``; one that was cut short goes on from its checkpoint there. Runs that are finished are
    not run again. Table and figure hold the runs that were asked for; those of a part of the study
    are called ``<study>-part``, and leave what the whole came to alone.

    Args:
        study: "toy" or "energy".
        name: One data set or energy; all by default.
        out: Folder for results, table and figure.
        flows: Flows to compare, by the names in the files of the study; all by default.
        seeds: Seeds, in place of those of the files.
        steps: Steps, in place of those of the files.
        test_rows: Number of fresh rows each flow is measured on.
        workers: Runs at a time, of one thread each; as many as there are cores by default.
        quiet: Whether to show no progress of the training.
        announce: Called with a line whenever a run is finished.

    Raises:
        SettingsError: If there is no such study, name or flow, or a number is not allowed.
        StorageError: If the results of before cannot be read.
    """
    one_of("study", study, tuple(STUDIES))
    for label, value in (("steps", steps), ("workers", workers)):
        if value is not None:
            whole(label, value)
    whole("test_rows", test_rows, least=2)
    names = experiment_names(study) if name is None else [name]
    experiments = [read_experiment(study, one) for one in names]
    runs = plan_trials(experiments, flows=flows, seeds=seeds, steps=steps, test_rows=test_rows)
    folder = out / RUNS
    folder.mkdir(parents=True, exist_ok=True)
    ledger = Ledger(out / f"{study}.json")
    left = [run for run in runs if not _is_finished(run, ledger, folder)]
    tell = announce or (lambda line: None)
    tell(f"{len(left)} of {len(runs)} runs to do")
    workers = workers or core_count()
    finished = carry_out_all(left, folder, workers=workers, quiet=quiet)
    for count, (run, record) in enumerate(finished, 1):
        ledger.add(record)
        tell(f"{count} of {len(left)}: {run.label}: {_describe(record)}")
    whole_study = plan_trials([read_experiment(study, one) for one in experiment_names(study)])
    stem = study if runs == whole_study else f"{study}-part"
    return _write(study, runs, ledger, folder, out / stem)


def _is_finished(run: Trial, ledger: Ledger, folder: Path) -> bool:
    return ledger.find(run.stem) is not None and flow_file(run, folder).exists()


def _describe(record: Record) -> str:
    measures = record["measures"]
    return (
        f"{measures['excess']:.4f} ± {measures['loss_error']:.4f} nats above the least, "
        f"{record['seconds']:.0f} s"
    )


def _write(
    study: str, runs: Sequence[Trial], ledger: Ledger, folder: Path, stem: Path
) -> Reproduction:
    """Write the table and the figure; the first seed of each flow is drawn."""
    from bnaf.plots import write_figure  # loads matplotlib
    from bnaf.studies.panels import draw_study

    finished = [(run, ledger.records[run.stem]) for run in runs]
    summaries = summarise(STUDIES[study], finished)
    claims = {run.experiment.name: run.experiment.claim for run in runs}
    table, figure = stem.with_suffix(".md"), stem.with_suffix(".png")
    with atomic_file(table) as file:
        file.write(write_markdown(STUDIES[study], summaries, claims).encode())
    shown = {(run.experiment.name, run.variant.name): run for run in reversed(runs)}
    panels = [
        (run, record, flow_file(run, folder)) for run, record in finished if run in shown.values()
    ]
    write_figure(draw_study(STUDIES[study], panels), figure, overwrite=True, colours=COLOURS)
    return Reproduction(summaries, ledger.path, table, figure)
