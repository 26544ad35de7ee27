"""The door to training."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch.distributions import Distribution

from bnaf.errors import SettingsError
from bnaf.flows.bnaf import Flow
from bnaf.training._inputs import make_held_out, make_source
from bnaf.training._run.logs import check_kinds
from bnaf.training.objectives import ConditionalLikelihood, MaximumLikelihood, Objective
from bnaf.training.progress import Progress
from bnaf.training.record import TrainingRecord
from bnaf.training.settings import TrainingSettings


def fit(
    flow: Flow,
    rows: Any = None,
    *,
    valid: Any = None,
    context: Any = None,
    weights: Any = None,
    valid_context: Any = None,
    valid_weights: Any = None,
    objective: Objective | None = None,
    settings: TrainingSettings | None = None,
    checkpoint: Path | str | None = None,
    checkpoint_every: float = 60.0,
    resume: bool = True,
    logs: Path | str | None = None,
    loggers: Sequence[str] = ("csv",),
    progress: bool | Progress = True,
) -> TrainingRecord:
    """Train a flow in place, and leave it with the best weights that were found.

    Rows are taken as they are: give every column a mean near 0 and a deviation near 1. With
    validation rows the best averaged weights are kept and the run ends when they no longer
    improve; without, the last average is kept, and no rows are set aside in secret. Ctrl-C and
    SIGTERM end the run after the step at hand, with the best weights so far.

    Args:
        flow: What is trained.
        rows: Table as a tensor or an array, a :class:`bnaf.training.BatchSource`, or an iterable
            of batches that can be gone through again; ``None`` for an objective that needs none.
        valid: Validation rows, in any of these forms.
        context: What each row is conditioned on, for a flow with context; batches of a stream
            bring their own, as :class:`bnaf.training.Batch`.
        weights: How much each row counts.
        valid_context: Context of the validation rows.
        valid_weights: Weights of the validation rows.
        objective: What is minimised; the likelihood by default, conditional where the flow is.
        settings: How; the default recipe if not given.
        checkpoint: File to keep the run in.
        checkpoint_every: Seconds between two writings of it; it is always written at the end.
        resume: Whether to go on from that file where it exists, rather than overwrite it.
        logs: Folder for logs of every evaluation, in a folder of their own for each run.
        loggers: Which: "csv", "tensorboard" or both.
        progress: Whether to show progress on standard error, as a bar on a terminal, else as
            lines; or a display of your own.

    Returns:
        Record of the run; its ``reason`` says why it ended.

    Raises:
        TrainingError: If too many steps had to be skipped because the loss or its gradient was
            not finite. The flow has the best weights even then.
        ShapeError: If rows, context or weights do not fit the flow or each other.
        TableError: If a value is missing or infinite.
        SettingsError: If the checkpoint is that of another run, or arguments contradict.
        StorageError: If the checkpoint cannot be read, or could not be written.

    Example:
        >>> import torch
        >>> from bnaf import BNAF
        >>> flow = BNAF(2, transforms=1, width=4)
        >>> settings = TrainingSettings(steps=5)
        >>> fit(flow, torch.randn(100, 2), settings=settings, progress=False).steps
        5
    """
    from bnaf.training._run.job import Job  # loads Fabric and much of torch: only for those who train

    settings = settings or TrainingSettings()
    check_kinds(loggers)
    objective = objective or _likelihood(flow)
    if objective.flow is not flow:
        raise SettingsError("objective must be one of the flow given to fit; its flow is another.")
    if settings.learning_rate is None:
        settings = replace(settings, learning_rate=flow.learning_rate)
    like = next(flow.parameters())
    source = make_source(rows, context, weights, objective, settings, like)
    held_out = None
    if valid is not None:
        held_out = make_held_out(valid, valid_context, valid_weights, flow, like)
    job = Job(
        objective=objective,
        source=source,
        valid=held_out,
        settings=settings,
        checkpoint=None if checkpoint is None else Path(checkpoint),
        checkpoint_every=checkpoint_every,
        resume=resume,
        logs=None if logs is None else Path(logs),
        loggers=tuple(loggers),
        progress=progress,
    )
    checked = Distribution._validate_args
    try:
        return job.launch()
    finally:
        Distribution.set_default_validate_args(checked)  # torch.compile switches it off


def _likelihood(flow: Flow) -> Objective:
    return ConditionalLikelihood(flow) if flow.context_features else MaximumLikelihood(flow)
