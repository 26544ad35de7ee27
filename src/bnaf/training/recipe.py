"""The default recipe: all that settings leave open is filled in here, once and in one order."""

import math
from dataclasses import dataclass, replace

from bnaf.flows.flow import Flow
from bnaf.training.objectives import Objective
from bnaf.training.settings import TrainingSettings

SMALL_TABLE = 1_000  # rows up to which a table is small: every step takes them all
VALID_SHARE = 0.1  # of the rows of a table that is not, set aside to tell when to stop
SMALL_SHARE = 0.2  # of the rows of a small one with columns of several kinds
BATCH = 512
FEW_ROWS, FEW_STEPS, SMALL_BATCH, MEMBERS = 10_000, 600, 256, 5  # of conditional fits
SMALL_STEPS = 300  # of runs whose steps take all rows
PULL, PULLED_ROWS = 1.0, 5_000  # strength of the prior of the weights, and rows up to which it is
SCOTT_SHARE = 0.25  # deviation of the noise of a small table, in units of Scott's bandwidth
STREAM_ROWS = 1_000_000  # taken for the length of a stream that does not say
LEAST_STEPS, MOST_STEPS, EPOCHS = 2_000, 20_000, 100
SHORTEST_INTERVAL, LONGEST_INTERVAL = 10, 500  # steps between evaluations that cost little
EVALUATION_COST = 7  # validating no more than batch / 7 rows per step costs about 5 % of the time


def is_small(rows: int) -> bool:
    """Tell whether a table is small: fitted as a whole, by a small flow, with a prior and noise.

    Example:
        >>> is_small(1000), is_small(1001)
        (True, False)
    """
    return rows <= SMALL_TABLE


def valid_share(rows: int, *, mixed: bool = False, weighted: bool = False) -> float:
    """Return the share of rows that is set aside, unless asked for, to tell when to stop.

    A small table is fitted as a whole if its columns are numbers, whose flows have a prior and
    noise against memorising; the networks of other columns have neither. Rows with weights were
    weighed for a reason, and chance would set aside much or little of what they stand for.

    Args:
        rows: Number of rows.
        mixed: Whether columns are of several kinds.
        weighted: Whether rows have weights.

    Example:
        >>> valid_share(500), valid_share(500, mixed=True), valid_share(5000)
        (0.0, 0.2, 0.1)
    """
    if weighted:
        return 0.0
    if not is_small(rows):
        return VALID_SHARE
    return SMALL_SHARE if mixed else 0.0


@dataclass(frozen=True, kw_only=True)
class TableFacts:
    """What is known of the rows of a fit before it begins.

    Args:
        rows: Number of rows to train on; ``None`` for a stream that does not say.
        columns: Number of columns, those of a context included.
        given: Number of columns of the context.
        worth: What the rows are worth, where that is known.
        valid_rows: Number of validation rows, where there are some and it is known.
        batch: Rows of a batch, where the source has its own.
        batches: Batches of an epoch, where the source has its own.
        standardised: Whether the columns have a mean of 0 and a deviation of 1.
        white: Whether they do not correlate either.
    """

    rows: int | None = None
    columns: int = 1
    given: int = 0
    worth: float | None = None
    valid_rows: int | None = None
    batch: int | None = None
    batches: int | None = None
    standardised: bool = False
    white: bool = False

    @property
    def small(self) -> bool:
        """Whether the table is small."""
        return self.rows is not None and is_small(self.rows)


def resolve(
    settings: TrainingSettings, table: TableFacts, flow: Flow | type[Flow] | Objective
) -> TrainingSettings:
    """Return settings that leave nothing open, for a run on some table.

    Where rows are few, a prior keeps the weights from memorising them. Where they are many, it
    would only keep a density from being as sharp as they are. A run whose steps take all rows of
    a small table has noise as well, in place of an early end, which would need rows set aside to
    tell it: such a run may go on until it has converged.

    Args:
        settings: What was chosen; what is not ``None`` stays.
        table: What is known of the rows.
        flow: What is trained, or how: it brings its rate.

    Example:
        >>> from bnaf import BNAF
        >>> resolve(TrainingSettings(), TableFacts(rows=1_600_000, columns=6), BNAF).steps
        20000
    """
    rows = STREAM_ROWS if table.rows is None else table.rows
    batch = settings.batch or choose_batch(rows, table.given)
    batches = table.batches or math.ceil(rows / batch)
    size = table.batch or (batch if table.rows is None else max(1, rows // batches))
    if settings.learning_rate is None:
        settings = replace(settings, learning_rate=flow.learning_rate)
    if settings.batch is None and table.batch is None:
        settings = replace(settings, batch=batch)
    if settings.pull is None:
        pulled = table.standardised and table.worth is not None and table.worth <= PULLED_ROWS
        pulled = pulled and not table.given  # a context network has its dropout
        settings = replace(settings, pull=PULL if pulled else 0.0)
    if settings.noise is None:
        noise = 0.0
        if table.white and table.worth is not None and size >= rows:
            noise = SCOTT_SHARE * table.worth ** (-1 / (table.columns + 4))
        settings = replace(settings, noise=noise)
    if settings.epochs is None and settings.steps is None and settings.seconds is None:
        settings = replace(settings, steps=choose_steps(rows, size, table.given))
    if settings.evaluate_every is None and (table.rows is not None or table.batches is not None):
        interval = choose_interval(settings.schedule, batches, size, table.valid_rows)
        settings = replace(settings, evaluate_every=interval)
    return settings


def choose_batch(rows: int, given: int) -> int:
    """Return how many rows a step takes: all of a small table without given columns."""
    if given:
        return min(rows, BATCH if rows > FEW_ROWS else SMALL_BATCH)
    return rows if is_small(rows) else BATCH


def choose_members(rows: int | None, columns: int, given: int) -> int:
    """Return how many flows are fitted to parts of a table, to be averaged.

    Only densities of one column given others are: their tables are soon small for what a context
    network could memorise of them, and what averages of fits gain is more than what rows set
    aside cost.
    """
    few = rows is not None and rows <= FEW_ROWS
    return MEMBERS if given and columns == 1 and few else 1


def choose_steps(rows: int, batch: int, given: int = 0) -> int:
    """Return a number of steps for a run without budget."""
    if rows <= batch:
        return SMALL_STEPS
    least = FEW_STEPS if given and rows <= FEW_ROWS else LEAST_STEPS
    return min(MOST_STEPS, max(least, EPOCHS * math.ceil(rows / batch)))


def choose_interval(schedule: str, batches: int, batch: int, valid_rows: int | None) -> int:
    """Return the number of steps between evaluations.

    Args:
        schedule: That of the rate.
        batches: Steps in an epoch.
        batch: Rows per step.
        valid_rows: Number of validation rows, if there are any and it is known.
    """
    if schedule == "plateau":  # whose patience is counted in epochs
        return batches
    affordable = math.ceil(EVALUATION_COST * (valid_rows or 0) / batch)
    return max(SHORTEST_INTERVAL, min(batches, LONGEST_INTERVAL), affordable)
