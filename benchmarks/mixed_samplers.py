"""Synthesisers without a likelihood, and how good the rows that a model draws are."""

import tempfile
import warnings
from typing import Any

import numpy as np
import pandas as pd
from mixed_contest import Contestant
from mixed_densities import DENSITIES, Ours
from mixed_tables import TARGETS, Split, snap
from shared import Record

FOLDS = 3


class TrainingRows(Contestant):
    """The training rows themselves: what no model is better than, unless it memorises."""

    def fit(self, rows: pd.DataFrame, seconds: float) -> None:
        self.rows = rows

    def sample(self, count: int) -> pd.DataFrame:
        return self.rows.sample(count, replace=count > len(self.rows), random_state=self.seed)


class Synthesiser(Contestant):
    """A synthesiser of SDV, told which columns are categories."""

    def metadata(self) -> Any:
        from sdv.metadata import Metadata

        return Metadata.load_from_dict({"tables": {"table": describe(self.columns)}})

    def keep(self, model: Any, rows: pd.DataFrame) -> None:
        """Fit a model, and draw from it by its seed."""
        np.random.seed(self.seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit({"table": rows})
        self.model = model

    def sample(self, count: int) -> pd.DataFrame:
        return snap(self.model.sample(count)["table"], self.columns)


class GaussianCopula(Synthesiser):
    """SDV's Gaussian copula."""

    def fit(self, rows: pd.DataFrame, seconds: float) -> None:
        from sdv.single_table import GaussianCopulaSynthesizer

        self.keep(GaussianCopulaSynthesizer(self.metadata()), rows)


class CTGAN(Synthesiser):
    """SDV's CTGAN with its defaults; 300 epochs, however long they take."""

    def fit(self, rows: pd.DataFrame, seconds: float) -> None:
        import torch
        from sdv.single_table import CTGANSynthesizer

        torch.manual_seed(self.seed)
        self.keep(CTGANSynthesizer(self.metadata(), enable_gpu=False), rows)


class Arf(Contestant):
    """Adversarial random forests by arfpy, which has no empty cells: medians, or a level."""

    def fit(self, rows: pd.DataFrame, seconds: float) -> None:
        from arfpy import arf

        filled = {
            column.name: rows[column.name].fillna("")
            if column.levels
            else rows[column.name].fillna(rows[column.name].median())
            for column in self.columns
        }
        self.model = arf.arf(pd.DataFrame(filled), verbose=False, random_state=self.seed)
        self.model.forde()

    def sample(self, count: int) -> pd.DataFrame:
        np.random.seed(self.seed)
        drawn = self.model.forge(n=count)
        for column in self.columns:
            if column.levels and column.empty:
                drawn[column.name] = drawn[column.name].astype(object).replace("", None)
        return snap(drawn, self.columns)


class MostlyAI(Contestant):
    """TabularARGN by mostlyai-engine, with its defaults and a budget of time."""

    def fit(self, rows: pd.DataFrame, seconds: float) -> None:
        from mostlyai.engine import TabularARGN

        self.folder = tempfile.TemporaryDirectory()
        self.model = TabularARGN(
            workspace_dir=self.folder.name,
            max_training_time=seconds / 60,
            random_state=self.seed,
            verbose=0,
        )
        self.model.fit(rows)

    def sample(self, count: int) -> pd.DataFrame:
        return snap(self.model.sample(count).reset_index(drop=True), self.columns)


class Within(Ours):
    """Ours, drawn within the range of the training rows, where SDV's draws are taken to.

    A law that is right draws a few of as many rows beyond it, and trends of sdmetrics are counted
    in ten even parts of each table's own range, which a single one of them moves.
    """

    def sample(self, count: int) -> pd.DataFrame:
        return self.model.sample_table(count, within_range=True, seed=self.seed).to_pandas()


SAMPLERS: dict[str, type[Contestant]] = {
    "training rows": TrainingRows,
    **DENSITIES,
    "bnaf within range": Within,
    "GaussianCopula": GaussianCopula,
    "CTGAN": CTGAN,
    "arfpy": Arf,
    "mostlyai-engine": MostlyAI,
}


def describe(columns: tuple[Any, ...]) -> Record:
    """Return the columns as SDV describes them."""
    kinds = {column.name: "categorical" if column.levels else "numerical" for column in columns}
    return {"columns": {name: {"sdtype": kind} for name, kind in kinds.items()}}


def as_codes(frame: pd.DataFrame, split: Split) -> np.ndarray:
    """Return rows as numbers for trees; -1 is a level that is empty or unknown."""
    return np.stack(
        [
            pd.Categorical(frame[column.name].astype(object), categories=column.levels).codes
            if column.levels
            else frame[column.name].astype(float).to_numpy()
            for column in split.columns
        ],
        1,
    ).astype(np.float64)


def two_sample(real: np.ndarray, drawn: np.ndarray, seed: int) -> float:
    """Return the AUC of boosted trees that tell drawn rows from real ones; 0.5 is best."""
    from sklearn.metrics import roc_auc_score
    from sklearn.model_selection import cross_val_predict
    from xgboost import XGBClassifier

    rows = np.r_[real, drawn]
    labels = np.r_[np.zeros(len(real)), np.ones(len(drawn))]
    trees = XGBClassifier(n_estimators=100, max_depth=4, n_jobs=1, random_state=seed)
    order = np.random.default_rng(seed).permutation(len(rows))
    found = cross_val_predict(trees, rows[order], labels[order], cv=FOLDS, method="predict_proba")
    return float(roc_auc_score(labels[order], found[:, 1]))


def usefulness(drawn: np.ndarray, test: np.ndarray, split: Split, target: int) -> float:
    """Return how well trees grown on drawn rows predict real ones: AUC of levels, R² of numbers.

    A level that was never drawn has probability zero.
    """
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
    from sklearn.metrics import r2_score, roc_auc_score

    x, x_test = np.delete(drawn, target, 1), np.delete(test, target, 1)
    y, y_test = drawn[:, target], test[:, target]
    levels = len(split.columns[target].levels)
    if not levels:
        there = np.isfinite(y)
        trees = HistGradientBoostingRegressor(random_state=0).fit(x[there], y[there])
        return float(r2_score(y_test, trees.predict(x_test)))
    there = y >= 0
    if len(np.unique(y[there])) < 2:
        return 0.5
    trees = HistGradientBoostingClassifier(random_state=0).fit(x[there], y[there])
    share = np.zeros((len(x_test), levels))
    share[:, trees.classes_.astype(int)] = trees.predict_proba(x_test)
    there = np.unique(y_test[y_test >= 0]).astype(int)
    each = [roc_auc_score(y_test == level, share[:, level]) for level in there]
    return float(np.mean(each))


def judge(contestant: Contestant, split: Split, table: str) -> Record:
    """Return how good drawn rows are: as many as there are to train on."""
    from sdmetrics.reports.single_table import QualityReport

    drawn = contestant.sample(len(split.train)).reset_index(drop=True)
    drawn = drawn[[column.name for column in split.columns]]
    for column in split.columns:
        kind = object if column.levels else np.float64
        drawn[column.name] = drawn[column.name].astype(kind)
    report = QualityReport()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        report.generate(split.test, drawn, describe(split.columns), verbose=False)
    shares = report.get_properties().set_index("Property")["Score"]
    test, codes = as_codes(split.test, split), as_codes(drawn, split)
    target = [column.name for column in split.columns].index(TARGETS[table])
    return {
        "auc": two_sample(test, codes[: len(test)], contestant.seed),
        "shapes": float(shares["Column Shapes"]),
        "trends": float(shares["Column Pair Trends"]),
        "usefulness": usefulness(codes, test, split, target),
    }
