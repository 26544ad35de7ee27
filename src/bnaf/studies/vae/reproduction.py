"""The study from beginning to end: runs, one at a time, results, table and figures."""

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from bnaf._checks import whole
from bnaf._files import atomic_file
from bnaf.errors import BnafError, SettingsError, StorageError, TableError, TrainingError
from bnaf.studies.ledger import Ledger, Record
from bnaf.studies.running import display
from bnaf.studies.sheets import Sheet, write_markdown
from bnaf.studies.vae.data import ImageParts, read_images
from bnaf.studies.vae.plans import (
    SAMPLES,
    STUDY,
    VaeTrial,
    plan_queue,
    plan_trials,
    read_image_sets,
)
from bnaf.studies.vae.running import Tell, carry_out, load_trained, vae_file
from bnaf.studies.vae.tables import Standing, collect_standings, make_sheets

RUNS = "runs"  # folder of checkpoints and trained VAEs
COLOURS = 256  # of figures, so that they are small

Reader = Callable[[str, int], ImageParts]  # from the name of an image set and a split


@dataclass(frozen=True)
class VaeResults:
    """What was measured so far.

    Args:
        results: The file that holds every run.
        standings: All seeds of each posterior together.
        sheets: The tables.
    """

    results: Path
    standings: list[Standing]
    sheets: list[Sheet]


def read_results(out: Path) -> VaeResults:
    """Return the stored results of the study.

    Args:
        out: Folder of results.

    Raises:
        StorageError: If they cannot be read.
    """
    ledger = open_ledger(out)
    records = list(ledger.records.values())
    return VaeResults(ledger.path, collect_standings(records), make_sheets(records))


def reproduce_vae(
    *,
    out: Path,
    data: Path,
    datasets: Sequence[str] | None = None,
    flows: Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
    epochs: int | None = None,
    test_images: int | None = None,
    samples: int = SAMPLES,
    quiet: bool = False,
    announce: Tell | None = None,
) -> VaeResults:
    """Run the study, or what is left of it, one run at a time.

    Without image sets and posteriors this is the queue of ``settings/vae/queue.toml``: the
    comparison at an equal number of epochs first, then runs that are carried on until they stop
    improving. A run that is finished is at once in ``vae.json``; one that was cut short goes on
    where it stood, and one with more epochs than before is carried on. Table and curves are
    written anew after every run, with a figure of images for each seed and number of epochs.

    Args:
        out: Folder for results, table and figures; checkpoints and VAEs lie in ``runs`` in it.
        data: Folder of the public files.
        datasets: Names of image sets.
        flows: Names of posteriors.
        seeds: Seeds; 0 by default.
        epochs: Passes over the images; those of the image set by default.
        test_images: Number of images the likelihood is estimated on; likewise.
        samples: Draws for each of them.
        quiet: Whether to show no progress of the training.
        announce: Called with a line whenever a run is finished.

    Raises:
        SettingsError: If there is no such image set or posterior, or a number is not allowed.
        TableError: If a public file is missing or not what it should be.
        StorageError: If the results of before cannot be read.
        TrainingError: If a run has failed; the others are done.
    """
    for label, value in (("epochs", epochs), ("samples", samples), ("test_images", test_images)):
        if value is not None:
            whole(label, value, least=2 if label == "test_images" else 1)
    if datasets is None and flows is None and epochs is None:
        trials = plan_queue(seeds=seeds, test_images=test_images, samples=samples)
    else:
        trials = plan_trials(
            datasets=datasets,
            flows=flows,
            seeds=seeds,
            epochs=epochs,
            test_images=test_images,
            samples=samples,
        )
    tell = announce or _silent
    folder = out / RUNS
    folder.mkdir(parents=True, exist_ok=True)
    ledger = open_ledger(out)
    tell(f"{sum(not is_finished(one, ledger) for one in trials)} of {len(trials)} runs to do")
    read = _reader(data)
    _write(out, ledger, read, tell)  # what a run that was killed right after its record lacks
    failures: list[BnafError] = []
    for count, trial in enumerate(trials, 1):
        if is_finished(trial, ledger):
            continue
        images = read(trial.images.name, trial.split)
        progress = display(trial.label, quiet=quiet)
        try:
            record = carry_out(trial, images, folder, progress, _silent if quiet else tell)
        except (SettingsError, TrainingError) as error:  # of this run: the others go on
            tell(f"{count} of {len(trials)}: {trial.label} has failed: {error}")
            failures.append(error)
            continue
        ledger.add(record)
        tell(f"{count} of {len(trials)}: {trial.label}: {_describe(record)}")
        _write(out, ledger, read, tell)
    if failures:
        raise failures[0]
    return read_results(out)


