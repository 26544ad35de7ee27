"""The door to training."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import nn
from torch.optim import Optimizer

from bnaf._torch import kept_validation
from bnaf.errors import SettingsError
from bnaf.flows.flow import Flow
from bnaf.training._inputs import choose_objective, make_held_out, make_source
from bnaf.training.objectives import Objective
from bnaf.training.progress import InUnits, Progress
from bnaf.training.record import TrainingRecord
from bnaf.training.settings import TrainingSettings


def fit(
    flow: Flow | nn.Module,
    rows: Any = None,
    *,
    valid: Any = None,
    context: Any = None,
    weights: Any = None,
    valid_context: Any = None,
    valid_weights: Any = None,
    objective: Objective | None = None,
    optimiser: Callable[[Any], Optimizer] | None = None,
    settings: TrainingSettings | None = None,
    checkpoint: Path | str | None = None,
    checkpoint_every: float = 60.0,
    resume: bool = True,
    logs: Path | str | None = None,
    loggers: Sequence[str] = ("csv",),
    progress: bool | InUnits | Progress = True,
) -> TrainingRecord:
    """Train a flow in place, and leave it with the best weights that were found.

    Rows are taken as they are: give every column a mean near 0 and a deviation near 1. With
    validation rows the best averaged weights are kept and the run ends when they no longer
    improve; without, the last average is kept, and no rows are set aside in secret. Ctrl-C and
    SIGTERM end the run after the step at hand, with the best weights so far.

    Args:
        flow: What is trained: a flow, or any module that the objective trains.
        rows: Table as a tensor or an array, a :class:`bnaf.training.BatchSource`, or an iterable
            of batches that can be gone through again; ``None`` for an objective that needs none.
        valid: Validation rows, in any of these forms.
        context: What each row is conditioned on, for a flow with context; batches of a stream
            bring their own, as :class:`bnaf.training.Batch`.
        weights: How much each row counts.
        valid_context: Context of the validation rows.
        valid_weights: Weights of the validation rows.
        objective: What is minimised; the negative log-likelihood of a flow by default.
        optimiser: From parameters to an optimiser; Adam by the settings by default. The settings
            govern the rate of the first of its groups of parameters, and those of the others in
            proportion.
        settings: How; the default recipe if not given.
        checkpoint: File to keep the run in.
        checkpoint_every: Seconds between two writings of it; it is always written at the end.
        resume: Whether to go on from that file where it exists, rather than overwrite it.
        logs: Folder for logs of every evaluation, in a folder of their own for each run.
        loggers: Which: "csv", "tensorboard" or both.
        progress: Whether to show progress on standard error, as a bar on a terminal, else as
            lines; as :class:`bnaf.training.progress.InUnits` with log-likelihoods in place of
            losses; or a display of your own.

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
    from bnaf.training._run.job import Job  # loads Fabric and much of torch: only for training
    from bnaf.training._run.logs import check_kinds

    check_kinds(loggers)
    objective = objective or choose_objective(flow)
    if objective.trained is not flow:
        raise SettingsError("objective must be one of the flow given to fit; its flow is another.")
    like = next(objective.parameters())
    held_out = None
    if valid is not None:
        held_out = make_held_out(valid, valid_context, valid_weights, objective, like)
    settings = settings or TrainingSettings()
    source, settings = make_source(rows, context, weights, objective, settings, held_out, like)
    job = Job(
        objective=objective,
        optimiser=optimiser,
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
    with kept_validation():
        return job.launch()


def is_of_run(checkpoint: Path | str, record: Mapping[str, Any]) -> bool:
    """Tell whether a record was left by the run of a checkpoint, or by an earlier part of it.

    Args:
        checkpoint: File that the run was kept in.
        record: What :meth:`bnaf.TrainingRecord.as_dict` returned, or the record of a model.

    Raises:
        StorageError: If the checkpoint is damaged.
    """
    from bnaf.training._run.checkpoints import explained, read_checkpoint

    state = read_checkpoint(Path(checkpoint)).facts
    with explained(Path(checkpoint)):
        moments = [(entry[0], entry[2]) for entry in state["state"]["history"]]
        moments.append((state["state"]["step"], state["state"]["seconds"]))
    history = record.get("history") or [{"step": record.get("steps")} | dict(record)]
    last = history[-1] if isinstance(history, list) else None
    return isinstance(last, dict) and (last.get("step"), last.get("seconds")) in moments
