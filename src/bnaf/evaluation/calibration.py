r"""Whether rows fall where a model says they do: the probability integral transform, tested.

Under a continuous law, the share of its mass below a value drawn from it is uniform between 0 and
1. Two kinds of such shares are computed for every row:

* per column, the share of the model's own samples below the value, which says of each column by
  its name whether the model has it too low, too high, too narrow or too wide;
* of the row as a whole, :math:`\Phi(z_i)` of its base noise :math:`z = f(x)`, and the share of
  :math:`\chi^2` below :math:`\|z\|^2`. These are exact, without samples, and they feel relations
  between columns, which the columns one by one do not; but an entry of z has no name. Of columns
  of several kinds it is the share of samples that are less likely than the row.

Values of discrete columns tie with samples: their shares are drawn at random within the tie, the
randomised probability integral transform.

Each set of shares is held against the uniform law by the test of Kolmogorov and Smirnov, whose
statistic is the largest gap between both distribution functions. P-values are adjusted for the
number of tests by Holm's method, so that a right model raises an alarm in one report of twenty.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor

from bnaf.model.model import Model
from bnaf.tables.table import Table, typed_columns

LEVEL = 0.05
SMALL_GAP = 0.05
MOST_ROWS = 20_000  # of a larger table, these are drawn at random
DRAWS = 20_000  # samples that columns are compared with
GIVEN_ROWS, GIVEN_DRAWS = 1_000, 99  # with given columns every row has samples of its own
RADIUS, LIKELIHOOD = "distance", "log-density"


@dataclass(frozen=True, eq=False)
class Calibration:
    """Shares of a model's mass below some rows, and how far from uniform they are.

    Args:
        name: Column, "z1", "z2", ... for entries of the base noise, or "distance" for its norm.
        values: One share per row, between 0 and 1.
        gap: Largest difference between the share of rows up to some value and the share that the
            model says lies there: the statistic of Kolmogorov and Smirnov.
        p_value: Chance that a right model shows such a gap in one of the tests made.
    """

    name: str
    values: Float64[Tensor, " rows"]
    gap: float
    p_value: float

    def as_dict(self) -> dict[str, Any]:
        """Return name, gap and p-value ready for JSON."""
        return {"name": self.name, "gap": self.gap, "p_value": self.p_value}


class Verdict(NamedTuple):
    """What the tests say, in plain words.

    Args:
        grade: The gap found is "none", "small" or "large".
        title: The verdict.
        text: Where it was found, and how large it is.
        meaning: What that means for probabilities of the model; empty where none was found.
    """

    grade: str
    title: str
    text: str
    meaning: str

    @property
    def sentence(self) -> str:
        """All of it in a line."""
        return f"{self.title.lower()}. {self.text} {self.meaning}".rstrip()


@dataclass(frozen=True, eq=False)
class CalibrationCheck:
    """All tests of one set of rows.

    Args:
        rows: How many rows were tested.
        columns: The columns one by one.
        whole_row: Entries and norm of the base noise.
    """

    rows: int
    columns: tuple[Calibration, ...]
    whole_row: tuple[Calibration, ...]

    @property
    def tests(self) -> tuple[Calibration, ...]:
        """All of them, the least likely under a right model first."""
        return tuple(
            sorted((*self.columns, *self.whole_row), key=lambda test: (test.p_value, -test.gap))
        )

    @property
    def smallest_gap(self) -> float:
        """Smallest gap that would be found in a single test among these."""
        from scipy.stats import kstwo

        return float(kstwo.isf(LEVEL / len(self.tests), self.rows))

    def judge(self) -> Verdict:
        """Return what the tests say, in plain words."""
        found = [test for test in self.tests if test.p_value < LEVEL]
        if not found:
            return Verdict(
                "none",
                "No miscalibration found",
                f"The {self.rows:,} rows fall where the model says they do, as far as so many can "
                f"tell: a gap above {self.smallest_gap:.1%} would have been noticed.",
                "",
            )
        worst = max(found, key=lambda test: test.gap)
        named = sorted(found, key=lambda test: test not in self.columns)  # what has a name first
        places = list(dict.fromkeys(_plain(test, self.columns) for test in named))
        more = f" and {len(places) - 3} more" if len(places) > 3 else ""
        said = (
            f"Found in {len(found)} of {len(self.tests)} tests: {', '.join(places[:3])}{more}. At "
            "worst the share of rows up to some value differs from what the model says by "
            f"{worst.gap:.1%}; chance alone stays below {self.smallest_gap:.1%}."
        )
        if worst.gap < SMALL_GAP:
            return Verdict("small", "Slightly off", said, "More than chance, but little.")
        return Verdict("large", "Miscalibrated", said, self._meaning(found))

    def _meaning(self, found: Sequence[Calibration]) -> str:
        if len(self.columns) == 1:
            return "Take its probabilities with care."
        if not any(test in self.columns for test in found):
            return (
                "No column by itself is off, but how they go together: take probabilities of "
                "several columns at once with care."
            )
        return "Take probabilities of these columns, and of rows as a whole, with care."


def check_calibration(
    model: Model, table: Table, *, draws: int = DRAWS, seed: int = 0
) -> CalibrationCheck:
    """Test whether the rows of a table fall where a model says they do.

    Rows should be such that the model was not fitted to: it flatters those that it was. Values and
    samples of integer columns are rounded, and ties broken at random.

    Args:
        model: The density.
        table: Rows with its columns, given ones included; of many, some are drawn.
        draws: Samples that columns are compared with; with given columns, every row has 99.
        seed: Seed of what is drawn.

    Raises:
        TableError: If a column is missing.

    Example:
        >>> from bnaf import BNAF
        >>> model = Model(BNAF(2, width=3), columns=["a", "b"])
        >>> check = check_calibration(model, model.sample_table(50, seed=1), draws=500)
        >>> [test.name for test in check.columns + check.whole_row], check.judge().grade
        (['a', 'b', 'z1', 'z2', 'distance'], 'none')
    """
    table = table.select([*model.columns, *model.given_columns])
    most = GIVEN_ROWS if model.given_columns else MOST_ROWS
    if len(table) > most:
        chosen = np.random.default_rng(seed).choice(len(table), most, replace=False)
        table = table.take(torch.from_numpy(chosen))
    shares = column_shares(model, table, draws=draws, seed=seed)
    shared = None if model.given_columns else draws
    columns = [
        _test(name, shares[:, index].numpy(), shared) for index, name in enumerate(model.columns)
    ]
    adjusted = _adjust([*columns, *_whole_row(model, table, draws, seed)])
    return CalibrationCheck(
        len(table), tuple(adjusted[: len(columns)]), tuple(adjusted[len(columns) :])
    )


def column_shares(
    model: Model, table: Table, *, draws: int = DRAWS, seed: int = 0
) -> Float64[Tensor, "rows features"]:
    """Return the share of a model's samples below each value of a table, column by column.

    With k samples below a value and e equal to it, the share is (k + U (e + 1)) / (samples + 1)
    with U uniform, so that it is uniform if values and samples have one law, be it discrete.

    Args:
        model: The density.
        table: Rows with its columns, given ones included.
        draws: Samples; with given columns, every row has 99 of its own.
        seed: Seed of what is drawn.

    Raises:
        TableError: If a column is missing.
    """
    generator = np.random.default_rng(seed)
    values = _typed(table.select(model.columns))
    samples = _draw(model, table, draws, seed)  # (draws, rows or 1, features)
    shares = [
        _shares(values[:, index], samples[..., index], generator)
        for index in range(model.features)
    ]
    return torch.from_numpy(np.stack(shares, 1))


def _draw(model: Model, table: Table, draws: int, seed: int) -> np.ndarray:
    """Return samples for all rows, or with given columns for each row, rounded by type."""
    if model.given_columns:
        given = table.select(model.given_columns)
        rows = model.sample(GIVEN_DRAWS, given, seed=seed, outside="redraw")
    else:
        rows = model.sample(draws, seed=seed, outside="redraw").unsqueeze(1)
    flat = Table(rows.reshape(-1, model.features), model.columns, model.types)
    return _typed(flat).reshape(rows.shape)


def _typed(table: Table) -> np.ndarray:
    """Return values as they are written; empty cells, which are all alike, below all others."""
    values = np.stack([column.astype(np.float64) for column in typed_columns(table)], 1)
    return np.where(np.isnan(values), -np.inf, values)


def _shares(values: np.ndarray, samples: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Return the share of samples below each value of one column."""
    if samples.shape[1] == 1:
        ordered = np.sort(samples[:, 0])
        below = np.searchsorted(ordered, values, "left")
        equal = np.searchsorted(ordered, values, "right") - below
    else:
        below, equal = (samples < values).sum(0), (samples == values).sum(0)
    shares: np.ndarray = (below + generator.random(len(values)) * (equal + 1)) / (len(samples) + 1)
    return shares


