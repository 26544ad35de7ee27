"""Estimators for scikit-learn: densities, conditional densities and outliers by flows."""

from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, DensityMixin, OutlierMixin, RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from bnaf._checks import whole
from bnaf.errors import SettingsError, ShapeError
from bnaf.estimators._fitting import (
    DistinctRows,
    draw_seed,
    fit_model,
    merge_rows,
    summarise,
    weighted_threshold,
)
from bnaf.model.model import Model


class FlowDensity(DensityMixin, BaseEstimator):
    """Density of rows, by a flow.

    Columns are standardised, and log-densities are in the units of the data given to ``fit``. A
    row that occurs twice and one of weight two come to the same model. Values that repeat often,
    as those of a column of counts do, have no density: spread them beforehand, as
    :func:`bnaf.read_table` does with ``dequantise``.

    Args:
        flow: Name of a flow in :mod:`bnaf.flows.registry`.
        settings: Arguments of the flow, as a dict; those left out suit the size of the table.
        training: How to train: :class:`bnaf.TrainingSettings`, a dict of its arguments, or
            ``None`` for the default recipe.
        random_state: Seed of the fit, or a ``RandomState`` to draw it from; ``None`` for the seed
            of ``training``, which is 0 unless set.

    Attributes:
        model_ (Model): The fitted :class:`bnaf.Model`, which :func:`bnaf.save` can keep.
        n_features_in_ (int): Number of columns.
        feature_names_in_ (ndarray): Their names, where ``fit`` saw some.

    Example:
        >>> X = np.random.default_rng(0).normal(size=(50, 2))
        >>> density = FlowDensity(training={"steps": 5}, random_state=0).fit(X)
        >>> density.score_samples(X).shape, density.sample(3, random_state=0).shape
        ((50,), (3, 2))
    """

    def __init__(
        self,
        flow: Any = "bnaf",
        *,
        settings: Any = None,
        training: Any = None,
        random_state: Any = None,
    ) -> None:
        self.flow = flow
        self.settings = settings
        self.training = training
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> "FlowDensity":
        """Fit the density of the rows of X; y is ignored.

        Args:
            X: Rows of finite numbers.
            y: Ignored.
            sample_weight: How much each row counts.
        """
        X = validate_data(self, X, dtype=np.float64, ensure_min_samples=2)
        self.model_ = fit_model(self, _merge(X, sample_weight), _names(self))
        return self

    def score_samples(self, X: Any) -> np.ndarray:
        """Return log p(x) of each row, in nats and in the units of the data given to ``fit``."""
        check_is_fitted(self)
        return _log_prob(self.model_, validate_data(self, X, dtype=np.float64, reset=False))

    def score(self, X: Any, y: Any = None) -> float:
        """Return the mean log-density of the rows, in nats; y is ignored."""
        return float(self.score_samples(X).mean())

    def sample(self, n: int = 1, random_state: Any = None) -> np.ndarray:
        """Draw rows.

        Args:
            n: How many.
            random_state: Seed or ``RandomState``; ``None`` for other rows every time.
        """
        check_is_fitted(self)
        return self.model_.sample(whole("n", n), seed=_seed(random_state)).numpy()


