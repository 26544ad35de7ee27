"""One run of the study: fitted within its budget, kept, and measured on the test rows."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

from jaxtyping import Float64
from torch import Tensor

from bnaf.errors import BnafError
from bnaf.evaluation.classical import CLASSICAL
from bnaf.evaluation.scores import block_means, standard_error
from bnaf.model.files import save
from bnaf.model.model import Model
from bnaf.studies.density.rows import StudyRows, starting_rows
from bnaf.studies.density.trials import STUDY, DensityTrial
from bnaf.studies.ledger import Record, describe_machine
from bnaf.training import TableFacts, TrainingRecord, fit, resolve
from bnaf.training.progress import Progress

CURVE_POINTS = 60
DIGITS = 5
FAILURES = (BnafError, RuntimeError, MemoryError)  # that end a run, and not the whole study


def model_file(run: DensityTrial, folder: Path) -> Path:
    """Return where the fitted model of a run is kept."""
    return folder / f"{run.stem}.safetensors"


def carry_out(run: DensityTrial, rows: StudyRows, folder: Path, progress: Progress) -> Record:
    """Fit a contestant and measure it; a run that was cut short goes on where it stood.

    A run that fails is recorded with the reason, so that the others are not held up by it.

    Args:
        run: What to do.
        rows: The table.
        folder: Where its checkpoint and the fitted model are kept.
        progress: Display of the training.

    Raises:
        KeyboardInterrupt: If it was asked to stop; its checkpoint is written.
    """
    try:
        found = _fit_classical(run, rows) if run.contestant.classical else None
        found = found or _fit_flow(run, rows, folder, progress)
    except FAILURES as error:
        found = {"failure": f"{type(error).__name__}: {error}"[:500], "measures": None}
    return {
        "run": run.stem,
        "study": STUDY,
        "name": run.name,
        "flow": run.contestant.name,
        "title": run.contestant.title,
        "seed": run.seed,
        "limits": list(run.limits),
        "budget": None if run.contestant.classical else run.budget,
        "command": run.command,
        "data": rows.table.exactness,
        "exact": rows.table.exact,
        "train_rows": None if run.contestant.fresh else len(rows.table.parts.train),
        "failure": None,
        **found,
        **describe_machine(),
    }


def _fit_classical(run: DensityTrial, rows: StudyRows) -> Record:
    fitted = CLASSICAL[run.contestant.flow](
        rows.table.parts.train, rows.test(run.most_test_rows), run.seed
    )
    return {"measures": measure(fitted.scores), "weights": fitted.weights}


def _fit_flow(run: DensityTrial, rows: StudyRows, folder: Path, progress: Progress) -> Record:
    model, training = train(run, rows, folder / f"{run.stem}.checkpoint", progress)
    if training.reason == "interrupted":
        raise KeyboardInterrupt
    log_det = model.standardisation.log_det
    measures = measure(model.log_prob(rows.test(run.most_test_rows).rows, warn=False))
    save(model, model_file(run, folder))
    (folder / f"{run.stem}.checkpoint").unlink()  # not before: a run must not be lost
    return {
        "measures": measures
        | {"valid": None if training.valid is None else log_det - training.valid},
        "weights": model.flow.parameter_count,
        "settings": model.flow.settings,
        "standardised": run.contestant.standardised,
        "fresh": run.contestant.fresh,
        "training": training.settings,
        "steps": training.steps,
        "epochs": training.epochs,
        "seconds": training.seconds,
        "reason": training.reason,
        "skipped_steps": training.skipped,
        "curve": trace(training, log_det),
    }


def train(
    run: DensityTrial, rows: StudyRows, checkpoint: Path, progress: Progress
) -> tuple[Model, TrainingRecord]:
    """Fit a flow within its budget, or go on from its checkpoint; time spent before counts."""
    contestant = run.contestant
    standardised = contestant.standardised
    flow = run.build()
    known = rows.train(standardised=standardised)
    valid = rows.valid(contestant.valid_rows, standardised=standardised)
    facts = TableFacts(columns=flow.features, valid_rows=len(valid), standardised=standardised)
    if not contestant.fresh:
        facts = replace(facts, rows=len(known), worth=len(known))
    settings = resolve(run.training, facts, flow)
    seen: Any = rows.fresh(settings, standardised=standardised) if contestant.fresh else known
    flow.start_from(starting_rows(seen))
    training = fit(
        flow, seen, valid=valid, settings=settings, checkpoint=checkpoint, progress=progress
    )
    scales = rows.scales_of(standardised=standardised)
    return Model(flow, columns=rows.table.parts.train.columns, standardisation=scales), training


def trace(training: TrainingRecord, log_det: float) -> dict[str, list[float]]:
    """Return the course of a fit: seconds, and log-likelihoods of validation rows by then."""
    points = [
        (round(entry.seconds, 2), round(log_det - entry.valid, DIGITS))
        for entry in training.shortened(CURVE_POINTS).history
        if entry.valid is not None and math.isfinite(entry.valid)
    ]
    return {"seconds": [point[0] for point in points], "valid": [point[1] for point in points]}


def measure(scores: Float64[Tensor, " rows"]) -> dict[str, Any]:
    """Return the mean of log-densities, its standard error, and means over blocks of rows.

    Rows of the blocks are the same for all contestants, so that the error of a difference follows
    from the differences of the blocks.

    Raises:
        BnafError: If some are not finite.
    """
    odd = int((~scores.isfinite()).sum())
    if odd:
        raise BnafError(f"{odd:,} of {len(scores):,} test rows have no finite log-density.")
    return {
        "rows": len(scores),
        "mean": scores.mean().item(),
        "error": standard_error(scores),
        "blocks": block_means(scores),
    }