def _whole_row(model: Model, table: Table, draws: int, seed: int) -> list[Calibration]:
    """Test the base noise or, of columns of several kinds, how likely whole rows are."""
    if model.encoding.noisy:
        return _noise_tests(model.base_noise(table))
    generator = np.random.default_rng(seed)
    scores = model.log_prob(table, warn=False).numpy()
    if not model.given_columns:
        samples = model.log_prob(model.sample(draws, seed=seed), warn=False).unsqueeze(1)
        return [_test(LIKELIHOOD, _shares(scores, samples.numpy(), generator), draws)]
    given = table.select(model.given_columns)
    drawn = model.sample(GIVEN_DRAWS, given, seed=seed)
    samples = model.log_prob(drawn, given, warn=False)
    return [_test(LIKELIHOOD, _shares(scores, samples.numpy(), generator))]


def _noise_tests(z: Tensor) -> list[Calibration]:
    """Test the base noise: entry by entry, and its norm."""
    shares = torch.special.ndtr(z)
    half = torch.full((len(z),), z.shape[1] / 2, dtype=z.dtype)
    radius = torch.special.gammainc(half, z.square().sum(-1) / 2)
    tests = [_test(f"z{index + 1}", shares[:, index].numpy()) for index in range(z.shape[1])]
    return [*tests, _test(RADIUS, radius.numpy())]