class ConditionalFlowDensity(RegressorMixin, BaseEstimator):
    r"""Density :math:`p(y \mid X)` of one or several columns given others, by a flow.

    It is a regressor that predicts a whole law: ``predict`` returns its mean,
    ``predict_quantiles`` its quantiles, both from the same base draws for every row, so that they
    do not depend on the rows they are computed with. Unlike that of other regressors, ``score`` is
    the mean log-density in nats, and not a coefficient of determination. Of more than 1,000 rows
    a tenth is set aside by the seed, to tell when to stop.

    Args:
        flow: Name of a flow in :mod:`bnaf.flows.registry`.
        settings: Arguments of the flow, as a dict; those left out suit the size of the table.
        training: How to train: :class:`bnaf.TrainingSettings`, a dict of its arguments, or
            ``None`` for the default recipe.
        draws: Base draws that predictions are computed from.
        random_state: Seed of the fit, or a ``RandomState`` to draw it from; ``None`` for the seed
            of ``training``, which is 0 unless set.

    Attributes:
        model_ (Model): The fitted :class:`bnaf.Model`, which :func:`bnaf.save` can keep.
        n_features_in_ (int): Number of columns of X.
        feature_names_in_ (ndarray): Their names, where ``fit`` saw some.
        n_outputs_ (int): Number of columns of y.

    Example:
        >>> X = np.random.default_rng(0).normal(size=(50, 2))
        >>> law = ConditionalFlowDensity(training={"steps": 5}).fit(X, X.sum(1))
        >>> law.predict(X).shape, law.predict_quantiles(X, (0.1, 0.9)).shape
        ((50,), (50, 2))
    """

    def __init__(
        self,
        flow: Any = "bnaf",
        *,
        settings: Any = None,
        training: Any = None,
        draws: Any = 256,
        random_state: Any = None,
    ) -> None:
        self.flow = flow
        self.settings = settings
        self.training = training
        self.draws = draws
        self.random_state = random_state

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.regressor_tags.poor_score = True  # nats, which have no threshold as R² has
        return tags

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "ConditionalFlowDensity":
        """Fit the density of y given X.

        Args:
            X: What to condition on, row by row.
            y: What to model: one number per row, or several columns.
            sample_weight: How much each row counts.
        """
        given, targets = self._validate(X, y, ensure_min_samples=2)
        whole("draws", self.draws)
        self._flat = targets.ndim == 1
        targets = targets.reshape(len(targets), -1)
        self.n_outputs_ = targets.shape[1]
        names = _names(self)
        distinct = _merge(np.hstack([targets, given]), sample_weight)
        self.model_ = fit_model(self, distinct, _target_names(y, self.n_outputs_, names), names)
        return self

    def log_prob(self, X: Any, y: Any) -> np.ndarray:
        """Return log p(y | x) of each row, in nats and in the units of y."""
        check_is_fitted(self)
        given, targets = self._validate(X, y, reset=False)
        targets = targets.reshape(len(targets), -1)
        if targets.shape[1] != self.n_outputs_:
            raise ShapeError(
                f"y must have the {self.n_outputs_} columns given to fit, got {targets.shape[1]}."
            )
        return _log_prob(self.model_, targets, given)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the mean log-density of the rows of y, in nats."""
        return float(np.average(self.log_prob(X, y), weights=sample_weight))

    def sample(self, X: Any, n: int = 1, random_state: Any = None) -> np.ndarray:
        """Draw values of y for each row of X, independently.

        Args:
            X: What to condition on.
            n: How many values per row.
            random_state: Seed or ``RandomState``; ``None`` for other values every time.

        Returns:
            Shape (rows, n), with the columns of y behind where ``fit`` saw such.
        """
        given = torch.from_numpy(np.array(self._given(X)))
        rows = self.model_.sample(whole("n", n), given, seed=_seed(random_state))
        return self._like_y(rows.transpose(0, 1).numpy())

    def predict(self, X: Any) -> np.ndarray:
        """Return the conditional mean of y for each row of X, in the shape of y."""
        return self._summarise(X, _mean)

    def predict_quantiles(
        self, X: Any, quantiles: Sequence[float] | np.ndarray = (0.05, 0.5, 0.95)
    ) -> np.ndarray:
        """Return conditional quantiles of each column of y for each row of X.

        Levels nearer to 0 or 1 than 1 / (2 draws) give the outermost draw.

        Args:
            X: What to condition on.
            quantiles: Levels between 0 and 1.

        Returns:
            Shape (rows, quantiles), with the columns of y behind where ``fit`` saw such.
        """
        levels = np.asarray(quantiles, dtype=np.float64)
        if levels.ndim != 1 or not ((levels >= 0) & (levels <= 1)).all():
            raise SettingsError(f"quantiles must be numbers between 0 and 1, got {quantiles!r}.")

        def reduce(values: np.ndarray) -> np.ndarray:
            return np.moveaxis(np.quantile(values, levels, axis=0, method="hazen"), 0, 1)

        return self._summarise(X, reduce)

    def _validate(self, X: Any, y: Any, **checks: Any) -> tuple[np.ndarray, np.ndarray]:
        X, y = validate_data(
            self, X, y, dtype=np.float64, multi_output=True, y_numeric=True, **checks
        )
        return X, np.asarray(y, dtype=np.float64)

    def _given(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        given: np.ndarray = validate_data(self, X, dtype=np.float64, reset=False)
        return given

    def _summarise(self, X: Any, reduce: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        given = self._given(X)
        return self._like_y(summarise(self.model_, given, self.draws, reduce))

    def _like_y(self, values: np.ndarray) -> np.ndarray:
        """Drop the dimension of columns where y had none."""
        return values[..., 0] if self._flat else values


class FlowOutlierDetector(OutlierMixin, BaseEstimator):
    """Detector of rows where the density of a flow is low.

    The threshold lets a share of the rows given to ``fit`` count as outliers. A flow is a little
    surer of the rows it was fitted to than of others, so that of new rows of the same law a
    somewhat larger share does.

    Args:
        flow: Name of a flow in :mod:`bnaf.flows.registry`.
        contamination: Share of outliers among the rows given to ``fit``, above 0 and at most 0.5.
        settings: Arguments of the flow, as a dict; those left out suit the size of the table.
        training: How to train: :class:`bnaf.TrainingSettings`, a dict of its arguments, or
            ``None`` for the default recipe.
        random_state: Seed of the fit, or a ``RandomState`` to draw it from; ``None`` for the seed
            of ``training``, which is 0 unless set.

    Attributes:
        model_ (Model): The fitted :class:`bnaf.Model`, which :func:`bnaf.save` can keep.
        offset_ (float): Log-density below which a row is an outlier.
        n_features_in_ (int): Number of columns.
        feature_names_in_ (ndarray): Their names, where ``fit`` saw some.

    Example:
        >>> X = np.random.default_rng(0).normal(size=(50, 2))
        >>> detector = FlowOutlierDetector(contamination=0.1, training={"steps": 5}).fit(X)
        >>> int((detector.predict(X) == -1).sum())
        5
    """

    def __init__(
        self,
        flow: Any = "bnaf",
        *,
        contamination: Any = 0.1,
        settings: Any = None,
        training: Any = None,
        random_state: Any = None,
    ) -> None:
        self.flow = flow
        self.contamination = contamination
        self.settings = settings
        self.training = training
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> "FlowOutlierDetector":
        """Fit the density of the rows of X and its threshold; y is ignored.

        Args:
            X: Rows of finite numbers.
            y: Ignored.
            sample_weight: How much each row counts.
        """
        share = self.contamination
        if not (isinstance(share, Real) and 0 < float(share) <= 0.5):
            raise SettingsError(
                f"contamination must be a number above 0 and at most 0.5, got {share!r}."
            )
        X = validate_data(self, X, dtype=np.float64, ensure_min_samples=2)
        distinct = _merge(X, sample_weight)
        self.model_ = fit_model(self, distinct, _names(self))
        scores = _log_prob(self.model_, distinct.rows)
        self.offset_ = weighted_threshold(scores, distinct.weights, float(share))
        return self

    def score_samples(self, X: Any) -> np.ndarray:
        """Return log p(x) of each row, in nats; the lower, the less usual."""
        check_is_fitted(self)
        return _log_prob(self.model_, validate_data(self, X, dtype=np.float64, reset=False))

    def decision_function(self, X: Any) -> np.ndarray:
        """Return how many nats each row lies above the threshold; outliers are below 0."""
        scores = self.score_samples(X)
        return scores - self.offset_

    def predict(self, X: Any) -> np.ndarray:
        """Return -1 for outliers and 1 for others."""
        return np.where(self.decision_function(X) >= 0, 1, -1)


def _merge(rows: np.ndarray, sample_weight: Any) -> DistinctRows:
    weights = _check_sample_weight(sample_weight, rows, dtype=np.float64, ensure_non_negative=True)
    return merge_rows(rows, weights)


def _log_prob(model: Model, rows: np.ndarray, given: np.ndarray | None = None) -> np.ndarray:
    context = None if given is None else torch.from_numpy(np.array(given))
    return model.log_prob(torch.from_numpy(np.array(rows)), context).numpy()


def _seed(random_state: Any) -> int | None:
    return None if random_state is None else draw_seed(random_state)


def _mean(values: np.ndarray) -> np.ndarray:
    mean: np.ndarray = values.mean(0)
    return mean


def _names(estimator: Any) -> list[str]:
    """Return the names of the columns of X, x0, x1, ... where they have none."""
    named = getattr(estimator, "feature_names_in_", None)
    if named is None:
        return [f"x{index}" for index in range(estimator.n_features_in_)]
    return [str(name) for name in named]


def _target_names(y: Any, count: int, taken: Sequence[str]) -> list[str]:
    """Return the names of the columns of y; others where they have none or they are taken."""
    named = list(getattr(y, "columns", [getattr(y, "name", None)]))
    usable = len(named) == count and all(isinstance(name, str) and name for name in named)
    if usable and len({*named, *taken}) == count + len(taken):
        return named
    letter = "y"
    while any(f"{letter}{index}" in taken for index in range(count)):
        letter += "_"
    return [f"{letter}{index}" for index in range(count)]
