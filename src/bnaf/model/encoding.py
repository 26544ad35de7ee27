"""How rows of a table become rows of a flow, and back."""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float64
from torch import Tensor

from bnaf.columns.schema import Schema
from bnaf.errors import Argument, DtypeError, SettingsError, ShapeError, TableWarning
from bnaf.flows.flow import Flow
from bnaf.model.openings import Openings
from bnaf.model.standardisation import Standardisation
from bnaf.tables.frames import Frame
from bnaf.tables.names import check_names, list_columns
from bnaf.tables.table import Table

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


class GivenCells(NamedTuple):
    """Some columns of a row, which the others are drawn given.

    Args:
        row: The row of the flow, nan where it is not given.
        codes: The codes of the row.
        known: Which columns are given.
    """

    row: Float64[Tensor, " _"]
    codes: Float64[Tensor, " columns"]
    known: Bool[Tensor, " columns"]


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
        partial: GivenCells | None = None,
        complete: bool = False,
    ) -> Float64[Tensor, "count *batch columns"]:
        """Return codes of rows drawn from a law of the flow.

        Args:
            law: The law.
            count: How many rows, for each context.
            context: What the law was made for.
            outside: What to do with draws that have no pre-image: "raise" or "redraw".
            partial: What :meth:`bnaf.model.encoding.Encoding.partial` returned.
            complete: Whether rows are drawn given that no cell is empty; where other columns are
                given, some may still be.
        """

    def partial(self, given: Any) -> GivenCells | None:
        """Return what is given of modelled columns; nothing by default."""
        return None

    schema: Schema | None = None
    """What columns of every kind mean; none where they are plain numbers."""

    openings: Openings = Openings()
    """How plain numbers that have bounds are opened, before they are standardised."""

    noisy: ClassVar[bool]
    """Whether a flow turns rows into base noise, entry by entry."""

    continuous: bool = True
    """Whether rows are a function of base noise alone."""

    types: tuple[str, ...]
    """Types of the codes of modelled columns, by NumPy's names."""

    ranges: Float64[Tensor, "2 columns"] | None = None
    """Least and largest code of each modelled column that was seen, where that is known."""

    @property
    def hollow(self) -> Bool[Tensor, " columns"]:
        """Which modelled columns are empty throughout."""
        return torch.zeros(len(self.columns), dtype=torch.bool)

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
    def unusual(self, codes: Float64[Tensor, "rows columns"], name: str) -> dict[str, str]:
        """Return what is far from all that was seen, by column and in words.

        Args:
            codes: Codes of the modelled columns, or of the given ones.
            name: "rows" or "given".
        """

    @abstractmethod
    def table(self, codes: Float64[Tensor, "rows columns"], given: Any = None) -> Table | Frame:
        """Return codes of modelled columns as a table with their names and types.

        Args:
            codes: The codes.
            given: What was given, of which levels without a code keep their text.
        """

    @abstractmethod
    def read(self, source: Any, *, drop_missing: bool, **reading: Any) -> Table:
        """Return the codes of rows as a table, given columns last.

        Args:
            source: Anything that :func:`bnaf.read_table` reads.
            drop_missing: Whether to leave out rows with an empty cell.
            reading: How a file is written.

        Raises:
            TableError: If a column is missing, or its cells are not what they were in the fit.
        """

    def log_shares(
        self, law: Any, rows: Float64[Tensor, "rows columns"]
    ) -> Float64[Tensor, "rows columns"]:
        """Return log p(cell | the cells before it) of each column, in the units of the table.

        Raises:
            SettingsError: If the columns are not modelled one after another.
        """
        raise SettingsError(
            "This model has no shares of single cells: its flow reads columns in several orders. "
            "Fit it with ",
            Argument("flow", "mixed"),
            ".",
        )

    def cdf(self, flow: Flow, frame: Frame) -> Float64[Tensor, " rows"]:
        """Return the probability of at most the upper end of each cell, of one column.

        Args:
            flow: The flow.
            frame: Rows of the column and of those that it is given.

        Raises:
            SettingsError: If cells are no intervals, or there are several columns.
        """
        raise SettingsError(
            "Plain numbers are no intervals, expected columns of several kinds; base_noise gives "
            "what their probabilities are computed from."
        )

    @property
    def scales(self) -> tuple[Standardisation, Standardisation]:
        """Location and scale of each modelled column, and of each given one, of plain numbers.

        Raises:
            SettingsError: If columns are of several kinds.
        """
        raise SettingsError(
            "A model of columns of several kinds has no standardisation; its encoding says what "
            "becomes of them."
        )

    @property
    def parts(self) -> dict[str, Any]:
        """What a flow of rows of every kind is made of, as arguments; none of plain numbers."""
        return {}

    def check_flow(self, flow: Flow) -> None:
        """Check that a flow takes such rows.

        Raises:
            SettingsError: If it takes others.
        """
        if (self.features, self.context_features) != (flow.features, flow.context_features):
            raise SettingsError(
                f"The encoding makes rows of {self.features} and contexts of "
                f"{self.context_features} columns, the flow takes {flow.features} and "
                f"{flow.context_features}; give those that belong together."
            )
        for name, expected in self.parts.items():
            if flow.settings.get(name) != expected:
                raise SettingsError(
                    f"The columns make rows whose {name} are {expected}, the flow takes "
                    f"{flow.settings.get(name)}; give those that belong together."
                )

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
            if isinstance(codes, np.ndarray):  # of any strides and order of bytes
                codes = np.asarray(codes, codes.dtype.newbyteorder("="), order="C")
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


def warn_of_unusual(told: Mapping[str, str], *, stacklevel: int) -> None:
    """Warn once of values that are far from all that a model has seen.

    Args:
        told: What of each column is, by name and in words.
        stacklevel: Whose line the warning is told of, counted from the caller.
    """
    if not told:
        return
    words = [*told.values()] if len(told) == 1 else [f"{n} {each}" for n, each in told.items()]
    warnings.warn(
        TableWarning(
            f"{list_columns([*told])} {'has' if len(told) == 1 else 'have'} values the model "
            f"knows nothing of: {'; '.join(words)}."
        ),
        stacklevel=stacklevel + 1,
    )
