"""The default recipe: all that settings leave open is filled in here, once and in one order."""

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

from bnaf._checks import whole
from bnaf.flows.flow import Flow
from bnaf.tables.splits import count_held_out
from bnaf.training.objectives import Objective
from bnaf.training.settings import TrainingSettings

SMALL_TABLE = 1_000  # rows up to which a table is small: every step takes them all
FEW_ROWS = 10_000  # up to which rows are few: networks of contexts and levels are held back more
MANY_ROWS = 100_000  # from which rows are many: a larger flow pays
VALID_SHARE = 0.1  # of the rows of a table that is not small, set aside to tell when to stop
SMALL_SHARE = 0.2  # of the rows of a small one with columns of several kinds
BATCH = 512
FEW_STEPS, SMALL_BATCH, MEMBERS = 600, 256, 5  # of conditional fits of few rows
JUDGED = 3  # times as long such a fit may take where held-out rows tell when it was best
SMALL_STEPS = 300  # of runs whose steps take all rows
PULL, PULLED_ROWS = 1.0, 5_000  # strength of the prior of the weights, and rows up to which it is
SCOTT_SHARE = 0.25  # deviation of the noise of a small table, in units of Scott's bandwidth
STREAM_ROWS = 1_000_000  # taken for the length of a stream that does not say
LEAST_STEPS, MOST_STEPS, EPOCHS = 2_000, 20_000, 100
SHORTEST_INTERVAL, LONGEST_INTERVAL = 10, 500  # steps between evaluations that cost little
EVALUATION_COST = 7  # validating no more than batch / 7 rows per step costs about 5 % of the time


class Division(NamedTuple):
    """How the rows of a table are divided, and the one count that says how large it is.

    Args:
        valid: Share or number of rows that are set aside to tell when to stop.
        members: Number of flows that are averaged.
        counted: Rows by which the table is small or its rows are few: all but those that were
            asked to be left out.
    """

    valid: float
    members: int
    counted: int


def divide_rows(
    rows: int,
    *,
    valid: float | None = None,
    test: float = 0.0,
    weighted: bool = False,
    mixed: bool = False,
    columns: int = 1,
    given: int = 0,
    members: int | None = None,
) -> Division:
    """Return how the rows of a table are divided, where it is not asked for.

    A tenth is set aside. A small table is fitted as a whole where its columns are numbers, whose
    flows have a prior and noise against memorising; the networks of other columns have neither,
    and want a fifth. Rows with weights were weighed for a reason, and chance would set aside much
    or little of what they stand for: none are.

    Of few rows, densities of one column given others are averages of flows, each fitted to a part:
    what they gain is more than what rows set aside cost.

    Args:
        rows: Number of rows.
        valid: Share or number of rows to validate on, if it is asked for.
        test: Share or number of rows that are left out.
        weighted: Whether rows have weights.
        mixed: Whether columns are of several kinds.
        columns: Number of columns, those given left out.
        given: Number of columns that are given.
        members: Number of flows that are averaged, if it is asked for.

    Raises:
        TableError: If what is asked for leaves no row to train on.
        SettingsError: If members are no whole number.

    Example:
        >>> divide_rows(5000), divide_rows(500, mixed=True).valid
        (Division(valid=0.1, members=1, counted=5000), 0.2)
    """
    counted = rows - sum(count_held_out(rows, 0.0 if valid is None else valid, test))
    if members is None:
        averaged = valid is None and columns == 1 and given > 0 and not mixed
        members = min(MEMBERS, counted) if averaged and is_few(counted) else 1
    members = whole("members", members)
    if valid is None and (weighted or members > 1):
        valid = 0.0
    if valid is None and is_small(counted):
        valid = SMALL_SHARE if mixed else 0.0
    return Division(VALID_SHARE if valid is None else valid, members, counted)


def is_small(counted: int) -> bool:
    """Tell whether a table is small: fitted as a whole, by a small flow, with a prior and noise.

    Example:
        >>> is_small(1000), is_small(1001)
        (True, False)
    """
    return counted <= SMALL_TABLE


def is_few(counted: int) -> bool:
    """Tell whether rows are few for what networks of contexts and levels could memorise of them.

    Example:
        >>> is_few(10_000), is_few(10_001)
        (True, False)
    """
    return counted <= FEW_ROWS


def is_many(counted: int) -> bool:
    """Tell whether rows are so many that a larger flow pays.

    Example:
        >>> is_many(99_999), is_many(100_000)
        (False, True)
    """
    return counted >= MANY_ROWS


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
        counted: Rows by which the table is small or its rows are few, as ``divide_rows``
            counts them; those to train on by default.
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
    counted: int | None = None

    @property
    def small(self) -> bool:
        """Whether the table is small."""
        counted = self.rows if self.counted is None else self.counted
        return counted is not None and is_small(counted)

    @property
    def few(self) -> bool:
        """Whether its rows are few."""
        counted = self.rows if self.counted is None else self.counted
        return counted is not None and is_few(counted)

    @property
    def many(self) -> bool:
        """Whether its rows are many, as those of a stream that does not say are taken to be."""
        counted = self.rows if self.counted is None else self.counted
        return is_many(STREAM_ROWS if counted is None else counted)


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
    batch = settings.batch or choose_batch(rows, table)
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
        few = table.few and table.given > 0
        steps = choose_steps(rows, size, few=few, judged=bool(table.valid_rows))
        settings = replace(settings, steps=steps)
    if settings.evaluate_every is None and (table.rows is not None or table.batches is not None):
        interval = choose_interval(settings.schedule, batches, size, table.valid_rows)
        settings = replace(settings, evaluate_every=interval)
    return settings


def choose_batch(rows: int, table: TableFacts) -> int:
    """Return how many rows a step takes: all of a small table without given columns."""
    if table.given:
        return min(rows, SMALL_BATCH if table.few else BATCH)
    return rows if table.small else BATCH


def choose_steps(rows: int, batch: int, *, few: bool = False, judged: bool = False) -> int:
    """Return a number of steps for a run without budget.

    Conditional fits of few rows differ in how long they gain: some memorise their rows within ten
    epochs, others gain for hundreds. Where held-out rows tell, they may take long.

    Args:
        rows: Number of rows.
        batch: Rows per step.
        few: Whether they are the few rows of a conditional fit.
        judged: Whether there are validation rows.
    """
    if rows <= batch:
        return SMALL_STEPS
    least = FEW_STEPS if few else LEAST_STEPS
    longer = JUDGED if few and judged else 1
    return min(MOST_STEPS, longer * max(least, EPOCHS * math.ceil(rows / batch)))


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
