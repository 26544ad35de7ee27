"""A flow with the columns and the units of its table."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float64
from torch import Generator, Tensor

from bnaf._checks import whole
from bnaf._random import private_draws
from bnaf.columns.kind import Bounds
from bnaf.errors import SettingsError, ShapeError, TrainingError
from bnaf.flows.ensemble import one_or_open
from bnaf.flows.flow import Flow
from bnaf.model._exact import BOTH, ExactFlow, base_noise, log_prob
from bnaf.model._making import make_flow, warn_of_secrets
from bnaf.model._reading import read_data
from bnaf.model._training import record_facts, train_flow
from bnaf.model._wish import Wish
from bnaf.model.encoding import Encoding
from bnaf.model.numbers import plain_encoding
from bnaf.model.standardisation import Standardisation
from bnaf.tables.frames import Frame
from bnaf.tables.table import Table
from bnaf.training import TrainingSettings, resolve


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
        flow: The flow of the encoded rows.
        encoding: How rows of the table become rows of the flow; by default numbers, as the other
            arguments say.
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
        encoding: Encoding | None = None,
        *,
        columns: Sequence[str] | None = None,
        standardisation: Standardisation | None = None,
        types: Sequence[str] | None = None,
        given_columns: Sequence[str] | None = None,
        given_standardisation: Standardisation | None = None,
        record: Mapping[str, Any] | None = None,
    ) -> None:
        self.flow = flow
        if encoding is None:
            encoding = plain_encoding(
                flow, columns, standardisation, types, given_columns, given_standardisation
            )
        encoding.check_flow(flow)
        self.encoding = encoding
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
        kinds: Mapping[str, str] | None = None,
        bounds: Mapping[str, Bounds] | None = None,
        members: int | None = None,
        flow: str = "bnaf",
        flow_settings: Mapping[str, Any] | None = None,
        settings: TrainingSettings | None = None,
        dtype: torch.dtype = torch.float32,
        checkpoint: Path | str | None = None,
        logs: Path | str | None = None,
        loggers: Sequence[str] = ("csv",),
        progress: bool = True,
        announce: Callable[[str], None] | None = None,
    ) -> "Model":
        """Fit a flow to a table, standardised by the moments of its rows.

        Frames and files may have columns of every kind: text, whole or rounded numbers, dates,
        values that occur often, and empty cells; what is discrete then has a mass, and what is
        continuous a density. Arrays and tensors are numbers with a density.

        Up to 1,000 rows are also whitened: what is left to the flow is what the Gaussian of their
        means and covariance, or the linear regression on given columns, does not explain. Without
        validation rows, a table of more than 1,000 rows has a tenth of them set aside by the seed
        of the settings, to tell when to stop; a smaller one is fitted as a whole, or if its
        columns are of several kinds without a fifth. By validation rows the base of a single flow
        of one number given others is scaled, unless ``flow_settings`` have ``base="normal"``.

        Args:
            table: A :class:`bnaf.tables.table.Table`, anything :func:`bnaf.read_table` reads, a
                :class:`bnaf.tables.streams.ParquetStream` of numbers, or a
                :class:`bnaf.tables.frame_streams.FrameStream` of columns of every kind.
            columns: Columns to model; by default all that are not given.
            given: Columns to condition on.
            valid: Validation rows in the same columns: a table, or a share of the rows between 0
                (none) and 1.
            test: Share or number of rows that the fit never sees; the record says which, so that
                :mod:`bnaf.report` can judge by them.
            weights: How much each row counts, in the moments as well; rows of any kind are then
                not set aside unless asked for.
            kinds: What some columns mean, by name, where that is not read off them rightly:
                "category", "whole", "grid", "number", "date", or "text", which is left out.
            bounds: Least and largest value of some columns of numbers, by name, ``None`` where
                there is none: the density is zero outside.
            members: Number of flows of one column given others whose densities are averaged, each
                fitted without a part of the rows, by which it is judged. ``None`` is 5 for up to
                10,000 rows where ``valid`` and what kind of flow it is are left open, else 1.
            flow: Name of the flow in the registry.
            flow_settings: Its arguments; those that are left out suit the size of the table.
            settings: How to train; the default recipe if not given.
            dtype: Element type of the weights while training.
            checkpoint: File to keep the run in, and to go on from.
            logs: Folder for logs of every evaluation.
            loggers: Which: "csv", "tensorboard" or both.
            progress: Whether to show progress.
            announce: Called with a line on each column that is no plain number, or left out.

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
        settings, chosen = settings or TrainingSettings(), flow_settings or {}
        seed, members = settings.seed, one_or_open(members, flow, chosen)
        wish = Wish(columns, given, valid, test, weights, seed, members, kinds or {}, bounds or {})
        data = read_data(table, flow, wish)
        if announce is not None:
            for line in data.told:
                announce(line)
        warn_of_secrets(data.facts.rows)
        with private_draws(seed):
            untrained = make_flow(flow, data, chosen).to(dtype)
        settings = resolve(settings, data.facts, untrained)
        how: dict[str, Any] = {"checkpoint": checkpoint, "logs": logs, "loggers": loggers}
        how |= {"progress": progress, "scaled": chosen.get("base") != "normal"}
        try:
            record = train_flow(untrained, data, settings, **how)
        except TrainingError as error:
            error.model = cls(untrained, data.encoding, record=record_facts(data, error.record))
            raise
        return cls(untrained, data.encoding, record=record_facts(data, record))

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns that are modelled."""
        return self.encoding.columns

    @property
    def given_columns(self) -> tuple[str, ...]:
        """Names of the columns that are conditioned on."""
        return self.encoding.given_columns

    @property
    def types(self) -> tuple[str, ...]:
        """Element types of what stands for the modelled columns, by NumPy's names."""
        return self.encoding.types

    @property
    def standardisation(self) -> Standardisation:
        """Location and scale of each modelled column."""
        return self.encoding.scales[0]

    @property
    def given_standardisation(self) -> Standardisation:
        """Location and scale of each given column."""
        return self.encoding.scales[1]

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
        self, rows: Any, given: Any = None, *, warn: bool = True
    ) -> Float64[Tensor, "*batch"]:
        """Return the log-density of each row, in nats and in the units of the table.

        Gradients reach rows and given columns that are plain numbers, not the weights.

        Args:
            rows: Rows in the units of the table: a table, or anything that :func:`bnaf.read_table`
                reads, by the names of its columns; or a tensor or an array, by their order.
            given: Given columns, one row per row or one for all; where rows have names they are
                taken from there by default.
            warn: Whether to warn of values far from all that was seen, of rows with names.

        Raises:
            ShapeError: If the number of columns is wrong, or given ones are missing or not wanted.
            TableError: If a table lacks a column.
        """
        scores, shift = self._exact.measure(rows, given, log_prob, BOTH if warn else ())
        return scores + shift

    def log_shares(self, rows: Any, given: Any = None) -> Float64[Tensor, "rows columns"]:
        """Return log p(cell | the cells before it) of each column, in nats.

        They add up to the log-density of the row, and tell which cell makes it unlikely. First
        come the columns that are discrete, which of the others are empty, and then the numbers.

        Args:
            rows: As in :meth:`log_prob`.
            given: As there.

        Raises:
            SettingsError: If the columns are not modelled one after another.
        """
        return self._exact.log_shares(rows, given)

    def read(self, source: Any, *, drop_missing: bool = False, **reading: Any) -> Table:
        """Return rows as the model sees them: a table of one number per cell, given columns last.

        Numbers are themselves; what stands for other cells the encoding says.

        Args:
            source: Anything that :func:`bnaf.read_table` reads.
            drop_missing: Whether to leave out rows with an empty cell.
            reading: How a file is written, as there.

        Raises:
            TableError: If a column is missing, or its cells are not what they were in the fit.
        """
        if isinstance(source, Table):
            return source.select([*self.columns, *self.given_columns])
        return self.encoding.read(source, drop_missing=drop_missing, **reading)

    def log_likelihood(self, loss: float, part: str = "loss") -> float:
        """Return what a loss of the training record says in the units of the table.

        Args:
            loss: Nats per row, as the flow counts them.
            part: "loss" for training rows, "valid" for validation rows.
        """
        shifts = self.record.get("shift", {})
        return float(shifts.get(part, self.encoding.shift)) - loss

    def base_noise(self, rows: Any, given: Any = None) -> Float64[Tensor, "*batch features"]:
        """Return the base noise z that the flow maps each row to.

        Where the model is right, its entries are independent and standard normal. Rows out of the
        reach of a flow that is not onto have infinite ones.

        Args:
            rows: As in :meth:`log_prob`.
            given: As there.

        Raises:
            ShapeError: If the number of columns is wrong, or given ones are missing or not wanted.
            TableError: If a table lacks a column.
            SettingsError: If columns are of several kinds, of which the discrete have no noise.
        """
        return self._exact.measure(rows, given, base_noise)[0]

    def sample(
        self,
        count: int,
        given: Any = None,
        *,
        seed: int | None = None,
        generator: Generator | None = None,
        outside: str = "raise",
        complete: bool = False,
        within_range: bool = False,
    ) -> Float64[Tensor, "count *batch features"]:
        """Draw rows, in the units of the table; torch's global generator is left alone.

        Args:
            count: How many rows, for each row of ``given``.
            given: Given columns, where the model has some. Of columns of every kind that are
                modelled any may be given, as ``{"cut": "Ideal"}``: in closed form where no other
                comes before them, else by weighing draws, with a warning where few are left.
            seed: Seed of the draw; a fresh one by default.
            generator: Source of that seed, instead.
            outside: What to do with draws of the base that have no pre-image, under a flow that is
                not onto: "raise" or "redraw".
            complete: Whether to draw rows given that no cell is empty.
            within_range: Whether to draw rows given that numbers and dates are no less and no
                more than those to train on were, of a :class:`FrameStream
                <bnaf.tables.frame_streams.FrameStream>` than those of the sample that columns
                were read off. A law that is right reaches a little beyond them; this keeps a
                single draw from doing so.

        Raises:
            ShapeError: If given columns are missing, not wanted or of the wrong number.
            InversionError: If some draw has no pre-image and is not to be redrawn.
            TableError: If hardly any row is as it is asked for.
            SettingsError: If ranges are asked for that the model does not know.
        """
        count = whole("count", count, least=0)
        seed = None if seed is None else whole("seed", seed, least=0)
        if seed is not None and generator is not None:
            raise SettingsError("Expected a seed or a generator, got both; give one of them.")
        if generator is not None:
            draw = torch.randint(2**62, (), generator=generator, device=generator.device)
            seed = int(draw.item())
        with private_draws(seed):
            rows = self._exact.draw(
                count, given, outside=outside, complete=complete, within_range=within_range
            )
            return rows.to(self._exact.device)

    def sample_table(
        self,
        count: int,
        given: Any = None,
        *,
        complete: bool = False,
        within_range: bool = False,
        seed: int | None = None,
        generator: Generator | None = None,
        outside: str = "raise",
    ) -> Table | Frame:
        """Draw rows as a table with the columns and types of the one that was fitted.

        Args:
            count: How many rows.
            given: One row of given columns, as in :meth:`sample`.
            complete: Whether to draw only rows without empty cells; they come as often as in the
                table otherwise.
            within_range: As in :meth:`sample`.
            seed: Seed of the draw; a fresh one by default.
            generator: Source of that seed, instead.
            outside: As in :meth:`sample`.

        Raises:
            ShapeError: If there are several rows of given columns.
            TableError: If hardly any row is as it is asked for.
            SettingsError: If ranges are asked for that the model does not know.
        """
        count = whole("count", count, least=0)
        how: dict[str, Any] = {"seed": seed, "generator": generator, "outside": outside}
        rows = self.sample(count, given, complete=complete, within_range=within_range, **how)
        if rows[:1].numel() > self.features:
            got = tuple(rows.shape[1:-1])
            raise ShapeError(f"Expected one row of given columns, got {got}; use sample for more.")
        return self.encoding.table(rows.reshape(count, self.features), given)

    @property
    def _exact(self) -> ExactFlow:
        return ExactFlow(self.flow, self.encoding)

    def _repr_html_(self) -> str:
        from bnaf.model.notebook import show_model  # which knows models

        return show_model(self)

    def __repr__(self) -> str:
        given = f", given_columns={self.given_columns}" if self.given_columns else ""
        return f"Model({type(self.flow).__name__}, columns={self.columns}{given})"
