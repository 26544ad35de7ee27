"""How rows of a table become rows of a flow, and back."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor

from bnaf.errors import DtypeError, SettingsError, ShapeError
from bnaf.model._chunks import common_batch
from bnaf.model.standardisation import Standardisation
from bnaf.tables.frames import Frame, read_frame
from bnaf.tables.names import check_names
from bnaf.tables.reading import read_table
from bnaf.tables.table import Table, check_types

FAR = 20.0  # deviations from which on a value is far from all that was seen
SAME = 1e-9  # rounding apart, in deviations of a column


class Encoded(NamedTuple):
    """Rows as a flow sees them.

    Args:
        rows: What the flow takes.
        shift: What a log-density of these rows gains to become one of the table's, row by row or
            one number for all.
    """

    rows: Tensor
    shift: Tensor | float


class Encoding(ABC):
    """How rows of a table become rows of a flow, and back.

    The rest of the library sees a row as one number per column, its *codes*: the number itself,
    or what stands for it.

    Args:
        columns: Names of the columns that are modelled.
        given_columns: Names of those that are conditioned on.
    """

    def __init__(self, columns: Sequence[str], given_columns: Sequence[str]) -> None:
        self.columns, self.given_columns = tuple(columns), tuple(given_columns)
        check_names([*self.columns, *self.given_columns])

    @property
    @abstractmethod
    def features(self) -> int:
        """Number of columns of the flow's rows."""

    @property
    @abstractmethod
    def context_features(self) -> int:
        """Number of columns of the flow's contexts."""

    @abstractmethod
    def codes(self, source: Any, name: str) -> Float64[Tensor, "*batch columns"]:
        """Return the codes of the modelled columns, or of the given ones.

        Args:
            source: Rows of a table, by name, or their codes as a tensor.
            name: "rows" or "given".

        Raises:
            ShapeError: If the number of columns is wrong.
            TableError: If a table lacks a column.
            DtypeError: If they are no rows.
        """

    @abstractmethod
    def contexts(self, given: Float64[Tensor, "*batch given"]) -> Float64[Tensor, "*batch _"]:
        """Return the flow's contexts from codes of the given columns."""

    @abstractmethod
    def encode(
        self, rows: Float64[Tensor, "*batch columns"], context: Float64[Tensor, "*_ _"] | None
    ) -> Encoded:
        """Return the flow's rows from codes, under contexts that :meth:`contexts` returned."""

    @abstractmethod
    def draw(
        self,
        law: Any,
        count: int,
        context: Float64[Tensor, "*_ _"] | None,
        *,
        outside: str,
    ) -> Float64[Tensor, "count *batch columns"]:
        """Return codes of rows drawn from a law of the flow."""

    noisy: ClassVar[bool]
    """Whether a flow turns rows into base noise, entry by entry."""

    continuous: bool = True
    """Whether rows are a function of base noise alone."""

    types: tuple[str, ...]
    """Types of the codes of modelled columns, by NumPy's names."""

    @abstractmethod
    def from_noise(
        self, law: Any, z: Float64[Tensor, "*all_batch _"], context: Float64[Tensor, "*_ _"] | None
    ) -> Float64[Tensor, "*all_batch columns"]:
        """Return codes of the rows that a law of the flow maps to base noise.

        Raises:
            InversionError: If the flow is not onto, and noise has no pre-image.
            SettingsError: If rows are not a function of noise alone.
        """

    @property
    @abstractmethod
    def shift(self) -> float:
        """What log-densities of the flow's rows gain where all gain the same; else 0."""

    @abstractmethod
    def describe(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Return what there is to say of each modelled column, and of each given one."""

    @abstractmethod
    def is_of(self, rows: Float64[Tensor, "rows all_columns"]) -> bool:
        """Tell whether rows, given columns last, are those that the encoding was fitted to."""

    @abstractmethod
    def values(self, rows: Float64[Tensor, "rows all_columns"]) -> list[list[Any]]:
        """Return rows of codes, given columns last, as people write them; ``None`` if empty."""

    @abstractmethod
    def unusual(self, given: Float64[Tensor, "rows given"]) -> dict[str, str]:
        """Return what of given columns is far from all that was seen, by name and in words."""

    @abstractmethod
    def table(self, codes: Float64[Tensor, "rows columns"]) -> Table | Frame:
        """Return codes of modelled columns as a table with their names and types."""

    @property
    def read_as(self) -> dict[str, str]:
        """How columns were read that are no plain numbers, or left out, in words."""
        return {}

    @property
    def labels(self) -> dict[str, tuple[str, ...]]:
        """Texts that the codes of some columns stand for, by name."""
        return {}

    def _names(self, name: str) -> tuple[str, ...]:
        return self.columns if name == "rows" else self.given_columns

    def _checked(self, codes: Tensor | np.ndarray, name: str) -> Tensor:
        """Return codes that came by position, in float64."""
        columns = self._names(name)
        try:
            values = torch.as_tensor(codes)
        except TypeError:
            values = torch.empty(0, dtype=torch.complex64)
        if values.is_complex():
            raise DtypeError(
                f"{name} must be a table or a tensor of real numbers, got one of {codes.dtype}; "
                "name its columns, or convert it with torch.as_tensor(...)."
            )
        if values.dim() == 0 or values.shape[-1] != len(columns):
            raise ShapeError(
                f"The model expects {len(columns)} columns ({', '.join(columns[:8])}) in the last "
                f"dimension of {name}, got shape {tuple(values.shape)}."
            )
        return values.to(torch.float64)


class NumberEncoding(Encoding):
    """Columns of numbers, standardised, those of a small table whitened.

    Args:
        columns: Names of the columns that are modelled.
        given_columns: Names of those that are conditioned on.
        standardisation: Location and scale of the former.
        given_standardisation: Location and scale of the latter.
        types: Element types of the former in the table, by NumPy's names.

    Raises:
        SettingsError: If names, types and scales do not agree.
    """

    noisy = True

    def __init__(
        self,
        columns: Sequence[str],
        given_columns: Sequence[str],
        standardisation: Standardisation,
        given_standardisation: Standardisation,
        types: Sequence[str],
    ) -> None:
        super().__init__(columns, given_columns)
        self.standardisation, self.given_standardisation = standardisation, given_standardisation
        self.types = tuple(types)
        check_types(self.types)
        count, given = len(self.columns), len(self.given_columns)
        _agree("standardisation", standardisation.features, count)
        _agree("types", len(self.types), count)
        _agree("given_standardisation", given_standardisation.features, given)
        if standardisation.slopes is not None:
            _agree("slopes of standardisation", standardisation.slopes.shape[1], given)

    @property
    def features(self) -> int:
        """Number of modelled columns."""
        return len(self.columns)

    @property
    def context_features(self) -> int:
        """Number of given columns."""
        return len(self.given_columns)

    def codes(self, source: Any, name: str) -> Float64[Tensor, "*batch columns"]:
        if isinstance(source, Tensor | np.ndarray):
            return self._checked(source, name)
        if isinstance(source, Mapping):  # may be one row of single values, even of text
            source = read_frame(source, columns=self._names(name)).as_table()
        if not isinstance(source, Table):
            source = read_table(source, columns=self._names(name), warn=False)
        table: Table = source.select(self._names(name))
        return table.rows

    def contexts(self, given: Float64[Tensor, "*batch given"]) -> Float64[Tensor, "*batch _"]:
        return self.given_standardisation.apply(given)

    def encode(
        self, rows: Float64[Tensor, "*batch columns"], context: Float64[Tensor, "*_ _"] | None
    ) -> Encoded:
        if context is not None:
            common_batch(rows, context)
        return Encoded(self.standardisation.apply(rows, context), self.standardisation.log_det)

    def draw(
        self,
        law: Any,
        count: int,
        context: Float64[Tensor, "*_ _"] | None,
        *,
        outside: str,
    ) -> Float64[Tensor, "count *batch columns"]:
        drawn = law.sample((count,), outside=outside)
        return self.standardisation.invert(drawn, context)

    def from_noise(
        self, law: Any, z: Float64[Tensor, "*all_batch _"], context: Float64[Tensor, "*_ _"] | None
    ) -> Float64[Tensor, "*all_batch columns"]:
        return self.standardisation.invert(law.at_normal_scores(z), context)

    @property
    def shift(self) -> float:
        """Log-Jacobian of the standardisation."""
        return self.standardisation.log_det

    def describe(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        columns = _moments(self.columns, self.standardisation)
        typed = [
            {"name": column.pop("name"), "type": kind, **column}
            for column, kind in zip(columns, self.types, strict=True)
        ]
        return typed, _moments(self.given_columns, self.given_standardisation)

    def is_of(self, rows: Float64[Tensor, "rows all_columns"]) -> bool:
        """Tell whether rows have the moments that columns are standardised by."""
        for part, scales in (
            (rows[:, : self.features], self.standardisation),
            (rows[:, self.features :], self.given_standardisation),
        ):
            found = Standardisation.from_rows(part)
            apart = (found.location - scales.location).abs() / scales.scale
            stretched = (found.scale / scales.scale - 1).abs()
            if bool((apart > SAME).any()) or bool((stretched > SAME).any()):
                return False
        return True

    def values(self, rows: Float64[Tensor, "rows all_columns"]) -> list[list[Any]]:
        found: list[list[Any]] = rows.tolist()
        return found

    def unusual(self, given: Float64[Tensor, "rows given"]) -> dict[str, str]:
        far = self.given_standardisation.apply(given).abs() > FAR
        return {
            name: f"{int(far[:, index].sum()):,} more than {FAR:g} deviations from the mean"
            for index, name in enumerate(self.given_columns)
            if far[:, index].any()
        }

    def table(self, codes: Float64[Tensor, "rows columns"]) -> Table:
        return Table(codes, self.columns, self.types)


def _moments(names: Sequence[str], scales: Standardisation) -> list[dict[str, Any]]:
    moments = zip(names, scales.location.tolist(), scales.scale.tolist(), strict=True)
    return [{"name": name, "mean": mean, "deviation": scale} for name, mean, scale in moments]


def _agree(setting: str, got: int, expected: int) -> None:
    if got != expected:
        raise SettingsError(
            f"{setting} must have one entry per column of the flow ({expected}), got {got}."
        )