def is_finished(trial: VaeTrial, ledger: Ledger) -> bool:
    """Tell whether a run was measured, or had stopped improving before these epochs."""
    if trial.key in ledger.records:
        return True
    return any(
        record["stem"] == trial.stem
        and record["reason"] == "early stopping"
        and record["trained_epochs"] <= trial.epochs
        and record["measures"]["samples"] >= trial.samples
        and record["measures"]["rows"] >= trial.test_images
        for record in ledger.records.values()
    )


def open_ledger(out: Path) -> Ledger:
    """Return the results of a folder."""
    return Ledger(out / f"{STUDY}.json", _occasion)


def _occasion(record: Record) -> Hashable:
    """Return what tells records apart: a coarse measurement leaves a fine one alone."""
    measures = record["measures"]
    parts = tuple(record[part] for part in ("name", "flow", "seed", "epochs"))
    return (*parts, measures["rows"], measures["samples"])


def _reader(data: Path) -> Reader:
    """Return a function that reads each split of an image set once."""
    sets = read_image_sets()
    return cache(lambda name, split: read_images(sets[name], data, split=split))


def _silent(line: str) -> None:
    pass


def _describe(record: Record) -> str:
    measures = record["measures"]
    return (
        f"-ELBO {-measures['elbo']:.3f}, NLL {measures['nll']:.3f} ± {measures['nll_error']:.3f} "
        f"nats, {record['seconds']:.0f} s; {record['reason']} after {record['trained_epochs']} "
        "epochs"
    )


def write_all(out: Path, data: Path, announce: Tell | None = None) -> None:
    """Write table and curves of stored results, and the images of runs that have none.

    Images need the trained VAE, which lies in ``runs``, and the public files; what cannot be drawn
    for want of one is told and left out.

    Args:
        out: Folder of results.
        data: Folder of the public files.
        announce: Called with a line for every figure of images.

    Raises:
        StorageError: If the results cannot be read, or a file not be written.
    """
    _write(out, open_ledger(out), _reader(data), announce or _silent)


def _write(out: Path, ledger: Ledger, read: Reader, tell: Tell) -> None:
    from bnaf.plots import write_figure  # loads matplotlib
    from bnaf.studies.vae.drawings import draw_curves, draw_images

    records = list(ledger.records.values())
    standings = collect_standings(records)
    if not standings:
        return
    with atomic_file(out / f"{STUDY}.md") as file:
        file.write(write_markdown(make_sheets(records)).encode())
    write_figure(draw_curves(standings), out / f"{STUDY}.png", overwrite=True, colours=COLOURS)
    sets = read_image_sets()
    for picture, record in _missing_pictures(out, records).items():
        images, path = sets[record["name"]], _trained(out, record)
        try:
            parts, vae = (
                read(images.name, images.split(record["seed"])),
                load_trained(path, images.kind),
            )
        except (TableError, StorageError) as error:
            tell(f"{picture.name} is not drawn: {error}")
            continue
        figure = draw_images(vae, images, parts.test)
        write_figure(figure, picture, overwrite=True, colours=COLOURS)
        tell(f"images: {picture}")


def _missing_pictures(out: Path, records: Sequence[Record]) -> dict[Path, Record]:
    """Return figures of images that are not there or older than the VAE, where there is one."""
    newest = {
        out
        / f"{STUDY}-{one['name']}-{one['flow']}-seed{one['seed']}-{one['epochs']}epochs.png": one
        for one in sorted(records, key=lambda one: str(one["date"]))
        if one["name"] in read_image_sets()
    }
    return {
        picture: one
        for picture, one in newest.items()
        if _time(_trained(out, one)) > _time(picture)
    }


def _trained(out: Path, record: Record) -> Path:
    return vae_file(out / RUNS, record["stem"], record["epochs"])


def _time(path: Path) -> float:
    """Return when a file was written; before all others where it was not."""
    return path.stat().st_mtime if path.exists() else -math.inf
