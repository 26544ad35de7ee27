"""The rows of a table as the contestants see them."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch import Generator, Tensor

from bnaf.datasets.suite import SuiteTable, patch_pools, read_suite
from bnaf.model.standardisation import Standardisation
from bnaf.tables.table import Table
from bnaf.training import BatchSource, FreshRows, TrainingSettings

STARTING_ROWS = 512  # that flows which start from data are shown


@dataclass(frozen=True)
class StudyRows:
    """One of the five tables, read once for all of its runs.

    Args:
        name: Name of the table.
        folder: Folder of the public files.
        table: What was read from there.
    """

    name: str
    folder: Path
    table: SuiteTable

    @classmethod
    def read(cls, name: str, folder: Path) -> "StudyRows":
        """Read a table.

        Raises:
            TableError: If a file is missing or not what it should be.
        """
        return cls(name, folder, read_suite(name, folder))

    @cached_property
    def scales(self) -> Standardisation:
        """Location and scale of the rows to train on."""
        return Standardisation.from_rows(self.table.parts.train.rows)

    def scales_of(self, *, standardised: bool) -> Standardisation:
        """Return how rows are scaled for a contestant."""
        return self.scales if standardised else Standardisation.identity(self.scales.features)

    def train(self, *, standardised: bool) -> Tensor:
        """Return the rows to train on, in float32."""
        scales = self.scales_of(standardised=standardised)
        return scales.apply(self.table.parts.train.rows).float()

    def valid(self, most: int, *, standardised: bool) -> Tensor:
        """Return rows to choose by, in float32; the first, so many at most."""
        assert self.table.parts.valid is not None
        scales = self.scales_of(standardised=standardised)
        return scales.apply(self.table.parts.valid.rows[:most]).float()

    def test(self, most: int) -> Table:
        """Return rows to test with, in the units of the table; the first, so many at most."""
        assert self.table.parts.test is not None
        return self.table.parts.test.take(torch.arange(min(most, len(self.table.parts.test))))

    def fresh(self, settings: TrainingSettings, *, standardised: bool) -> BatchSource:
        """Return a source of rows that are drawn anew for every step.

        Raises:
            TableError: If the rows are not drawn from images here.
        """
        pool, scales = patch_pools(self.folder).train, self.scales_of(standardised=standardised)

        def draw(count: int, generator: Generator) -> Tensor:
            return scales.apply(pool.draw(count, generator).double()).float()

        assert settings.batch is not None
        return FreshRows(draw, batch=settings.batch, seed=settings.seed)


def starting_rows(rows: Tensor | BatchSource) -> Tensor:
    """Return a few rows, spread over all or drawn first."""
    if isinstance(rows, Tensor):
        return rows[:: max(1, len(rows) // STARTING_ROWS)][:STARTING_ROWS]
    return next(iter(rows.batches(0))).rows
