"""What the estimators share: from arrays and weights to a model, and from base draws to rows."""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Protocol, TypeVar, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float64
from sklearn.base import BaseEstimator
from sklearn.utils import Tags, check_random_state, estimator_html_repr
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
from torch import Tensor

from bnaf.errors import SettingsError
from bnaf.estimators._frames import WeighedFrame, array_kinds, as_rows, mixed_frame, named_frame
from bnaf.estimators._rows import DistinctRows, merge_rows, warn_of_rows
from bnaf.flows.ensemble import one_or_open
from bnaf.flows.flow import Flow
from bnaf.flows.registry import MIXED, flow_named
from bnaf.model.model import Model
from bnaf.model.notebook import show_model
from bnaf.tables.frames import Frame
from bnaf.tables.table import Table
from bnaf.training import TrainingSettings
from bnaf.training.recipe import divide_rows

NESTED = ("settings", "training")  # parameters whose entries are reached by name
CHUNK_POINTS = 65_536  # pairs of a row and a base draw that are inverted at a time


@runtime_checkable
class Configured(Protocol):
    """The settings every estimator has."""

    flow: Any
    settings: Any
    training: Any
    random_state: Any


WeighedRows = TypeVar("WeighedRows", DistinctRows, WeighedFrame)


@runtime_checkable
class Choose(Protocol):
    """Which rows a flow is fitted to: a function from all of them to some."""

    def __call__(self, rows: WeighedRows, /) -> WeighedRows:
        """Return some of the rows."""


def choose_all(rows: WeighedRows, /) -> WeighedRows:
    """Return the rows."""
    return rows


def fit_model(
    estimator: Configured,
    distinct: DistinctRows,
    columns: Sequence[str],
    given: Sequence[str] = (),
    cells: Mapping[str, Tensor] | None = None,
) -> Model:
    """Fit a flow to rows by the settings of an estimator.

    Args:
        estimator: Whose settings.
        distinct: Rows of the columns to model, then of those to condition on.
        columns: Names of the former.
        given: Names of the latter.
        cells: Ends of the cells that the values of some columns stand for, by name.
    """
    rows, weights = distinct.written_out()
    return Model.fit(
        Table(torch.from_numpy(rows), (*columns, *given), cells=cells or {}),
        given=given,
        **_weighing(weights, len(columns), len(given), estimator),
        flow=estimator.flow,
        flow_settings=estimator.settings,
        settings=training_settings(estimator.training, estimator.random_state),
        progress=False,
    )


def fit_frame(
    estimator: Configured,
    frame: Frame,
    sample_weight: Any,
    *,
    columns: Sequence[str] | None = None,
    given: Sequence[str] = (),
    kinds: Mapping[str, str] | None = None,
    choose: Choose = choose_all,
) -> tuple[Model, WeighedFrame]:
    """Fit a flow to rows of every kind by the settings of an estimator.

    Args:
        estimator: Whose settings.
        frame: The rows.
        sample_weight: How much each counts.
        columns: Names of the columns to model; all that are not given by default.
        given: Names of those to condition on.
        kinds: What some columns mean, by name.
        choose: Which of the rows that weigh something it is fitted to.
    """
    weights = _check_sample_weight(
        sample_weight, np.empty((len(frame), 1)), dtype=np.float64, ensure_non_negative=True
    )
    counts = weights > 0
    if not counts.any():
        raise SettingsError("sample_weight must have an entry above zero, got none.")
    weighed = WeighedFrame(frame, weights, kinds or {})
    chosen = choose(weighed.take(counts))
    takes_kinds = flow_named(estimator.flow).takes_kinds
    model = Model.fit(
        chosen.rows,
        columns=columns,
        given=given,
        **_weighing(chosen.weights, 1, 0, estimator, mixed=True),
        kinds=kinds,
        flow=MIXED if takes_kinds else estimator.flow,  # also where a choice left plain rows
        flow_settings=estimator.settings,
        settings=training_settings(estimator.training, estimator.random_state),
        progress=False,
    )
    return model, weighed


