"""Runs of a study, in one process or several; one that was cut short can be gone on with."""

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from time import sleep

import torch

from bnaf.model.files import save
from bnaf.studies.energy import EnergyStudy
from bnaf.studies.ledger import Record, make_record
from bnaf.studies.plans import Trial
from bnaf.studies.study import Study
from bnaf.studies.toy import ToyStudy
from bnaf.training.progress import Lines, Progress, Silence

STUDIES: dict[str, Study] = {study.name: study for study in (ToyStudy(), EnergyStudy())}
LINE_SECONDS = 30.0
GRACE = 20.0  # seconds in which a worker without a parent may write its checkpoint


def core_count() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def flow_file(run: Trial, folder: Path) -> Path:
    """Return where the trained flow of a run is kept."""
    return folder / f"{run.stem}.safetensors"


def carry_out(run: Trial, folder: Path, progress: Progress) -> Record:
    """Train a flow, keep it and measure it; a run that was cut short goes on where it stood.

    Args:
        run: What to do.
        folder: Where its checkpoint and the trained flow are kept.
        progress: Display of the training.

    Raises:
        KeyboardInterrupt: If it was asked to stop; its checkpoint is written.
    """
    study, flow = STUDIES[run.experiment.study], run.build()
    checkpoint = folder / f"{run.stem}.checkpoint"
    with one_thread():
        training = study.train(run, flow, checkpoint=checkpoint, progress=progress)
        if training.reason == "interrupted":
            raise KeyboardInterrupt
        record = make_record(run, flow, training, study.measure(run, flow))
    save(flow, flow_file(run, folder))
    checkpoint.unlink()
    return record


def carry_out_all(
    runs: Sequence[Trial], folder: Path, *, workers: int, quiet: bool
) -> Iterator[tuple[Trial, Record]]:
    """Yield runs with their records as they are finished.

    Networks this small gain little from threads, so every run has one thread, and several runs
    share the machine.

    Args:
        runs: What to do.
        folder: Where checkpoints and trained flows are kept.
        workers: Runs at a time; more than one take place in processes of their own.
        quiet: Whether to show no progress of the training.
    """
    if min(workers, len(runs)) <= 1:
        for run in runs:
            yield run, _carry_out(run, folder, quiet)
        return
    yield from _carry_out_apart(runs, folder, workers=min(workers, len(runs)), quiet=quiet)


def _carry_out_apart(
    runs: Sequence[Trial], folder: Path, *, workers: int, quiet: bool
) -> Iterator[tuple[Trial, Record]]:
    """Yield what processes finish; each gets its next run only when it is free.

    Whatever ends this early thus ends with the runs at hand, which write their checkpoints: a
    signal from the keyboard reaches every process, and workers notice when this one is gone.
    """
    context = multiprocessing.get_context("spawn")
    waiting, at_hand = iter(runs), dict[Future[Record], Trial]()
    with ProcessPoolExecutor(workers, context, initializer=_watch_parent) as pool:

        def begin(count: int) -> None:
            for run in islice(waiting, count):
                at_hand[pool.submit(_carry_out, run, folder, quiet)] = run

        begin(workers)
        while at_hand:
            for future in wait(at_hand, return_when=FIRST_COMPLETED).done:
                yield at_hand.pop(future), future.result()
                begin(1)


def _carry_out(run: Trial, folder: Path, quiet: bool) -> Record:
    return carry_out(run, folder, display(run.label, quiet=quiet))


def display(label: str, *, quiet: bool) -> Progress:
    """Return a display of lines that begin with a label, or of nothing."""
    if quiet:
        return Silence()
    return Lines(sys.stderr, label=f"{label}: ", interval=LINE_SECONDS)


def _watch_parent() -> None:
    """End this process, checkpoint written, when the one that started it is gone."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
        sleep(GRACE)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch use one thread, so that the numbers do not depend on how many there are."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
