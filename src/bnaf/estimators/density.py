"""The density of rows, as an estimator."""

from typing import Any

import numpy as np
from sklearn.base import DensityMixin
from sklearn.utils.validation import check_is_fitted

from bnaf._checks import whole
from bnaf.estimators._fitting import RowEstimator, draw_seed


class FlowDensity(DensityMixin, RowEstimator):
    """Density of rows, by a flow.

    Columns are standardised, and log-densities are in the units of the data given to ``fit``. A
    row that occurs twice and one of weight two, among others of weight one, come to the same
    model. Values of an array that repeat often, as those of a column of counts do, have no
    density: :meth:`bnaf.Model.fit` gives them masses, or spread them beforehand, as
    :func:`bnaf.read_table` does with ``dequantise``.

    Frames with columns of text, categories, dates or true and false, or with empty cells, nan in
    an array, are read by what their columns hold: what is discrete then has a mass, and ``sample``
    returns a frame.

    Args:
        flow: Name of a flow in :mod:`bnaf.flows.registry`.
        settings: Arguments of the flow, as a dict; those left out suit the size of the table. A
            search reaches each of them by name, as ``settings__width``.
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
            X: Rows, of numbers or in frames of every kind; cells may be empty.
            y: Ignored.
            sample_weight: How much each row counts.
        """
        self._learn(X, sample_weight)
        return self

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return the mean log-density of the rows, in nats; y is ignored.

        Args:
            X: Rows, of numbers or in frames of every kind; cells may be empty.
            y: Ignored.
            sample_weight: How much each row counts.
        """
        return float(np.average(self.score_samples(X), weights=sample_weight))

    def sample(self, n: int = 1, random_state: Any = None) -> Any:
        """Draw rows: an array, or a pandas frame where columns are of several kinds.

        Args:
            n: How many.
            random_state: Seed or ``RandomState``; ``None`` for other rows every time.
        """
        check_is_fitted(self)
        count, seed = whole("n", n), draw_seed(random_state)
        if not self.model_.encoding.noisy:
            return self.model_.sample_table(count, seed=seed).to_pandas()
        return self.model_.sample(count, seed=seed).numpy()
