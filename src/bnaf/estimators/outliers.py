"""Rows where a density is low, found by an estimator."""

from functools import partial
from numbers import Real
from typing import Any

import numpy as np
from sklearn.base import OutlierMixin

from bnaf.errors import SettingsError
from bnaf.estimators._fitting import RowEstimator, log_prob, weighted_threshold
from bnaf.estimators._trimming import trim_rows

TRIMMED = 3.0  # share of rows that a fit leaves out, in units of the contamination

AUTO_DRAWS = 10_000  # that the automatic threshold is read off
AUTO_SHARE = 0.01  # of them that lie below it
AUTO_CONTAMINATION = 0.1 / TRIMMED  # that a fit is prepared for without being told


class FlowOutlierDetector(OutlierMixin, RowEstimator):
    """Detector of rows where the density of a flow is low.

    The threshold lets a share of the rows given to ``fit`` count as outliers. A flow is a little
    surer of the rows it was fitted to than of others, so that of new rows of the same law a
    somewhat larger share does.

    Outliers among the rows given to ``fit`` would be learned like all others, most of all where
    they lie close to each other. So the rows farthest from a robust Gaussian are left out of the
    fit, three times as many as are taken for outliers, and scored like new rows. In frames, rare
    levels make rows unlikely as well. Where normal rows have a small group of their own far from
    the others, that is left out too: set ``trim=0`` for rows known to be normal.

    Args:
        flow: Name of a flow in :mod:`bnaf.flows.registry`.
        contamination: Share of outliers among the rows given to ``fit``, above 0 and at most 0.5;
            "auto" for rows that are less likely than 99 of 100 draws of the density itself.
        trim: Share of these rows that the flow is not fitted to, from 0 to 0.5; ``None`` for
            three times the contamination, a tenth where it is "auto". Fewer than 5 rows per
            column are all kept.
        settings: Arguments of the flow, as a dict; those left out suit the size of the table. A
            search reaches each of them by name, as ``settings__width``.
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

    _warns = False  # which are what it is asked for

    def __init__(
        self,
        flow: Any = "bnaf",
        *,
        contamination: Any = 0.1,
        trim: Any = None,
        settings: Any = None,
        training: Any = None,
        random_state: Any = None,
    ) -> None:
        self.flow = flow
        self.contamination = contamination
        self.trim = trim
        self.settings = settings
        self.training = training
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> "FlowOutlierDetector":
        """Fit the density of the rows of X and its threshold; y is ignored.

        Args:
            X: Rows, of numbers or in frames of every kind; cells may be empty.
            y: Ignored.
            sample_weight: How much each row counts.
        """
        share = self.contamination
        automatic = isinstance(share, str) and share == "auto"
        if not (automatic or (isinstance(share, Real) and 0 < float(share) <= 0.5)):
            raise SettingsError(
                f"contamination must be 'auto' or a number above 0 and at most 0.5, got {share!r}."
            )
        usual = AUTO_CONTAMINATION if automatic else float(share)
        trim = min(0.5, TRIMMED * usual) if self.trim is None else self.trim
        if not (isinstance(trim, Real) and 0 <= float(trim) <= 0.5):
            raise SettingsError(f"trim must be a number from 0 to 0.5 or None, got {trim!r}.")
        distinct = self._learn(X, sample_weight, partial(trim_rows, share=float(trim)))
        self.offset_ = (
            self._own_threshold()
            if automatic
            else weighted_threshold(
                log_prob(self.model_, distinct.rows, warn=False), distinct.weights, float(share)
            )
        )
        return self

    def _own_threshold(self) -> float:
        """Return the log-density below which few draws of the density itself lie."""
        rows = self.model_.sample(AUTO_DRAWS, seed=0, outside="redraw").numpy()
        scores = log_prob(self.model_, rows, warn=False)
        return weighted_threshold(scores, np.ones(AUTO_DRAWS), AUTO_SHARE)

    def decision_function(self, X: Any) -> np.ndarray:
        """Return how many nats each row lies above the threshold; outliers are below 0."""
        scores = self.score_samples(X)
        return scores - self.offset_

    def predict(self, X: Any) -> np.ndarray:
        """Return -1 for outliers and 1 for others."""
        return np.where(self.decision_function(X) >= 0, 1, -1)
