"""The rows that a report is about: those of the fit, found again, and others."""

from typing import NamedTuple

import torch
from torch import Tensor

from bnaf.errors import TableError
from bnaf.model.model import Model
from bnaf.tables.splits import RowSplit
from bnaf.tables.table import Table

TRAIN, VALID, TEST, ALL, NEW = "training", "validation", "test", "all", "new"
JUDGED_BY = (NEW, TEST, ALL, VALID, TRAIN)  # the first that is there, least flattered first


class Part(NamedTuple):
    """Some rows, and where they stand in their table.

    Args:
        name: "training", "validation", "test", "all" of a table that is not known to be that of
            the fit, or "new".
        rows: The rows.
        numbers: Their numbers in the file they come from, from 1.
    """

    name: str
    rows: Table
    numbers: Tensor


class Parts(NamedTuple):
    """All rows of a report.

    Args:
        parts: In the order of their names above.
        same_table: Whether the table is that of the fit; ``None`` where the model does not know.
        reference: Rows a baseline is fitted to: the training rows; all, where these are not known.
    """

    parts: tuple[Part, ...]
    same_table: bool | None
    reference: Table

    @property
    def judged(self) -> Part:
        """The rows to judge the model by."""
        return min(self.parts, key=lambda part: JUDGED_BY.index(part.name))


def find_parts(model: Model, table: Table, new_rows: Table | None = None) -> Parts:
    """Return the rows of a table by what they were to the fit of a model.

    Args:
        model: The model.
        table: The table it was fitted to, or another.
        new_rows: More rows that it was not fitted to.

    Raises:
        TableError: If a column is missing.
    """
    columns = [*model.columns, *model.given_columns]
    table = table.select(columns)
    split = _recorded_split(model)
    same = None if split is None else _is_table_of(model, table, split)
    if split is not None and same:
        names = (TRAIN, VALID, TEST)
        parts = [
            Part(name, table.take(indices), indices + 1)
            for name, indices in zip(names, split.sets(), strict=True)
            if len(indices)
        ]
    else:
        parts = [Part(ALL, table, torch.arange(len(table)) + 1)]
    reference = parts[0].rows
    if new_rows is not None:
        parts.append(Part(NEW, new_rows.select(columns), torch.arange(len(new_rows)) + 1))
    return Parts(tuple(parts), same, reference)


def _is_table_of(model: Model, table: Table, split: RowSplit) -> bool:
    """Tell whether a table is that of the fit: as many rows, and those to train on of its moments.

    A model tells the moments of its columns anyway, and so nothing more of its rows than it must.
    """
    if len(table) != split.rows:
        return False
    return model.encoding.is_of(table.rows[split.sets().train])


def _recorded_split(model: Model) -> RowSplit | None:
    try:
        return RowSplit.from_dict(model.record["split"])
    except (KeyError, TableError):  # the record is whatever its maker put there
        return None
