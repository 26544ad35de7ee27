"""A flow in float64 and the encoding of its rows: what scores and samples are computed with."""

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bnaf.errors import Argument, SettingsError, ShapeError
from bnaf.flows.flow import Flow
from bnaf.model._chunks import CHUNK_ROWS, chunk_rows, measure_rows
from bnaf.model._draws import Demand, draw_until
from bnaf.model.encoding import Encoding, warn_of_unusual

BOTH = ("rows", "given")


class ExactFlow:
    """A copy of a flow in float64, so that its own type and mode stay, and its encoding.

    Args:
        flow: The flow.
        encoding: How rows of the table become its rows.
    """

    def __init__(self, flow: Flow, encoding: Encoding) -> None:
        own = next(flow.parameters()).device
        self.device = torch.device("cpu") if own.type == "mps" else own  # which has no float64
        self.encoding = encoding
        self.flow = copy.deepcopy(flow).to(self.device, torch.float64).eval()
        self.flow.requires_grad_(False)

    def measure(
        self,
        rows: Any,
        given: Any,
        measure: Callable[[Any, Tensor], Tensor],
        watch: Sequence[str] = ("given",),
    ) -> tuple[Tensor, Tensor | float]:
        """Return what is measured of rows under the law of their given columns, and the shift.

        Args:
            rows: Rows, anything with names or codes by position.
            given: Given columns; by default those of rows that have names.
            measure: From a law and some rows to one value, or several, per row.
            watch: Of which to warn where they are far from all that was seen: "rows", "given".
        """
        x, context = self._sides(rows, given, watch)
        differentiable = x.requires_grad or (context is not None and context.requires_grad)
        with torch.set_grad_enabled(differentiable and torch.is_grad_enabled()):
            encoded = self.encoding.encode(x, context)
            found = measure_rows(self.flow, encoded.rows, context, measure)
        place = rows.device if isinstance(rows, Tensor) else torch.device("cpu")
        shift = encoded.shift
        return found.to(place), shift.to(place) if isinstance(shift, Tensor) else shift

    @torch.no_grad()
    def log_shares(self, rows: Any, given: Any) -> Tensor:
        """Return log p(cell | the cells before it) of each column.

        Raises:
            SettingsError: If the columns are not modelled one after another.
        """
        codes, context = self._sides(rows, given, BOTH)
        if not len(codes):
            return codes.new_zeros(0, len(self.encoding.columns))
        parts = chunk_rows(codes, context)
        return torch.cat([self.encoding.log_shares(self.flow(some), part) for part, some in parts])

    @torch.no_grad()
    def draw(
        self,
        count: int,
        given: Any,
        *,
        outside: str,
        complete: bool = False,
        within_range: bool = False,
    ) -> Tensor:
        """Return codes of so many rows, for each row of given columns.

        Of columns of every kind that were modelled, any may be given.
        """
        cells = None
        if self.encoding.schema is not None and not self.encoding.given_columns:
            cells, given = self.encoding.partial(given), None
        demand = Demand.of(self.encoding, cells, complete=complete, within_range=within_range)
        known = self._given(given)
        self._warn_of({"given": known}, stacklevel=3)
        context = self._context(known)
        law = self.flow(context)
        size = max(1, CHUNK_ROWS // max(1, law.batch_shape.numel()))
        how: dict[str, Any] = {"outside": outside, "partial": cells, "complete": complete}

        def draw(some: int) -> Tensor:
            sizes = [min(size, some - start) for start in range(0, some, size)] or [0]
            return torch.cat([self.encoding.draw(law, part, context, **how) for part in sizes])

        return draw_until(draw, demand, count)

    def _sides(self, rows: Any, given: Any, watch: Sequence[str]) -> tuple[Tensor, Tensor | None]:
        """Return codes of rows, and given columns as the flow sees them."""
        x, known = self.encoding.codes(rows, "rows"), self._given(self._named(rows, given))
        named = not isinstance(rows, Tensor | np.ndarray)  # others may be points of a grid
        codes = {"rows": x if named else None, "given": known}
        self._warn_of({name: codes[name] for name in watch}, stacklevel=4)
        return self._beside(x), self._context(known)

    def _context(self, known: Tensor | None) -> Tensor | None:
        """Return codes of given columns as the flow sees them."""
        return None if known is None else self.encoding.contexts(self._beside(known))

    def _warn_of(self, codes: Mapping[str, Tensor | None], *, stacklevel: int) -> None:
        """Warn once of what is far from all that was seen, of modelled and given columns."""
        told: dict[str, str] = {}
        for name, values in codes.items():
            if values is not None:
                flat = values.detach().to("cpu", torch.float64).reshape(-1, values.shape[-1])
                told |= self.encoding.unusual(flat, name)
        warn_of_unusual(told, stacklevel=stacklevel + 1)

    def _given(self, given: Any) -> Tensor | None:
        """Return codes of given columns.

        Raises:
            ShapeError: If they are missing or not wanted.
        """
        columns = self.encoding.given_columns
        if given is None:
            if columns:
                raise ShapeError(
                    f"This model expects the given columns {', '.join(columns)}; give them with ",
                    Argument("given"),
                    ".",
                )
            return None
        if not columns:
            raise ShapeError("This model has no given columns; leave out ", Argument("given"), ".")
        return self.encoding.codes(given, "given")

    def _named(self, rows: Any, given: Any) -> Any:
        """Return given columns, those of rows that have names by default."""
        named = self.encoding.given_columns and not isinstance(rows, Tensor | np.ndarray)
        return rows if given is None and named else given

    def _beside(self, values: Tensor) -> Tensor:
        if values.device.type == "mps":
            values = values.cpu()
        return values.to(self.device, torch.float64)


def log_prob(law: Any, rows: Tensor) -> Tensor:
    """Return the log-densities of rows under a law."""
    scores: Tensor = law.log_prob(rows)
    return scores


def base_noise(law: Any, rows: Tensor) -> Tensor:
    """Return the base noise that a law maps rows to.

    Raises:
        SettingsError: If it is a law of rows of every kind.
    """
    if not hasattr(law, "normal_scores"):
        raise SettingsError("base_noise expects a model of plain numbers, got one of all kinds.")
    noise: Tensor = law.normal_scores(rows)
    return noise
