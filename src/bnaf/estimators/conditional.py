"""The density of some columns given others, as a regressor."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from bnaf._checks import whole
from bnaf.errors import SettingsError, ShapeError
from bnaf.estimators._fitting import (
    column_names,
    draw_seed,
    fit_model,
    log_prob,
    merge_rows,
    summarise,
)


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
        names = column_names(self)
        distinct = merge_rows(np.hstack([targets, given]), sample_weight)
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
        return log_prob(self.model_, targets, given)

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
        rows = self.model_.sample(whole("n", n), given, seed=draw_seed(random_state))
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


def _mean(values: np.ndarray) -> np.ndarray:
    mean: np.ndarray = values.mean(0)
    return mean


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