def _weighing(
    weights: Float64[np.ndarray, " rows"],
    columns: int,
    given: int,
    estimator: Configured,
    *,
    mixed: bool = False,
) -> dict[str, Any]:
    """Return weights, and how rows are divided, as arguments of a fit.

    A row of weight two is one that comes twice: rows are divided as those without weights, and
    weights that are all alike are none.
    """
    asked = getattr(estimator, "members", None)
    members = one_or_open(asked, estimator.flow, estimator.settings or {})
    if (weights == weights[0]).all():
        return {"members": members}
    division = divide_rows(
        len(weights), mixed=mixed, columns=columns, given=given, members=members
    )
    return {"weights": weights, "valid": division.valid, "members": division.members}


class SettingsByName(BaseEstimator):
    """Estimator whose dicts of settings are reached by name, as ``settings__width``."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters, and if deep the entries of those that are dicts."""
        params: dict[str, Any] = super().get_params(deep=deep)
        if deep:
            for name in NESTED:
                if isinstance(params[name], Mapping):
                    params |= {f"{name}__{key}": value for key, value in params[name].items()}
        return params

    def set_params(self, **params: Any) -> "SettingsByName":
        """Set parameters, or entries of those that are dicts."""
        nested: dict[str, dict[str, Any]] = {name: {} for name in NESTED}
        for name in list(params):
            outer, _, inner = name.partition("__")
            if outer in NESTED and inner:
                nested[outer][inner] = params.pop(name)
        super().set_params(**params)
        for name, entries in nested.items():
            before = getattr(self, name)
            if isinstance(before, TrainingSettings):
                setattr(self, name, replace(before, **entries))
            elif entries:
                setattr(self, name, {**(before or {}), **entries})
        return self


class ModelEstimator(SettingsByName):
    """What estimators of all kinds have in common: in notebooks they show their model."""

    model_: Model

    def _html_repr(self) -> str:
        shown: str = estimator_html_repr(self)
        return shown + show_model(self.model_) if hasattr(self, "model_") else shown


class RowEstimator(ModelEstimator):
    """What estimators of the density of rows have in common."""

    _warns: ClassVar[bool] = True  # of rows far from all that was seen

    def __sklearn_tags__(self) -> Tags:
        return mixed_tags(super().__sklearn_tags__())

    def _learn(
        self, X: Any, sample_weight: Any, choose: Choose = choose_all
    ) -> DistinctRows | WeighedFrame:
        """Fit the density of the rows of X that are chosen, and return all that differ."""
        X = as_rows(X)
        frame = mixed_frame(X)
        if frame is not None:
            validate_data(self, X, skip_check_array=True)
            frame = frame.renamed(column_names(self))
            self.model_, weighed = fit_frame(
                self, frame, sample_weight, kinds=array_kinds(X, frame), choose=choose
            )
            return weighed
        X = validate_data(self, X, dtype=np.float64, ensure_min_samples=2)
        distinct = merge_rows(X, sample_weight)
        warn_of_rows(X, column_names(self), sample_weight)
        self.model_ = fit_model(self, choose(distinct), column_names(self))
        return distinct

    def score_samples(self, X: Any) -> np.ndarray:
        """Return log p(x) of each row, in nats and in the units of the data given to ``fit``."""
        check_is_fitted(self)
        X = as_rows(X)
        if not self.model_.encoding.noisy:
            validate_data(self, X, skip_check_array=True, reset=False)
            return log_prob(self.model_, named_frame(X, column_names(self)), warn=self._warns)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        return log_prob(self.model_, X, warn=self._warns)


def mixed_tags(tags: Tags) -> Tags:
    """Return tags of an estimator that takes text, categories and empty cells."""
    tags.input_tags.allow_nan = True
    tags.input_tags.string = True
    tags.input_tags.categorical = True
    return tags


def log_prob(
    model: Model, rows: np.ndarray | Frame, given: np.ndarray | None = None, *, warn: bool = True
) -> np.ndarray:
    """Return the log-density of rows, in nats."""
    context = None if given is None else torch.from_numpy(np.array(given))
    known = rows if isinstance(rows, Frame) else torch.from_numpy(np.array(rows))
    return model.log_prob(known, context, warn=warn).numpy()


