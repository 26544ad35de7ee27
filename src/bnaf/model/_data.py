"""What a fit takes from a table: standardised rows, their columns and their scales."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bnaf.tables.splits import RowSplit
from bnaf.model.standardisation import Standardisation
from bnaf.tables.streams import ParquetStream
from bnaf.tables.reading import Table, align_tables, read_table
from bnaf.model.whitening import whiten
from bnaf.errors import SettingsError, TableError
from bnaf.training import TrainingSettings
from bnaf.training.batches import sorted_order, worth_of
from bnaf.training._inputs import as_weights

WHOLE_TABLE = 1_000  # rows up to which none are set aside
VALID_SHARE = 0.1
WHITENED_COLUMNS = 256  # up to which a small table is whitened: matrices go into model files


@dataclass(frozen=True)
class FitData:
    """Rows of a table as a flow sees them.

    Args:
        rows: Standardised rows, or a stream of them.
        count: Their number.
        columns: Their names.
        types: Their types in the table.
        scales: Their location and scale; of a small table, their correlations too.
        given: Names of the columns that are conditioned on.
        given_scales: Their location and scale.
        context: Standardised rows of these.
        valid_rows: Standardised validation rows.
        valid_context: Context of these.
        weights: How much each row counts; moments are weighted too.
        valid_weights: The same of the validation rows.
        split: Which rows of the table these are; of a stream, nothing is known.
    """

    rows: Tensor | ParquetStream
    count: int
    columns: tuple[str, ...]
    types: tuple[str, ...] | None
    scales: Standardisation | None
    given: tuple[str, ...]
    given_scales: Standardisation | None
    context: Tensor | None
    valid_rows: Tensor | None
    valid_context: Tensor | None
    weights: Tensor | None
    valid_weights: Tensor | None
    split: RowSplit | None

    @property
    def worth(self) -> float:
        """What the rows are worth: their number, if all weigh alike."""
        return self.count if self.weights is None else worth_of(self.weights)

    @property
    def whitened(self) -> bool:
        """Whether the rows are uncorrelated, so that a standard normal law is their Gaussian."""
        return self.scales is not None and self.scales.factor is not None

    @classmethod
    def read(
        cls,
        source: Any,
        columns: Sequence[str] | None,
        given: Sequence[str],
        valid: Any,
        test: float,
        weights: Any,
        settings: TrainingSettings,
    ) -> "FitData":
        """Read a table, split it, and standardise its columns."""
        if isinstance(source, ParquetStream):
            return cls._stream(source, columns, given, valid, test)
        table = source if isinstance(source, Table) else read_table(source)
        names = tuple(columns or [name for name in table.columns if name not in given])
        if not names:
            raise TableError(
                f"All columns ({', '.join(given)}) are given, expected one to model at least; "
                "give fewer."
            )
        table = table.select([*names, *given])
        parts = _hold_out(table, valid, test, weights, settings.seed)
        small = len(parts.train) <= WHOLE_TABLE
        parts = parts.sorted() if small else parts
        rows, held_out = parts.train.select(names), parts.valid
        context = parts.train.select(given) if given else None
        scales = Standardisation.from_rows(rows.rows, parts.weights)
        given_scales = Standardisation.from_rows(context.rows, parts.weights) if context else None
        known = given_scales.apply(context.rows) if given_scales and context else None
        if small and table.features <= WHITENED_COLUMNS:
            scales = whiten(scales, rows.rows, known, parts.weights)
        valid_known = None
        if given_scales and held_out:
            valid_known = given_scales.apply(held_out.select(given).rows)
        valid_rows = None
        if held_out:
            valid_rows = scales.apply(held_out.select(names).rows, valid_known)
        return cls(
            rows=scales.apply(rows.rows, known),
            count=len(rows),
            columns=names,
            types=rows.types,
            scales=scales,
            given=tuple(given),
            given_scales=given_scales,
            context=known,
            valid_rows=valid_rows,
            valid_context=valid_known,
            weights=parts.weights,
            valid_weights=parts.valid_weights,
            split=parts.split,
        )

    @classmethod
    def _stream(
        cls,
        stream: ParquetStream,
        columns: Sequence[str] | None,
        given: Sequence[str],
        valid: Any,
        test: float,
    ) -> "FitData":
        """Take a stream as it is; it standardises its rows itself."""
        if columns is not None or given or test:
            raise SettingsError(
                "A stream is modelled as it is, without columns, given or test; choose columns "
                "where the stream is made: ParquetStream(path, columns=[...])."
            )
        if stream.standardisation is None:
            raise SettingsError(
                "Expected a stream of standardised rows, got one of raw rows; make it with "
                "ParquetStream(path, standardise=True)."
            )
        scales = stream.standardisation
        valid_rows = None
        if isinstance(valid, int | float) and valid:
            raise SettingsError(
                f"No rows of a stream are set aside to validate on, got valid={valid}; give a "
                "table of other rows, or none."
            )
        if valid is not None and not isinstance(valid, int | float):
            held_out = valid
            if not isinstance(valid, Table):
                held_out = read_table(valid, dequantise=stream.grid)
            valid_rows = scales.apply(held_out.select(stream.columns).rows)
        return cls(
            rows=stream,
            count=stream.survey.rows,
            columns=tuple(stream.columns),
            types=stream.types,
            scales=scales,
            given=(),
            given_scales=None,
            context=None,
            valid_rows=valid_rows,
            valid_context=None,
            weights=None,
            valid_weights=None,
            split=None,
        )


class _Parts(NamedTuple):
    """Rows to train on and to validate on, with their weights, and which rows these are."""

    split: RowSplit
    train: Table
    weights: Tensor | None
    valid: Table | None
    valid_weights: Tensor | None

    def sorted(self) -> "_Parts":
        """Return the training rows in an order of their own, which all sums then follow."""
        weights = self.weights
        order = sorted_order([self.train.rows] if weights is None else [self.train.rows, weights])
        weights = None if weights is None else weights[order]
        return self._replace(train=self.train.take(order), weights=weights)


def _hold_out(table: Table, valid: Any, test: float, weights: Any, seed: int) -> _Parts:
    """Return training rows and validation rows, given or set aside."""
    if weights is not None:
        like = torch.empty(0, dtype=torch.float64)
        weights = as_weights(weights, len(table), like, "weights")
    if valid is None:
        small = len(table) <= WHOLE_TABLE or weights is not None
        valid = 0.0 if small else VALID_SHARE
    share = float(valid) if isinstance(valid, int | float) else 0.0
    split = RowSplit.of(table, share, test, seed=seed)
    parts = _set_aside(table, split, weights) if split.valid or split.test else None
    if parts is None:
        parts = _Parts(split, table, weights, None, None)
    if isinstance(valid, int | float):
        return parts
    held_out = valid if isinstance(valid, Table) else read_table(valid, dequantise=table.grid)
    return parts._replace(valid=align_tables(table, held_out).valid)


def _set_aside(table: Table, split: RowSplit, weights: Tensor | None) -> _Parts:
    """Set rows aside, and their weights with them."""
    train, held_out, _ = split.indices()
    return _Parts(
        split,
        table.take(train),
        None if weights is None else weights[train],
        table.take(held_out) if len(held_out) else None,
        weights[held_out] if weights is not None and len(held_out) else None,
    )