def _test(name: str, shares: np.ndarray, samples: int | None = None) -> Calibration:
    """Hold shares against the uniform law; those from shared samples count for fewer rows."""
    from scipy.stats import ks_1samp, kstwo, uniform

    count, gap = len(shares), float(ks_1samp(shares, uniform.cdf).statistic)
    effective = count if samples is None else max(1, round(count * samples / (count + samples)))
    p_value = float(kstwo.sf(gap, effective))
    return Calibration(name, torch.from_numpy(shares.astype(np.float64)), gap, p_value)


def _adjust(tests: Sequence[Calibration]) -> list[Calibration]:
    """Return the tests with p-values adjusted by Holm's method."""
    adjusted, smallest = list(tests), 0.0
    order = sorted(range(len(tests)), key=lambda index: tests[index].p_value)
    for place, index in enumerate(order):
        smallest = max(smallest, min(1.0, tests[index].p_value * (len(tests) - place)))
        adjusted[index] = replace(tests[index], p_value=smallest)
    return adjusted


def _plain(test: Calibration, columns: Sequence[Calibration]) -> str:
    if len(columns) == 1:  # its noise says the same
        return f"column {columns[0].name}"
    if test in columns:
        return f"column {test.name}"
    if test.name == LIKELIHOOD:
        side = "less" if test.values.mean() < 0.5 else "more"
        return f"how likely whole rows are ({side} than the model's own)"
    if test.name == RADIUS:
        side = "further out" if test.values.mean() > 0.5 else "nearer the centre"
        return f"how far out whole rows lie ({side} than the model says)"
    return f"relations between columns ({test.name})"
