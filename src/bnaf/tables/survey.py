"""One pass over a Parquet file: its moments, and what is odd in its columns."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from bnaf.errors import TableError
from bnaf.tables.moments import RunningMoments
from bnaf.tables.parquet import column_names, column_types, group_rows, open_parquet
from bnaf.tables.sources import check_file
from bnaf.tables.ties import LOOKED_AT, Ties, incomplete, tied_columns, warn_of_columns

LOOKED_AT_VALUES = 2**22


@dataclass(frozen=True, eq=False)
class Survey:
    """What one pass over a Parquet file finds.

    Args:
        columns: Names of the columns.
        types: Element types they have.
        complete: Which rows have no missing or infinite value.
        constant: Columns that hold one value.
        ties: Columns with few distinct values or heavy ties, found in a random part of the rows.
        looked_at: That part, from which grids are read off.
    """

    columns: tuple[str, ...]
    types: tuple[str, ...]
    complete: np.ndarray
    constant: tuple[str, ...]
    ties: dict[str, Ties]
    looked_at: np.ndarray

    @property
    def rows(self) -> int:
        """Number of complete rows."""
        return int(self.complete.sum())

    def warn(self, without: Sequence[str] = ()) -> None:
        """Warn of constant columns, heavy ties and few rows.

        Args:
            without: Columns whose ties are dealt with.
        """
        place = {name: index for index, name in enumerate(self.columns)}
        ties = {place[name]: found for name, found in self.ties.items() if name not in without}
        warn_of_columns(self.columns, self.rows, [place[name] for name in self.constant], ties)


def survey_parquet(
    path: str | Path,
    *,
    columns: Sequence[str] | None = None,
    drop_missing: bool = False,
    seed: int = 0,
) -> Survey:
    """Pass once over a Parquet file, holding no more than a part of it at a time.

    Args:
        path: The file.
        columns: Which columns, by name and in that order; all by default.
        drop_missing: Whether rows with a missing or infinite value are left out.
        seed: Seed of the rows that ties are searched in.

    Raises:
        TableError: If the file is truncated or has no rows, text columns, or missing or infinite
            values that are not to be left out.
    """
    path = Path(path)
    check_file(path)
    generator = np.random.default_rng(seed)
    with open_parquet(path) as file:
        names = column_names(file, columns)
        types = column_types(file, names)
        total = file.metadata.num_rows
        check_rows_left(path, total)
        moments, parts = RunningMoments(len(names)), [np.empty((0, len(names)))]
        complete = []
        missing, infinite = np.zeros(len(names), int), np.zeros(len(names), int)
        share = min(1.0, min(LOOKED_AT, LOOKED_AT_VALUES // len(names)) / total)
        for group in range(file.num_row_groups):
            for rows, _ in group_rows(file, group, names):
                missing += np.isnan(rows).sum(0)
                infinite += np.isinf(rows).sum(0)
                complete.append(np.isfinite(rows).all(1))
                rows = rows[complete[-1]]
                moments.update(torch.from_numpy(rows))
                parts.append(rows[generator.random(len(rows)) < share])
    dropped = total - moments.rows
    if dropped and not drop_missing:
        raise incomplete(names, missing, infinite, dropped, total)
    check_rows_left(path, moments.rows)
    looked_at = np.concatenate(parts)
    ties = tied_columns(looked_at, types, seed)
    constant = moments.constant.nonzero().flatten().tolist() if moments.rows > 1 else []
    return Survey(
        tuple(names),
        tuple(types),
        np.concatenate(complete),
        tuple(names[index] for index in constant),
        {names[index]: found for index, found in ties.items() if index not in constant},
        looked_at,
    )


def check_rows_left(path: Path, rows: int) -> None:
    """Check that there are rows.

    Raises:
        TableError: If there are none.
    """
    if not rows:
        raise TableError(
            f"{path.name} has no rows, or none that is complete; expected one at least."
        )
