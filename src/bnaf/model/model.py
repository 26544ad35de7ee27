"""A flow with the columns and the units of its table."""

import copy
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float64
from torch import Generator, Tensor

from bnaf._checks import whole
from bnaf._random import private_draws, without_draws
from bnaf.errors import (
    Argument,
    DtypeError,
    SettingsError,
    ShapeError,
    TableWarning,
    TrainingError,
)
from bnaf.flows.ensemble import Ensemble
from bnaf.flows.flow import Flow
from bnaf.flows.registry import flow_named
from bnaf.laws.distribution import FlowDistribution
from bnaf.model._chunks import CHUNK_ROWS, common_batch, measure_rows
from bnaf.model._data import FitData
from bnaf.model.standardisation import Standardisation
from bnaf.tables.names import check_names
from bnaf.tables.table import Table, check_types
from bnaf.training import TrainingRecord, TrainingSettings, fit, resolve

BYTES_PER_WEIGHT = 50  # of a flow while it trains: gradients, moments, averages and matrices
WORTH_TELLING = 1.0  # gigabytes
GIVEN_AWAY = 2  # rows that mean and deviation determine


class Model:
    r"""Density of the rows of a table, in the units of the table.

    The flow sees standardised columns; with :math:`z = (x - \mu) / \sigma`,

    .. math:: \log p(x) = \log p_Z(z) - \sum_i \log \sigma_i

    Those of a small table are whitened as well, as
    :class:`bnaf.model.standardisation.Standardisation` says. Columns that are given, rather than
    modelled, are standardised by their own moments and make the context of the flow. Scores and
    samples are computed in float64, whatever the type of the flow, and samples are drawn from
    generators of the model's own.

    Args:
        flow: The flow of the standardised rows.
        columns: Names of the columns; x0, x1, ... by default.
        standardisation: Location and scale of each column; rows are taken as they are by default.
        types: Element types the columns have in the table, by NumPy's names.
        given_columns: Names of the columns of the context; c0, c1, ... by default.
        given_standardisation: Location and scale of each of these.
        record: How the flow was trained: anything that JSON can hold.

    Raises:
        SettingsError: If names, types or scales do not agree with the flow.

    Example:
        >>> from bnaf import BNAF
        >>> model = Model(BNAF(2), columns=["height", "weight"])
        >>> model.log_prob(torch.zeros(7, 2)).shape
        torch.Size([7])
        >>> model.sample_table(3, seed=0).columns
        ('height', 'weight')
    """

    def __init__(
        self,
        flow: Flow,
        *,
        columns: Sequence[str] | None = None,
        standardisation: Standardisation | None = None,
        types: Sequence[str] | None = None,
        given_columns: Sequence[str] | None = None,
        given_standardisation: Standardisation | None = None,
        record: Mapping[str, Any] | None = None,
    ) -> None:
        features, given = flow.features, flow.context_features
        self.flow = flow
        self.columns = _names("columns", columns, features, "x")
        self.standardisation = _scales("standardisation", standardisation, features)
        self.types = tuple(types) if types is not None else ("float64",) * features
        _agree("types", len(self.types), features)
        check_types(self.types)
        self.given_columns = _names("given_columns", given_columns, given, "c")
        self.given_standardisation = _scales("given_standardisation", given_standardisation, given)
        if self.standardisation.slopes is not None:
            _agree("slopes of standardisation", self.standardisation.slopes.shape[1], given)
        check_names([*self.columns, *self.given_columns])
        self.record: dict[str, Any] = dict(record or {})

    @classmethod
    def fit(
        cls,
        table: Any,
        *,
        columns: Sequence[str] | None = None,
        given: Sequence[str] = (),
        valid: Any = None,
        test: float = 0.0,
        weights: Any = None,
        members: int | None = None,
        flow: str = "bnaf",
        flow_settings: Mapping[str, Any] | None = None,
        settings: TrainingSettings | None = None,
        dtype: torch.dtype = torch.float32,
        checkpoint: Path | str | None = None,
        logs: Path | str | None = None,
        loggers: Sequence[str] = ("csv",),
        progress: bool = True,
    ) -> "Model":
        """Fit a flow to a table, standardised by the moments of its rows.

        Up to 1,000 rows are also whitened: what is left to the flow is what the Gaussian of their
        means and covariance, or the linear regression on given columns, does not explain. Without
        validation rows, a table of more than 1,000 rows has a tenth of them set aside by the seed
        of the settings, to tell when to stop; a smaller one is fitted as a whole.

        Args:
            table: A :class:`bnaf.tables.table.Table`, anything :func:`bnaf.read_table` reads, or a
                :class:`bnaf.tables.streams.ParquetStream`.
            columns: Columns to model; by default all that are not given.
            given: Columns to condition on.
            valid: Validation rows in the same columns: a table, or a share of the rows between 0
                (none) and 1.
            test: Share or number of rows that the fit never sees; the record says which, so that
                :mod:`bnaf.report` can judge by them.
            weights: How much each row counts, in the moments as well; rows are then not set aside
                unless asked for.
            members: Number of flows whose densities are averaged, for one column given others.
                Each leaves out a part of the rows, by which it is judged. ``None`` chooses 5 for
                up to 10,000 rows without validation rows, and 1 for all other tables.
            flow: Name of the flow in the registry.
            flow_settings: Its arguments; those that are left out suit the size of the table.
            settings: How to train; the default recipe if not given.
            dtype: Element type of the weights while training.
            checkpoint: File to keep the run in, and to go on from.
            logs: Folder for logs of every evaluation.
            loggers: Which: "csv", "tensorboard" or both.
            progress: Whether to show progress.

        Raises:
            TableError: If the table cannot be modelled.
            TrainingError: If training failed; its ``model`` has the best weights so far.
            StorageError: If the checkpoint cannot be read, or could not be written.

        Example:
            >>> rows = torch.randn(200, 2, dtype=torch.float64)
            >>> model = Model.fit(rows, settings=TrainingSettings(steps=5), progress=False)
            >>> model.log_prob(rows).shape
            torch.Size([200])
        """
        settings = settings or TrainingSettings()
        data = FitData.read(table, columns, given, valid, test, weights, settings.seed, members)
        kind = flow_named(flow)
        settings = resolve(settings, data.facts, kind)
        _warn_of_secrets(data.facts.rows)
        with private_draws(settings.seed):
            untrained = _make_flow(flow, data, flow_settings or {}).to(dtype)
        try:
            record = fit(
                untrained,
                **data.arguments,
                settings=settings,
                checkpoint=checkpoint,
                logs=logs,
                loggers=loggers,
                progress=progress,
            )
        except TrainingError as error:
            message = str(error)
            if error.column is not None and not data.facts.white:
                message += f" Column {error.column} is {data.columns[error.column]!r}."
            model = cls._fitted(untrained, data, error.record)
            raise TrainingError(message, error.record, column=error.column, model=model) from None
        return cls._fitted(untrained, data, record)

    @classmethod
    def _fitted(cls, flow: Flow, data: FitData, record: TrainingRecord | None) -> "Model":
        """Return the model of a flow that was fitted to the rows of a table."""
        facts = record.shortened().as_dict() if record else {}
        return cls(
            flow,
            columns=data.columns,
            standardisation=data.scales.rows,
            types=data.types,
            given_columns=data.given,
            given_standardisation=data.scales.given,
            record=facts | {"split": data.split.as_dict()},
        )

    @property
    def features(self) -> int:
        """Number of columns that are modelled."""
        return len(self.columns)

    @property
    def device(self) -> torch.device:
        """Where the flow is."""
        return next(self.flow.parameters()).device

    def to(
        self, device: torch.device | str | None = None, dtype: torch.dtype | None = None
    ) -> "Model":
        """Move the flow to a device or an element type, and return the model."""
        self.flow.to(device=device, dtype=dtype)
        return self

    def log_prob(
        self, rows: Tensor | Table, given: Tensor | Table | None = None
    ) -> Float64[Tensor, "*batch"]:
        """Return the log-density of each row, in nats and in the units of the table.

        Gradients reach rows and given columns, not the weights.

        Args:
            rows: Rows in the units of the table. Of a table, columns are taken by name.
            given: Given columns, one row per row or one for all; of a table ``rows`` they are
                taken from there by default.

        Raises:
            ShapeError: If the number of columns is wrong, or given ones are missing or not wanted.
            TableError: If a table lacks a column.
        """
        scores = self._measure(rows, given, FlowDistribution.log_prob)
        return scores + self.standardisation.log_det

    def base_noise(
        self, rows: Tensor | Table, given: Tensor | Table | None = None
    ) -> Float64[Tensor, "*batch features"]:
        """Return the base noise z that the flow maps each row to, as normal scores.

        Where the model is right, its entries are independent and standard normal. Rows out of the
        reach of a flow that is not onto have infinite ones.

        Args:
            rows: As in :meth:`log_prob`.
            given: As there.

        Raises:
            ShapeError: If the number of columns is wrong, or given ones are missing or not wanted.
            TableError: If a table lacks a column.
        """
        return self._measure(rows, given, FlowDistribution.normal_scores)

    def sample(
        self,
        count: int,
        given: Tensor | Table | None = None,
        *,
        seed: int | None = None,
        generator: Generator | None = None,
        outside: str = "raise",
    ) -> Float64[Tensor, "count *batch features"]:
        """Draw rows, in the units of the table; torch's global generator is left alone.

        Args:
            count: How many rows, for each row of ``given``.
            given: Given columns, where the model has some.
            seed: Seed of the draw; a fresh one by default.
            generator: Source of that seed, instead.
            outside: What to do with draws of the base that have no pre-image, under a flow that is
                not onto: "raise" or "redraw".

        Raises:
            ShapeError: If given columns are missing, not wanted or of the wrong number.
            InversionError: If some draw has no pre-image and is not to be redrawn.
        """
        count = whole("count", count, least=0)
        seed = None if seed is None else whole("seed", seed, least=0)
        if seed is not None and generator is not None:
            raise SettingsError("Expected a seed or a generator, got both; give one of them.")
        if generator is not None:
            draw = torch.randint(2**62, (), generator=generator, device=generator.device)
            seed = int(draw.item())
        flow, context = self._precise(), self._context(given)
        with torch.no_grad(), private_draws(seed):
            law = flow(context)
            size = max(1, CHUNK_ROWS // max(1, law.batch_shape.numel()))
            sizes = [min(size, count - start) for start in range(0, count, size)] or [0]
            parts = [law.sample((part,), outside=outside) for part in sizes]
        return self.standardisation.invert(torch.cat(parts), context).to(self.device)

    def sample_table(
        self,
        count: int,
        given: Tensor | Table | None = None,
        *,
        seed: int | None = None,
        generator: Generator | None = None,
        outside: str = "raise",
    ) -> Table:
        """Draw rows as a table with the columns and types of the one that was fitted.

        Args:
            count: How many rows.
            given: One row of given columns, where the model has some.
            seed: Seed of the draw; a fresh one by default.
            generator: Source of that seed, instead.
            outside: As in :meth:`sample`.

        Raises:
            ShapeError: If there are several rows of given columns.
        """
        count = whole("count", count, least=0)
        rows = self.sample(count, given, seed=seed, generator=generator, outside=outside)
        if rows[:1].numel() > self.features:
            raise ShapeError(
                f"sample_table expects one row of given columns, got {tuple(rows.shape[1:-1])}; "
                "use sample, which returns a tensor."
            )
        return Table(rows.reshape(count, self.features), self.columns, self.types)

    def _measure(
        self,
        rows: Tensor | Table,
        given: Tensor | Table | None,
        measure: Callable[[FlowDistribution, Tensor], Tensor],
    ) -> Tensor:
        """Return what is measured of rows under the law of their given columns."""
        if given is None and self.given_columns and isinstance(rows, Table):
            given = rows.select(self.given_columns)
        flow = self._precise()
        x = self._values(rows, self.columns, "rows")
        context = self._context(given)
        differentiable = x.requires_grad or (context is not None and context.requires_grad)
        with torch.set_grad_enabled(differentiable and torch.is_grad_enabled()):
            found = measure_rows(flow, self._standardise(x, context), context, measure)
            return found.to(_device(rows))

    def _precise(self) -> Flow:
        """Return the flow in float64; a copy, so that its own type and mode stay."""
        device = torch.device("cpu") if self.device.type == "mps" else self.device
        return copy.deepcopy(self.flow).to(device, torch.float64).eval().requires_grad_(False)

    def _context(self, given: Tensor | Table | None) -> Tensor | None:
        if given is None:
            if self.given_columns:
                raise ShapeError(
                    f"This model expects the given columns {', '.join(self.given_columns)}; "
                    "give them with ",
                    Argument("given"),
                    ".",
                )
            return None
        if not self.given_columns:
            raise ShapeError("This model has no given columns; leave out ", Argument("given"), ".")
        values = self._values(given, self.given_columns, "given")
        return self.given_standardisation.apply(values)

    def _standardise(self, x: Tensor, context: Tensor | None) -> Tensor:
        """Return rows as the flow sees them."""
        if context is not None:
            common_batch(x, context)
        return self.standardisation.apply(x, context)

    def _values(self, rows: object, columns: tuple[str, ...], name: str) -> Tensor:
        """Return values of named columns in float64, beside the flow."""
        if isinstance(rows, Table):
            rows = rows.select(columns).rows
        if not isinstance(rows, Tensor) or rows.is_complex():
            raise DtypeError(
                f"{name} must be a table or a tensor of real numbers, got "
                f"{type(rows).__name__}; convert it with torch.as_tensor(...)."
            )
        if rows.dim() == 0 or rows.shape[-1] != len(columns):
            raise ShapeError(
                f"The model expects {len(columns)} columns ({', '.join(columns[:8])}) in the last "
                f"dimension of {name}, got shape {tuple(rows.shape)}."
            )
        if self.device.type == "mps":
            return rows.cpu().to(torch.float64)
        return rows.to(self.device, torch.float64)

    def __repr__(self) -> str:
        given = f", given_columns={self.given_columns}" if self.given_columns else ""
        return f"Model({type(self.flow).__name__}, columns={self.columns}{given})"


def _make_flow(name: str, data: FitData, flow_settings: Mapping[str, Any]) -> Flow:
    """Return the flow that suits a table, as it starts."""
    kind, columns, given = flow_named(name), len(data.columns), len(data.given)
    sizes = kind.sizes_for(columns, small=data.facts.small)
    if given:
        sizes |= kind.context_sizes_for(given, data.facts.rows)
    sizes |= flow_settings
    _warn_of_cost(kind, columns, {"context_features": given} | sizes, data.members)
    if data.members > 1:
        flow: Flow = Ensemble(columns, given, flow=name, members=data.members, settings=sizes)
    else:
        flow = kind(columns, **{"context_features": given} | sizes)
    if data.facts.white or given:
        flow.start_smoothly()
    contexts = data.contexts if given else None
    if contexts is not None:
        flow.see_contexts(contexts)
    return flow


def _warn_of_cost(kind: type[Flow], columns: int, sizes: Mapping[str, Any], members: int) -> None:
    """Warn before much memory is taken, of a table so wide that its flow needs it."""
    with torch.device("meta"), without_draws():
        weights = sum(part.numel() for part in kind(columns, **sizes).parameters())
    weights *= members
    gigabytes = BYTES_PER_WEIGHT * weights / 1e9
    if gigabytes > WORTH_TELLING:
        warnings.warn(
            TableWarning(
                f"{columns:,} columns make a flow of {weights:,} weights, which takes about "
                f"{gigabytes:.1f} GB of memory to train. If that is too much, model fewer with ",
                Argument("columns"),
                ".",
            ),
            stacklevel=4,
        )


def _warn_of_secrets(rows: int | None) -> None:
    """Warn of rows so few that the moments of a model give them away."""
    if rows is not None and rows <= GIVEN_AWAY:
        warnings.warn(
            TableWarning(
                f"The fit has {rows} row{'s' * (rows > 1)}, which the means and deviations in its "
                "model give away exactly. Expected many more rows; share the model only with "
                "those who may see them."
            ),
            stacklevel=3,
        )


def _device(holder: object) -> torch.device:
    if isinstance(holder, Tensor):
        return holder.device
    if isinstance(holder, Flow):
        return next(holder.parameters()).device
    return torch.device("cpu")


def _names(
    setting: str, names: Sequence[str] | None, features: int, letter: str
) -> tuple[str, ...]:
    if names is None:
        return tuple(f"{letter}{index}" for index in range(features))
    _agree(setting, len(names), features)
    return tuple(names)


def _scales(setting: str, scales: Standardisation | None, features: int) -> Standardisation:
    scales = Standardisation.identity(features) if scales is None else scales
    _agree(setting, scales.features, features)
    return scales


def _agree(setting: str, got: int, expected: int) -> None:
    if got != expected:
        raise SettingsError(
            f"{setting} must have one entry per column of the flow ({expected}), got {got}."
        )
