"""The tables of real columns, their seeded splits, and the cells that all models are judged by.

A row is judged by the mass of its cells, the same for every model. Of each column of the whole
table, before it is split:

* Text, and numbers of at most two values, are categories: a cell is a level.
* Other numbers are whole multiples of a step, plus an offset: the rounding of the file, or what
  all differences have in common where that is more (25 g of a penguin). The cell of a value x is
  the interval from x - step / 2 to x + step / 2. A model that gives masses gives its own; the
  density of one that gives densities counts times the step.
* Where a column has empty cells, "empty" is one more cell, so that which cells are empty counts.

Levels and steps of all rows are known to every model, the rows to test are not.
"""

from math import gcd
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

TEST_SHARE = 0.2
LEFT_OUT = ("Id", "Unnamed: 0")  # row numbers
TARGETS = {
    "wa_churn": "churn",
    "diamonds": "price",
    "ames": "Sale_Price",
    "PimaIndiansDiabetes2": "diabetes",
    "penguins": "species",
    "HI": "whi",
    "BreastCancer": "Class",
}  # what synthetic rows are used to predict


class Column(NamedTuple):
    """Cells of a column: levels, or multiples of a step."""

    name: str
    levels: tuple[str, ...]  # none where it holds numbers
    step: float
    offset: float
    empty: bool


class Split(NamedTuple):
    """Rows to fit to and to test with, and the cells of both."""

    train: pd.DataFrame
    test: pd.DataFrame
    columns: tuple[Column, ...]


def find_step(values: np.ndarray) -> tuple[float, float]:
    """Return step and offset of numbers that were rounded.

    Example:
        >>> find_step(np.array([3750.0, 3800.0, 3325.0]))
        (25.0, 3325.0)
    """
    decimals = max(len(f"{value:.9g}".partition(".")[2].split("e")[0]) for value in values)
    scaled = np.unique(np.round(values * 10.0**decimals).astype(np.int64))
    return gcd(*np.diff(scaled).tolist()) / 10.0**decimals, float(values.min())


def find_cells(name: str, values: pd.Series) -> Column:
    """Return the cells of a column."""
    present = values.dropna()
    empty = len(present) < len(values)
    if not pd.api.types.is_numeric_dtype(present) or present.nunique() <= 2:
        return Column(name, tuple(sorted(present.astype(str).unique())), 0.0, 0.0, empty)
    return Column(name, (), *find_step(present.to_numpy(np.float64)), empty)


def load(folder: Path, table: str, seed: int) -> Split:
    """Read a table, and set a fifth of its rows aside: categories as text, numbers as floats."""
    frame = pd.read_csv(folder / f"{table}.csv.gz", keep_default_na=False, na_values=["", "NA"])
    frame = frame.drop(columns=[name for name in LEFT_OUT if name in frame])
    columns = tuple(find_cells(str(name), frame[name]) for name in frame)
    for column in columns:
        kept = frame[column.name]
        if column.levels:
            frame[column.name] = kept.astype(str).where(kept.notna(), None).astype(object)
        else:
            frame[column.name] = kept.astype(np.float64)
    order = np.random.default_rng(seed).permutation(len(frame))
    count = int(TEST_SHARE * len(frame))
    test, train = frame.iloc[order[:count]], frame.iloc[order[count:]]
    return Split(train.reset_index(drop=True), test.reset_index(drop=True), columns)


def snap(frame: pd.DataFrame, columns: tuple[Column, ...]) -> pd.DataFrame:
    """Return rows that a model drew with their numbers in the middles of cells."""
    rounded = {
        column.name: (frame[column.name].astype(float) - column.offset).div(column.step).round()
        * column.step
        + column.offset
        for column in columns
        if not column.levels
    }
    return frame.assign(**rounded)[[column.name for column in columns]]
