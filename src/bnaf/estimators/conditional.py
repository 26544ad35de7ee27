"""The density of some columns given others, as a regressor."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from scipy.special import softmax
from sklearn.base import RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from bnaf._checks import between, whole
from bnaf.errors import SettingsError, ShapeError
from bnaf.estimators import _integrals
from bnaf.estimators._fitting import (
    ModelEstimator,
    column_names,
    draw_seed,
    fit_frame,
    fit_model,
    log_prob,
    mixed_tags,
    spread_base,
    summarise,
)
from bnaf.estimators._frames import (
    array_kinds,
    as_held,
    as_rows,
    expect_no_dates,
    is_categorical,
    join_frames,
    label_kinds,
    mixed_frame,
    named_frame,
    target_frame,
    target_names,
)
from bnaf.estimators._rows import merge_rows, warn_of_rows
from bnaf.estimators._steps import Steps
from bnaf.laws.normal import normal_cdf
from bnaf.tables.frames import Frame


class ConditionalFlowDensity(RegressorMixin, ModelEstimator):
    r"""Density :math:`p(y \mid X)` of one or several columns given others, by a flow.

    It is a regressor that predicts a whole law: ``predict`` returns its mean, ``predict_std`` its
    deviation, ``predict_quantiles`` and ``predict_interval`` its quantiles. Of one column of y
    they are exact, and so is ``cdf``: quantiles are roots of the flow, means a quadrature over
    them. Of several columns they come from base draws, the same for every row; so they do given
    text of a column that takes some values often among others, which has no ``cdf`` then. Unlike
    that of other regressors, ``score`` is the
    mean log-density in nats, not a share of the variance. Up to 10,000 rows of one column are
    fitted by several flows, as ``members`` says; of others a tenth is set aside by the seed, to
    tell when to stop.

    One column of few values, as of marks from 3 to 8, is taken for the cells around them: the flow
    is fitted to their masses, densities are masses over the widths of cells, and quantiles and
    draws are values of y. Flows other than B-NAF on a normal base are fitted to numbers drawn
    evenly from cells. Only this estimator knows the cells: ``model_`` takes y for a number.

    X may be a frame with columns of text, categories, dates and whole numbers, and cells may be
    empty. Where y is text, a category, or true and false, ``predict`` returns its most probable
    level, and ``predict_proba`` the probability of each.

    Args:
        flow: Name of a flow in :mod:`bnaf.flows.registry`.
        settings: Arguments of the flow, as a dict; those left out suit the size of the table. A
            search reaches each of them by name, as ``settings__width``.
        training: How to train: :class:`bnaf.TrainingSettings`, a dict of its arguments, or
            ``None`` for the default recipe.
        members: Number of flows whose densities are averaged, each fitted without a part of the
            rows; ``None`` for what suits the table, as :meth:`bnaf.Model.fit` says.
        draws: Base draws that predictions of several columns are computed from.
        random_state: Seed of the fit, or a ``RandomState`` to draw it from; ``None`` for the seed
            of ``training``, which is 0 unless set.

    Attributes:
        model_ (Model): The fitted :class:`bnaf.Model`, which :func:`bnaf.save` can keep.
        n_features_in_ (int): Number of columns of X.
        feature_names_in_ (ndarray): Their names, where ``fit`` saw some.
        n_outputs_ (int): Number of columns of y.
        classes_ (ndarray): Levels of y, where it is a category.

    Example:
        >>> X = np.random.default_rng(0).normal(size=(50, 2))
        >>> law = ConditionalFlowDensity(training={"steps": 5}).fit(X, X.sum(1))
        >>> law.predict(X).shape, law.predict_quantiles(X, (0.1, 0.9)).shape
        ((50,), (50, 2))
    """

    classes_: np.ndarray
    _steps: Steps | None = None

    def __init__(
        self,
        flow: Any = "bnaf",
        *,
        settings: Any = None,
        training: Any = None,
        members: Any = None,
        draws: Any = 256,
        random_state: Any = None,
    ) -> None:
        self.flow = flow
        self.settings = settings
        self.training = training
        self.members = members
        self.draws = draws
        self.random_state = random_state

    def __sklearn_tags__(self) -> Tags:
        tags = mixed_tags(super().__sklearn_tags__())
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
        whole("draws", self.draws)
        if hasattr(self, "classes_"):
            del self.classes_  # of a fit before this one
        X = as_rows(X)
        frame = mixed_frame(X)
        if frame is not None or is_categorical(y):
            return self._fit_frame(X, frame, y, sample_weight)
        given, targets = self._validate(X, y, ensure_min_samples=2)
        self._flat = targets.ndim == 1
        targets = targets.reshape(len(targets), -1)
        self.n_outputs_ = targets.shape[1]
        names = column_names(self)
        targeted = target_names(y, self.n_outputs_, names)
        distinct = merge_rows(np.hstack([targets, given]), sample_weight)
        alone = self.n_outputs_ == 1
        self._steps = Steps.of(distinct.rows[:, 0], distinct.stands_for) if alone else None
        cells = {}
        if self._steps is None:
            warn_of_rows(targets, targeted, sample_weight)
        else:
            cells[targeted[0]] = torch.from_numpy(self._steps.ends)
        self.model_ = fit_model(self, distinct, targeted, names, cells)
        return self

    def log_prob(self, X: Any, y: Any) -> np.ndarray:
        """Return log p(y | x) of each row, in nats and in the units of y."""
        check_is_fitted(self)
        if not self.model_.encoding.noisy:
            frame = join_frames(target_frame(y, self.model_.columns), self._frame(X))
            return self.model_.log_prob(frame).numpy()
        given, targets = self._validate(X, y, reset=False)
        targets = targets.reshape(len(targets), -1)
        if targets.shape[1] != self.n_outputs_:
            raise ShapeError(
                f"y must have the {self.n_outputs_} columns given to fit, got {targets.shape[1]}."
            )
        if self._steps is None:
            return log_prob(self.model_, targets, given)
        return self._steps.log_prob(self.model_, given, targets[:, 0])

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
        given = self._given(X)
        known = given if isinstance(given, Frame) else torch.from_numpy(np.array(given))
        rows = self.model_.sample(whole("n", n), known, seed=draw_seed(random_state))
        drawn = self._like_y(self._snap(rows.transpose(0, 1).numpy()))
        if not hasattr(self, "classes_"):
            return as_held(self.model_, drawn)
        order = np.argsort(self._class_codes)
        classes: np.ndarray = self.classes_[order]
        return classes[np.searchsorted(self._class_codes[order], drawn)]

    def predict(self, X: Any) -> np.ndarray:
        """Return the conditional mean of y for each row of X, or its most probable level."""
        if hasattr(self, "classes_"):
            return np.asarray(self.classes_[self.predict_proba(X).argmax(1)])
        self._expect_numbers("predict")
        return np.asarray(self._moments(X)[0])

    @available_if(lambda estimator: hasattr(estimator, "classes_"))  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probability of each of ``classes_`` for each row of X, where y has some."""
        check_is_fitted(self)
        given = self._frame(X)
        context = self.model_.encoding.codes(given, "given").unsqueeze(1)  # (rows, 1, columns)
        codes = torch.from_numpy(self._class_codes).reshape(1, -1, 1)
        scores = self.model_.log_prob(codes, context).numpy()
        return np.asarray(softmax(scores, 1))

    def predict_std(self, X: Any) -> np.ndarray:
        """Return the conditional deviation of numbers y for each row of X, in the shape of y."""
        self._expect_numbers("predict_std")
        return np.asarray(self._moments(X)[1])

    def cdf(self, X: Any, y: Any) -> np.ndarray:
        """Return the probability of at most y, for each row of one column.

        Of few values it counts whole cells, and what lies beyond them where it lies, as
        ``log_prob`` does; draws, quantiles, means and scores count that as the outermost value.

        Raises:
            SettingsError: If y has several columns, or is a category.
        """
        self._expect_one("cdf")
        if not self.model_.encoding.noisy:
            frame = join_frames(target_frame(y, self.model_.columns), self._frame(X))
            return self.model_.encoding.cdf(self.model_.flow, frame).numpy()
        given, targets = self._validate(X, y, reset=False)
        targets = targets.reshape(-1)
        if self._steps is not None:
            targets = self._steps.upper(targets)
        rows, context = torch.from_numpy(targets[:, None]), torch.from_numpy(np.array(given))
        return np.asarray(normal_cdf(self.model_.base_noise(rows, context).squeeze(-1)))

    def crps(self, X: Any, y: Any) -> np.ndarray:
        """Return the continuous ranked probability score of each row of one column.

        Raises:
            SettingsError: If y has several columns, or is a category.
        """
        self._expect_one("crps")
        given, targets = self._given(X), np.asarray(y, dtype=np.float64)
        if not isinstance(given, Frame):
            given, targets = self._validate(X, y, reset=False)
        if self._steps is not None:
            return self._steps.rank_scores(self.model_, given, targets.reshape(-1))
        z, weights, levels = self._points()
        values = summarise(self.model_, given, z, lambda points: np.sort(points[..., 0].T))
        return _integrals.rank_scores(values, levels, weights, targets.reshape(-1, 1))

    def predict_interval(self, X: Any, coverage: float = 0.9) -> np.ndarray:
        """Return the ends of a central interval of y for each row of X.

        Args:
            X: What to condition on.
            coverage: Probability of the interval.

        Returns:
            Shape (rows, 2), with the columns of y behind where ``fit`` saw such.
        """
        self._expect_numbers("predict_interval")
        coverage = between("coverage", coverage, 0, 1)
        return self.predict_quantiles(X, ((1 - coverage) / 2, (1 + coverage) / 2))

    def predict_quantiles(
        self, X: Any, quantiles: Sequence[float] | np.ndarray = (0.05, 0.5, 0.95)
    ) -> np.ndarray:
        """Return conditional quantiles of each column of y for each row of X.

        Those of one column are exact; at levels 0 and 1 infinite, or the outermost of few values.
        Of several columns, levels nearer to 0 or 1 than 1 / (2 draws) give the outermost draw.

        Args:
            X: What to condition on.
            quantiles: Levels between 0 and 1.

        Returns:
            Shape (rows, quantiles), with the columns of y behind where ``fit`` saw such.

        Raises:
            SettingsError: If y is a category.
        """
        self._expect_numbers("predict_quantiles")
        levels = _integrals.check_levels(quantiles)
        given = self._given(X)
        if self._by_roots:
            z = torch.special.ndtri(torch.from_numpy(levels.copy()))
            values = summarise(
                self.model_,
                given,
                z.nan_to_num(posinf=0, neginf=0).unsqueeze(1),
                _integrals.rows_first,
            )
            values[:, z.isinf().numpy()] = z[z.isinf()].numpy()[:, None]
            return self._like_y(self._snap(values))

        def reduce(values: np.ndarray) -> np.ndarray:
            return np.moveaxis(np.quantile(values, levels, axis=0, method="hazen"), 0, 1)

        base = spread_base(self.draws, self.n_outputs_)
        return self._like_y(summarise(self.model_, given, base, reduce))

    def _fit_frame(
        self, X: Any, frame: Frame | None, y: Any, sample_weight: Any
    ) -> "ConditionalFlowDensity":
        """Fit the density of y given rows of every kind."""
        self._steps = None
        validate_data(self, X, skip_check_array=True)
        names = column_names(self)
        given = named_frame(X, names) if frame is None else frame.renamed(names)
        shape = np.shape(y)
        self._flat, self.n_outputs_ = len(shape) == 1, shape[1] if len(shape) > 1 else 1
        targets = target_names(y, self.n_outputs_, names)
        modelled, levels = target_frame(y, targets), is_categorical(y)
        kinds = array_kinds(X, given) | label_kinds(modelled, alone=levels and self._flat)
        self.model_, _ = fit_frame(
            self,
            join_frames(modelled, given),
            sample_weight,
            columns=targets,
            given=given.names,
            kinds=kinds,
        )
        if levels and self.n_outputs_ == 1:
            self.classes_ = np.unique(np.asarray(y))
            codes = self.model_.encoding.codes(target_frame(self.classes_, targets), "rows")
            self._class_codes = codes[:, 0].numpy()
        return self

    def _frame(self, X: Any) -> Frame:
        """Return what to condition on as a frame with the columns of the fit."""
        X = as_rows(X)
        validate_data(self, X, skip_check_array=True, reset=False)
        return named_frame(X, column_names(self))

    def _validate(self, X: Any, y: Any, **checks: Any) -> tuple[np.ndarray, np.ndarray]:
        checks |= {"dtype": np.float64, "multi_output": True, "y_numeric": True}
        X, y = validate_data(self, as_rows(X), y, **checks)
        return X, np.asarray(y, dtype=np.float64)

    def _given(self, X: Any) -> np.ndarray | Frame:
        check_is_fitted(self)
        if not self.model_.encoding.noisy:
            return self._frame(X)
        return np.asarray(validate_data(self, as_rows(X), dtype=np.float64, reset=False))

    def _moments(self, X: Any) -> np.ndarray:
        """Return means and deviations, one after the other."""
        given = self._given(X)
        if self._steps is not None:
            return self._like_y(self._steps.moments(self.model_, given))
        z, weights, _ = self._points()
        reduce, parts = partial(_integrals.moments, weights), self.model_.flow.parts
        found = _integrals.pool_moments(
            [summarise(self.model_, given, z, reduce, flow) for flow in parts]
        )
        return self._like_y(np.stack(found))

    def _points(self) -> tuple[Tensor, np.ndarray, np.ndarray]:
        """Return base points and weights of integrals over the law, and levels of one column."""
        if self._by_roots:
            return _integrals.normal_nodes()
        levels = (np.arange(self.draws) + 0.5) / self.draws
        weights = np.full(self.draws, 1 / self.draws)
        return spread_base(self.draws, self.n_outputs_), weights, levels

    @property
    def _by_roots(self) -> bool:
        """Whether quantiles are roots of the flow: of one column of numbers."""
        return self.n_outputs_ == 1 and self.model_.encoding.continuous

    def _expect_numbers(self, name: str) -> None:
        check_is_fitted(self)
        if hasattr(self, "classes_") or self.model_.encoding.labels:
            advice = "predict_proba has probabilities" if self.n_outputs_ == 1 else "fit it alone"
            raise SettingsError(f"{name} is of numbers, got a category as y; {advice}.")
        expect_no_dates(self.model_, name)

    def _expect_one(self, name: str) -> None:
        self._expect_numbers(name)
        if self.n_outputs_ > 1:
            raise SettingsError(
                f"{name} is of one column of y, got {self.n_outputs_}; fit one for each column."
            )

    def _snap(self, values: np.ndarray) -> np.ndarray:
        """Return values that y has, where they are few."""
        return values if self._steps is None else self._steps.snap(values)

    def _like_y(self, values: np.ndarray) -> np.ndarray:
        """Drop the dimension of columns where y had none."""
        return values[..., 0] if self._flat else values


def crps_scorer(estimator: ConditionalFlowDensity, X: Any, y: Any) -> float:
    """Return minus the mean continuous ranked probability score, as ``scoring=`` takes it."""
    return -float(estimator.crps(X, y).mean())
