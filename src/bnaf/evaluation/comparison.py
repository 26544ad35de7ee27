"""Several densities of one table, ranked by the log-likelihood of rows none of them saw."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bnaf.columns.kind import Bounds
from bnaf.errors import BnafError, TableError
from bnaf.evaluation.classical import CLASSICAL
from bnaf.evaluation.independent import score_independent
from bnaf.evaluation.scores import standard_error
from bnaf.flows.registry import MIXED, flow_named, flow_names
from bnaf.model.model import Model
from bnaf.tables.frames import Frame
from bnaf.tables.splits import split_rows, split_table
from bnaf.tables.table import Table, align_tables
from bnaf.training import TrainingSettings

TEST_SHARE = 0.2
USUAL_FLOWS = ("bnaf", "glow", "planar")
EVERY_FLOW = "all"
INDEPENDENT = "independent columns"

FAILURES = (BnafError, RuntimeError, ValueError, MemoryError)  # of one density, not of the ranking
MOST_SAID = 500  # characters of what went wrong


@dataclass(frozen=True)
class Entry:
    """One density of a comparison; numbers are nats per test row, in the units of the table.

    Args:
        name: Name of the flow, or "gaussian mixture", "kernel density", "gaussian".
        mean: Mean log-likelihood.
        standard_error: Its standard error.
        behind: By how much the best is better; 0 for the best.
        behind_error: Standard error of that difference, row by row.
        weights: Numbers that were fitted.
        seconds: Time to fit and to score.
        note: What was chosen, or why there are no numbers.
    """

    name: str
    mean: float
    standard_error: float
    behind: float
    behind_error: float
    weights: int | None
    seconds: float
    note: str

    def as_dict(self) -> dict[str, Any]:
        """Return all of it by name."""
        return dataclasses.asdict(self)


class Comparison(NamedTuple):
    """Densities of one table, the best first."""

    train_rows: int
    test_rows: int
    entries: list[Entry]


class _Outcome(NamedTuple):
    """What one density gave: a score per test row, or none and the reason."""

    name: str
    scores: Tensor | None
    weights: int | None
    seconds: float
    note: str


def compare_densities(
    table: Table,
    *,
    test: Table | float = TEST_SHARE,
    flows: Sequence[str] | None = None,
    settings: TrainingSettings | None = None,
    announce: Callable[[str], None] | None = None,
    progress: bool = True,
) -> Comparison:
    """Fit flows, a Gaussian mixture, a kernel density and a Gaussian, and rank them.

    All see the same rows and are judged by the same others. Components of the mixture and the
    bandwidth of the kernel are chosen by rows set aside from the training rows. A density that
    cannot be fitted comes last, with the reason.

    Args:
        table: Rows to fit.
        test: Rows to judge by: a table, or a share or number of rows set aside by the seed of
            the settings.
        flows: Names of flows in the registry, "all" for every one; by default bnaf, glow and
            planar.
        settings: How each flow is trained; the default recipe if not given.
        announce: Called with the name of each density before it is fitted.
        progress: Whether to show the progress of the flows.

    Raises:
        TableError: If no row is left to train on, or the test rows lack a column.
        SettingsError: If there is no flow of some name.
    """
    settings = settings or TrainingSettings()
    names = list(dict.fromkeys(USUAL_FLOWS if flows is None else flows))
    if EVERY_FLOW in names:
        names = flow_names()
    for name in names:
        flow_named(name)
    train, held_out = _split(table, test, settings.seed)
    outcomes = []
    for name in [*names, *CLASSICAL]:
        if announce is not None:
            announce(name)
        outcomes.append(_run(name, train, held_out, settings, progress))
    return Comparison(len(train), len(held_out), _rank(outcomes))


def compare_kinds(
    frame: Frame,
    *,
    test: Frame | float = TEST_SHARE,
    kinds: Mapping[str, str] | None = None,
    bounds: Mapping[str, Bounds] | None = None,
    settings: TrainingSettings | None = None,
    announce: Callable[[str], None] | None = None,
    progress: bool = True,
) -> Comparison:
    """Fit the flow of rows of every kind, and hold it against independent columns.

    Args:
        frame: Rows to fit.
        test: Rows to judge by: a frame, or a share or number of rows set aside by the seed of the
            settings.
        kinds: What some columns mean, by name, as in :meth:`bnaf.Model.fit`.
        bounds: Least and largest value of some columns of numbers, by name.
        settings: How the flow is trained; the default recipe if not given.
        announce: Called with the name of each density before it is fitted.
        progress: Whether to show the progress of the flow.

    Raises:
        TableError: If no row is left to train on, or the test rows lack a column.
    """
    settings = settings or TrainingSettings()
    tell = announce or (lambda name: None)
    if isinstance(test, Frame):
        train, held_out = frame, test.select(frame.names)
    else:
        sets = split_rows(len(frame), 0.0, test, seed=settings.seed)
        train, held_out = frame.take(sets.train), frame.take(sets.test)
    tell(MIXED)
    started = perf_counter()
    meanings: dict[str, Any] = {"kinds": kinds, "bounds": bounds}
    model = Model.fit(train, flow=MIXED, settings=settings, progress=progress, **meanings)
    encoding, schema = model.encoding, model.encoding.schema
    assert schema is not None
    note = f"{model.record['steps']:,} steps, {model.record['reason']}"
    scores, weights = model.log_prob(held_out), model.flow.parameter_count
    own = _Outcome(MIXED, scores, weights, perf_counter() - started, note)
    tell(INDEPENDENT)
    started = perf_counter()
    codes = [encoding.codes(rows, "rows") for rows in (train, held_out)]
    (other,) = score_independent(schema, codes[0], codes[1:])
    apart = _Outcome(INDEPENDENT, other, None, perf_counter() - started, "by its own frequencies")
    return Comparison(len(train), len(held_out), _rank([own, apart]))


def _split(table: Table, test: Table | float, seed: int) -> tuple[Table, Table]:
    if isinstance(test, Table):
        split = align_tables(table, test=test)
    else:
        split = split_table(table, valid=0.0, test=test, seed=seed)
    if split.test is None or len(split.train) < 2:
        raise TableError(
            f"A comparison expects two rows to train on and one to test with, got {len(table):,} "
            "rows in all; take more of them, or another share to test with."
        )
    return split.train, split.test


def _run(
    name: str, train: Table, test: Table, settings: TrainingSettings, progress: bool
) -> _Outcome:
    """Fit one density and score the test rows under it."""
    started = perf_counter()
    try:
        if name in CLASSICAL:
            scores, weights, note = CLASSICAL[name](train, test, settings.seed)
        else:
            model = Model.fit(train, flow=name, settings=settings, progress=progress)
            if model.record["reason"] == "interrupted":
                raise KeyboardInterrupt
            scores, weights = model.log_prob(test), model.flow.parameter_count
            note = f"{model.record['steps']:,} steps, {model.record['reason']}"
    except FAILURES as error:
        why = str(error) if isinstance(error, BnafError) else f"{type(error).__name__}: {error}"
        return _Outcome(name, None, None, perf_counter() - started, f"failed: {why}"[:MOST_SAID])
    return _Outcome(name, scores, weights, perf_counter() - started, note)


def _rank(outcomes: Sequence[_Outcome]) -> list[Entry]:
    """Return the entries by falling mean, those without one last."""
    means = [_mean(outcome.scores) for outcome in outcomes]
    order = sorted(range(len(outcomes)), key=lambda index: _key(means[index]))
    best = outcomes[order[0]].scores
    entries = []
    for index in order:
        name, scores, weights, seconds, note = outcomes[index]
        error, behind, behind_error = math.nan, math.nan, math.nan
        if scores is not None and best is not None:
            gaps = best - scores
            error = standard_error(scores)
            behind, behind_error = gaps.mean().item(), standard_error(gaps)
        entries.append(
            Entry(name, means[index], error, behind, behind_error, weights, seconds, note)
        )
    return entries


def _mean(scores: Tensor | None) -> float:
    return math.nan if scores is None else scores.to(torch.float64).mean().item()


def _key(mean: float) -> float:
    return math.inf if math.isnan(mean) else -mean