def column_names(estimator: Any) -> list[str]:
    """Return the names of the columns of X, x0, x1, ... where they have none."""
    named = getattr(estimator, "feature_names_in_", None)
    if named is None:
        return [f"x{index}" for index in range(estimator.n_features_in_)]
    return [str(name) for name in named]


def training_settings(training: Any, random_state: Any) -> TrainingSettings:
    """Return how to train, with the seed of a random state where there is one.

    Raises:
        SettingsError: If ``training`` is neither settings nor a mapping.
    """
    if training is None or isinstance(training, Mapping):
        training = TrainingSettings(**(training or {}))
    if not isinstance(training, TrainingSettings):
        raise SettingsError(
            "training must be bnaf.TrainingSettings, a dict of its arguments or None, "
            f"got {training!r}."
        )
    seed = draw_seed(random_state)
    return training if seed is None else replace(training, seed=seed)


def draw_seed(random_state: Any) -> int | None:
    """Return a seed drawn from a random state as scikit-learn takes them; none from none."""
    if random_state is None:
        return None
    return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))


def spread_base(draws: int, features: int) -> Float64[Tensor, "draws features"]:
    """Return base draws that represent the standard normal law evenly, always the same.

    One column gets the quantiles of evenly spaced levels; several get the points of a scrambled
    Sobol sequence, each with its mirror image, so that means of linear functions are exact.
    """
    if features == 1:
        levels = (torch.arange(draws, dtype=torch.float64).unsqueeze(1) + 0.5) / draws
        quantiles: Tensor = torch.special.ndtri(levels)
        return quantiles
    engine = torch.quasirandom.SobolEngine(features, scramble=True, seed=0)
    levels = engine.draw(-(-draws // 2), dtype=torch.float64).clamp(2**-32, 1 - 2**-32)
    z = torch.special.ndtri(levels)
    return torch.cat([z, -z])[:draws]


def summarise(
    model: Model,
    given: Float64[np.ndarray, "rows columns"] | Frame,
    base: Float64[Tensor, "points features"],
    reduce: Callable[[np.ndarray], np.ndarray],
    flow: Flow | None = None,
) -> np.ndarray:
    """Return something of the law of each row, from the same base points for all of them.

    Args:
        model: A conditional model.
        given: What to condition on.
        base: Points of the base that stand for a law.
        reduce: What to make of values of shape (points, rows, columns): one entry per row.
        flow: Part of the model's flow whose law is meant; all of it by default.

    Raises:
        InversionError: If the flow is not onto, and a point has no pre-image.
    """
    z = base.unsqueeze(1)  # (points, 1, features)
    flow = copy.deepcopy(flow or model.flow).to(torch.float64).eval()
    source = given if isinstance(given, Frame) else torch.from_numpy(np.array(given))
    if not model.encoding.continuous:
        return reduce(model.sample(len(base), source, seed=0).numpy())
    context = model.encoding.contexts(model.encoding.codes(source, "given"))
    parts = []
    with torch.no_grad():
        for part in context.split(max(1, CHUNK_POINTS // len(base))):
            noise = z.expand(-1, len(part), -1)
            parts.append(reduce(model.encoding.from_noise(flow(part), noise, part).numpy()))
    return np.concatenate(parts)


def weighted_threshold(
    scores: Float64[np.ndarray, " rows"], weights: Float64[np.ndarray, " rows"], share: float
) -> float:
    """Return a number below which at least this share of the weight lies.

    It stands halfway between the last score below it and the next. Where the last is minus
    infinity, it is the least that is not.

    Example:
        >>> weighted_threshold(np.array([4.0, 1.0, 2.0]), np.ones(3), 1 / 3)
        1.5
    """
    order = np.argsort(scores, kind="stable")
    reached_weight = np.cumsum(weights[order])
    wanted = share * reached_weight[-1] * (1 - 1e-12)  # a third of three rows is one of them
    last = int(np.searchsorted(reached_weight, wanted))
    pair = scores[order][last : last + 2]
    return float(scores[scores > -np.inf].min() if np.isneginf(pair[0]) else pair.mean())
