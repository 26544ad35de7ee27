"""The default recipe: what is chosen from the size of a table where a setting leaves it open."""

import math
from dataclasses import dataclass, replace
from typing import Any

from bnaf.errors import SettingsError
from bnaf.training._run.schedule import Budget
from bnaf.training.settings import TrainingSettings

SMALL_TABLE = 1_000  # rows up to which every step takes them all
BATCH = 512
SMALL_STEPS = 300  # of runs whose steps take all rows
PULL, PULLED_ROWS = 1.0, 5_000  # strength of the prior of the weights, and rows up to which it is
SCOTT_SHARE = 0.25  # deviation of the noise of a small table, in units of Scott's bandwidth
STREAM_ROWS = 1_000_000  # taken for the length of a stream that does not say
LEAST_STEPS, MOST_STEPS, EPOCHS = 2_000, 20_000, 100
SHORTEST_INTERVAL, LONGEST_INTERVAL = 10, 500  # steps between evaluations that cost little
EVALUATION_COST = 7  # validating no more than batch / 7 rows per step costs about 5 % of the time
PLAIN_FEATURES = 16  # columns up to which a flow has its full width
FULL_WIDTH, LEAST_WIDTH = 20, 5
WIDTH_TIMES_FEATURES = 250


@dataclass(frozen=True)
class Recommendation:
    """Sizes that suit a table.

    Args:
        transforms: Stacked networks of the flow.
        hidden_layers: Hidden layers of each.
        width: Units per feature of each layer.
        batch: Rows per step.
        steps: Steps where no budget is set.
    """

    transforms: int
    hidden_layers: int
    width: int
    batch: int
    steps: int

    @property
    def flow_settings(self) -> dict[str, Any]:
        """Arguments of a flow, beside its features."""
        return {
            "transforms": self.transforms,
            "hidden_layers": self.hidden_layers,
            "width": self.width,
        }


def recommend(rows: int, features: int) -> Recommendation:
    """Return the sizes of a flow and of its batches that suit a table.

    Weights grow with the square of features times width, so wide tables get few units per
    feature. Small tables get a small flow, which has less to memorise with.

    Args:
        rows: Number of training rows.
        features: Number of columns.

    Raises:
        SettingsError: If one of them is below 1.

    Example:
        >>> recommend(1_600_000, 6)
        Recommendation(transforms=3, hidden_layers=2, width=20, batch=512, steps=20000)
        >>> recommend(29_556, 43).width
        6
    """
    if rows < 1 or features < 1:
        raise SettingsError(
            f"rows and features must be at least 1, got {rows} rows and {features} features."
        )
    width = FULL_WIDTH
    if features > PLAIN_FEATURES:
        width = max(LEAST_WIDTH, round(WIDTH_TIMES_FEATURES / features))
    if rows > SMALL_TABLE:
        return Recommendation(3, 2, width, BATCH, choose_steps(rows, BATCH))
    return Recommendation(2, 1, max(LEAST_WIDTH, width // 2), rows, choose_steps(rows, rows))


def choose_batch(rows: int, batch: int | None) -> int:
    """Return the largest number of rows per step: all of a small table, 512 of a large one."""
    return batch or (rows if rows <= SMALL_TABLE else BATCH)


def choose_steps(rows: int, batch: int) -> int:
    """Return a number of steps for a run without budget."""
    if rows <= batch:
        return SMALL_STEPS
    return min(MOST_STEPS, max(LEAST_STEPS, EPOCHS * math.ceil(rows / batch)))


def suit_table(
    settings: TrainingSettings, rows: float, columns: int, *, whole: bool
) -> TrainingSettings:
    """Return the settings of a run on a standardised table.

    Where rows are few, a prior keeps the weights from memorising them. Where they are many, it
    would only keep a density from being as sharp as they are. A run whose steps take all rows of a
    small table has noise as well, in place of an early end, which would need rows set aside to
    tell it: such a run may go on until it has converged.

    Args:
        settings: Those of the run; what they leave open is filled in.
        rows: Number of rows, or what weighted ones are worth.
        columns: Number of columns, those of a context included.
        whole: Whether it is a run of the second kind.
    """
    scott = rows ** (-1 / (columns + 4))
    chosen: dict[str, Any] = {"pull": PULL} if rows <= PULLED_ROWS else {}
    chosen |= {"noise": SCOTT_SHARE * scott} if whole else {}
    left_open = {name: value for name, value in chosen.items() if getattr(settings, name) is None}
    return replace(settings, **left_open)


def choose_budget(settings: TrainingSettings, epoch_batches: int | None, steps: int) -> Budget:
    """Return the budget of a run, epochs turned into steps where their length is known.

    Args:
        settings: Limits that were set.
        epoch_batches: Steps in an epoch, if known.
        steps: What to spend where no limit was set.
    """
    if settings.epochs is None and settings.seconds is None:
        return Budget(steps=settings.steps or steps)
    limits = [settings.steps] if settings.steps else []
    if settings.epochs and epoch_batches:
        limits.append(settings.epochs * epoch_batches)
    return Budget(settings.epochs, min(limits, default=None), settings.seconds)


def choose_interval(
    settings: TrainingSettings, epoch_batches: int | None, batch: int, valid_rows: int | None
) -> int | None:
    """Return the number of steps between evaluations; ``None`` for once an epoch.

    Args:
        settings: Those of the run.
        epoch_batches: Steps in an epoch, if known.
        batch: Rows per step.
        valid_rows: Number of validation rows, if there are any and it is known.
    """
    if settings.evaluate_every is not None or epoch_batches is None:
        return settings.evaluate_every
    if settings.schedule == "plateau":  # whose patience is counted in epochs
        return epoch_batches
    affordable = math.ceil(EVALUATION_COST * (valid_rows or 0) / batch)
    return max(SHORTEST_INTERVAL, min(epoch_batches, LONGEST_INTERVAL), affordable)
