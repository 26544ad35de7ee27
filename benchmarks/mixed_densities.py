"""Models of rows of every kind that have a likelihood: each is fitted, scores and samples.

A contestant is made of the columns, is fitted to rows within some seconds, and then gives the log
of the mass of every row, as `mixed_tables.py` defines it, and rows of its own.
"""

import numpy as np
import pandas as pd
from mixed_contest import Contestant
from mixed_marginals import Marginal
from mixed_softmax import BinnedSoftmax
from mixed_tables import snap

FEW_ROWS = 10_000
FEW_VALUES = 20  # up to which pylace takes whole numbers for levels


class Independent(Contestant):
    """Columns that know nothing of each other."""

    def fit(self, rows: pd.DataFrame, seconds: float) -> None:
        self.rows = rows
        self.laws = [Marginal(column, rows[column.name], self.seed) for column in self.columns]

    def score(self, rows: pd.DataFrame) -> np.ndarray:
        return sum(law.score(rows[law.column.name]) for law in self.laws)

    def sample(self, count: int) -> pd.DataFrame:
        draws = np.random.default_rng(self.seed)
        drawn = {name: draws.choice(self.rows[name], count) for name in self.rows}
        return pd.DataFrame(drawn)


class Pylace(Contestant):
    """CrossCat by pylace: numbers of few values are levels, as its own default has it.

    Others are continuous. Empty cells and levels that it never saw are taken by frequency.
    """

    def fit(self, rows: pd.DataFrame, seconds: float) -> None:
        import lace
        import polars as pl

        self.laws = [Marginal(column, rows[column.name], self.seed) for column in self.columns]
        self.few = [
            column.name
            for column in self.columns
            if not column.levels and rows[column.name].nunique() <= FEW_VALUES
        ]
        rows = self.tell(rows)
        self.seen = {name: set(rows[name].dropna()) for name in rows if rows[name].dtype == object}
        lines = rows.assign(ID=[f"row {index}" for index in range(len(rows))])
        frame = pl.from_pandas(lines[["ID", *rows]], nan_to_null=True)
        builder = lace.CodebookBuilder.infer(cat_cutoff=0)
        self.engine = lace.Engine.from_df(frame, codebook=builder, n_states=8, rng_seed=self.seed)
        self.engine.update(100_000, timeout=int(seconds), quiet=True)

    def tell(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Return rows whose numbers of few values are texts."""
        texts = {
            name: rows[name].map(repr).where(rows[name].notna(), None).astype(object)
            for name in self.few
        }
        return rows.assign(**texts)

    def score(self, rows: pd.DataFrame) -> np.ndarray:
        import polars as pl

        found, told = np.zeros(len(rows)), self.tell(rows)
        known = rows.notna()
        for law in self.laws:
            name, column = law.column.name, law.column
            if column.empty:
                found += law.log_empty[rows[name].isna().astype(int)]
            if name in self.seen:
                unseen = (known[name] & ~told[name].isin(self.seen[name])).to_numpy()
                own = law.score(rows[name][unseen])
                found[unseen] += own - (law.log_empty[0] if column.empty else 0.0)
                known[name] &= ~unseen
            else:
                found += np.where(known[name], np.log(column.step), 0.0)
        for pattern, lines in told.groupby([*map(known.get, told)], sort=False).groups.items():
            there = [
                name for name, shown in zip(told, np.atleast_1d(pattern), strict=True) if shown
            ]
            part = pl.from_pandas(told.loc[lines, there])
            found[lines] += np.atleast_1d(np.asarray(self.engine.logp(part)))
        return found

    def sample(self, count: int) -> pd.DataFrame:
        names = [column.name for column in self.columns]
        drawn = self.engine.simulate(names, n=count).to_pandas()
        numbers = {name: drawn[name].astype(float) for name in self.few}
        return snap(drawn.assign(**numbers), self.columns)


class Ours(Contestant):
    """`bnaf.Model.fit(frame)` with its defaults; its budget is in seconds above 10,000 rows."""

    def fit(self, rows: pd.DataFrame, seconds: float) -> None:
        import bnaf

        budget = seconds if len(rows) > FEW_ROWS else None
        settings = bnaf.TrainingSettings(seconds=budget, seed=self.seed)
        self.model = bnaf.Model.fit(rows, settings=settings, progress=False)

    def score(self, rows: pd.DataFrame) -> np.ndarray:
        return self.model.log_prob(rows).numpy() + self.widths(rows)

    def widths(self, rows: pd.DataFrame) -> np.ndarray:
        """Return the logs of the steps of the cells of each row that ours gives a density."""
        from bnaf.tables.frames import read_frame

        schema = self.model.encoding.schema
        encoded = schema.encode(read_frame(rows)).rows
        middle, below, above = encoded[:, len(schema.levels) :].chunk(3, 1)
        point = (middle.isfinite() & (below + above == 0)).numpy()
        steps = {column.name: column.step for column in self.columns}
        widths = [steps[schema.names[place]] or 1.0 for place in schema.number_columns]
        return point @ np.log(widths)

    def sample(self, count: int) -> pd.DataFrame:
        return self.model.sample_table(count, seed=self.seed).to_pandas()


DENSITIES: dict[str, type[Contestant]] = {
    "independent": Independent,
    "binned softmax": BinnedSoftmax,
    "pylace": Pylace,
    "bnaf": Ours,
}
