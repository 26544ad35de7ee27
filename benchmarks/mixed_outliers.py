"""Outliers of two tables, found by detectors that saw them and by ones that did not."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from shared import Record
from sklearn.base import BaseEstimator

OUTLIER_TABLES = ("Shuttle", "Satellite")
NEIGHBOURS = 10


def load_outliers(folder: Path, table: str) -> tuple[np.ndarray, np.ndarray]:
    """Return rows, and which are outliers.

    Of Shuttle all that is not Rad.Flow, High left out; of Satellite the three smallest classes.
    """
    frame = pd.read_csv(folder / f"{table}.csv.gz")
    labels = frame.iloc[:, -1]
    rows = frame.iloc[:, :-1].to_numpy(np.float64)
    if table == "Shuttle":
        kept = (labels != "High").to_numpy()
        return rows[kept], (labels[kept] != "Rad.Flow").to_numpy()
    return rows, labels.isin(labels.value_counts().index[-3:]).to_numpy()


def standardised(make: Callable[[int], Any]) -> Callable[[int], Any]:
    """Return what makes a detector of standardised rows."""

    def made(seed: int) -> Any:
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        return make_pipeline(StandardScaler(), make(seed))

    return made


def make_bnaf(seed: int, trim: float | None = None) -> Any:
    """Return ours, as it is or for rows that are known to be normal."""
    from bnaf.estimators import FlowOutlierDetector

    return FlowOutlierDetector(trim=trim, random_state=seed)


def make_forest(seed: int) -> Any:
    """Return an isolation forest."""
    from sklearn.ensemble import IsolationForest

    return IsolationForest(random_state=seed)


def make_envelope(seed: int) -> Any:
    """Return a robust Gaussian."""
    from sklearn.covariance import EllipticEnvelope

    return EllipticEnvelope(random_state=seed)


class Neighbours(BaseEstimator):
    """Distance to the tenth neighbour; a row is not its own."""

    def fit(self, rows: np.ndarray, y: Any = None) -> "Neighbours":
        from sklearn.neighbors import NearestNeighbors

        self.index_ = NearestNeighbors(n_neighbors=NEIGHBOURS + 1).fit(rows)
        return self

    def score_samples(self, rows: np.ndarray) -> np.ndarray:
        distances = self.index_.kneighbors(rows)[0]
        own = distances[:, 0] == 0
        return -np.where(own, distances[:, NEIGHBOURS], distances[:, NEIGHBOURS - 1])


class Ranked:
    """A detector of PyOD."""

    def __init__(self, name: str) -> None:
        from importlib import import_module

        self.model = getattr(import_module(f"pyod.models.{name.lower()}"), name)()

    def fit(self, rows: np.ndarray, y: Any = None) -> "Ranked":
        self.model.fit(rows)
        return self

    def score_samples(self, rows: np.ndarray) -> np.ndarray:
        return -self.model.decision_function(rows)


DETECTORS: dict[str, Callable[[int], Any]] = {
    "bnaf": make_bnaf,
    "bnaf untrimmed": lambda seed: make_bnaf(seed, trim=0),
    "IsolationForest": make_forest,
    "kNN": standardised(lambda seed: Neighbours()),
    "robust Gaussian": standardised(make_envelope),
    **{f"PyOD {name}": (lambda seed, name=name: Ranked(name)) for name in ("ECOD", "HBOS")},
}


def judge_detector(name: str, rows: np.ndarray, outlying: np.ndarray, seed: int) -> Record:
    """Return AUCs: fitted to all rows and asked for them, and fitted to half of the normal ones.

    The latter is asked for the other half, and for the outliers.
    """
    from sklearn.metrics import roc_auc_score

    among = DETECTORS[name](seed).fit(rows)
    order = np.random.default_rng(seed).permutation(np.flatnonzero(~outlying))
    half = order[: len(order) // 2]
    rest = np.delete(np.arange(len(rows)), half)
    without = DETECTORS[name](seed).fit(rows[half])
    return {
        "auc_among": float(roc_auc_score(outlying, -among.score_samples(rows))),
        "auc_without": float(roc_auc_score(outlying[rest], -without.score_samples(rows[rest]))),
    }
