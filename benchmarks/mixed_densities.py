"""Models of rows of every kind that have a likelihood: each is fitted, scores and samples.

A contestant is made of the columns, is fitted to rows within some seconds, and then gives the log
of the mass of every row, as `mixed_tables.py` defines it, and rows of its own.
"""

import copy
import math
from abc import ABC, abstractmethod
from time import perf_counter
from typing import Any

import numpy as np
import pandas as pd
from mixed_tables import Column, snap

MOST_BINS = 50
HELD_OUT = 0.1
BATCH, RATE, WIDTH = 256, 2e-3, 256  # of the softmax network


class Contestant(ABC):
    """A model of rows.

    Args:
        columns: Cells of all columns.
        seed: Seed of all draws.
    """

    def __init__(self, columns: tuple[Column, ...], seed: int) -> None:
        self.columns, self.seed = columns, seed

    @abstractmethod
    def fit(self, rows: pd.DataFrame, seconds: float) -> None:
        """Fit to rows, within some seconds where the model can be told."""

    def score(self, rows: pd.DataFrame) -> np.ndarray:
        """Return the log of the mass of each row, in nats."""
        raise NotImplementedError

    def sample(self, count: int) -> pd.DataFrame:
        """Draw rows."""
        raise NotImplementedError


def smooth(counts: np.ndarray) -> np.ndarray:
    """Return logs of frequencies, with half a count more for each level."""
    return np.log((counts + 0.5) / (counts + 0.5).sum())


class Marginal:
    """Law of one column: smoothed frequencies of levels, a mixture of three laws of numbers.

    Numbers, in steps, follow a mixture of their frequencies, of a histogram of 50 quantiles and
    of a Cauchy law, with weights that suit rows held out.
    """

    def __init__(self, column: Column, values: pd.Series, seed: int) -> None:
        self.column = column
        empty = values.isna().to_numpy()
        self.log_empty = smooth(np.array([(~empty).sum(), empty.sum()]))
        if column.levels:
            counts = values.value_counts().reindex(column.levels, fill_value=0)
            self.log_levels = smooth(counts.to_numpy())
            return
        places = self.places(values[~empty])
        order = np.random.default_rng(seed).permutation(len(places))
        held = order[: max(2, len(order) // 5)]
        self.learn(np.delete(places, held))
        masses = self.masses(places[held], places[held])  # (rows, laws)
        weights = np.full(3, 1 / 3)
        for _ in range(50):
            shares = weights * masses + 1e-300
            weights = (shares / shares.sum(1, keepdims=True)).mean(0)
        self.weights = 0.999 * weights + 0.001 / 3
        self.learn(places)

    def places(self, values: Any) -> np.ndarray:
        """Return numbers in steps from the offset."""
        numbers = np.asarray(values, dtype=np.float64)
        return np.round((numbers - self.column.offset) / self.column.step)

    def learn(self, places: np.ndarray) -> None:
        """Learn the three laws."""
        self.known = np.sort(places)
        levels = np.linspace(0, 1, min(MOST_BINS, len(np.unique(places))) + 1)
        self.ends, first = np.unique(np.quantile(places, levels), return_index=True)
        self.ends = np.r_[self.ends[0] - 0.5, self.ends[1:] + 0.5]
        self.reached = np.r_[0.0, levels[first][1:]]
        self.reached[-1] = 1.0
        low, self.middle, high = np.quantile(places, [0.25, 0.5, 0.75])
        self.spread = max(1.0, (high - low) / 2)

    def masses(self, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        """Return what each law gives to the cells from one to another, both included."""
        from scipy.stats import cauchy

        def below(x: np.ndarray) -> np.ndarray:
            return np.stack(
                [
                    np.searchsorted(self.known, x, side="right") / len(self.known),
                    np.interp(x, self.ends, self.reached),
                    cauchy.cdf(x, self.middle, self.spread),
                ],
                -1,
            )

        return np.maximum(below(high + 0.5) - below(low - 0.5), 0)

    def log_mass(self, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        """Return the log of the mass of the cells from one to another."""
        return np.log(self.masses(low, high) @ self.weights + 1e-300)

    def score(self, values: pd.Series) -> np.ndarray:
        """Return the log of the mass of each cell."""
        empty = values.isna().to_numpy()
        found = np.zeros(len(values))
        if self.column.levels:
            codes = pd.Categorical(values[~empty], categories=self.column.levels).codes
            found[~empty] = self.log_levels[codes]
        else:
            places = self.places(values[~empty])
            found[~empty] = self.log_mass(places, places)
        return found + (self.log_empty[empty.astype(int)] if self.column.empty else 0.0)


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


class Bins:
    """Bins of one column: its levels, its values where they are few, else 50 quantiles."""

    def __init__(self, law: Marginal, values: pd.Series) -> None:
        self.law, column = law, law.column
        self.inner = np.empty(0)
        if not column.levels:
            known = np.unique(law.places(values.dropna()))
            if len(known) > MOST_BINS:
                levels = np.linspace(0, 1, MOST_BINS + 1)[1:-1]
                known = np.unique(np.quantile(law.places(values.dropna()), levels))
                self.inner = np.floor(known) + 0.5
                self.inner = np.unique(self.inner)
            else:
                self.inner = np.floor((known[1:] + known[:-1]) / 2) + 0.5
        self.present = len(column.levels) or len(self.inner) + 1
        self.count = self.present + column.empty

    def encode(self, values: pd.Series) -> np.ndarray:
        """Return the bin of each cell; the last one is that of empty cells."""
        if self.law.column.levels:
            codes = pd.Categorical(values, categories=self.law.column.levels).codes.astype(int)
        else:
            codes = np.searchsorted(self.inner, self.law.places(values.fillna(0.0)))
        return np.where(values.isna(), self.present, codes)

    def within(self, values: pd.Series) -> np.ndarray:
        """Return the log of the share of each cell in its bin."""
        found = np.zeros(len(values))
        if self.law.column.levels:
            return found
        there = values.notna().to_numpy()
        places = self.law.places(values[there])
        ends = np.r_[-np.inf, self.inner, np.inf]
        codes = np.searchsorted(self.inner, places)
        low, high = ends[codes] + 0.5, ends[codes + 1] - 0.5
        found[there] = self.law.log_mass(places, places) - self.law.log_mass(low, high)
        return found

    def draw(self, codes: np.ndarray, rows: pd.Series, draws: np.random.Generator) -> np.ndarray:
        """Return values of bins, drawn from those seen there."""
        known, values = self.encode(rows), rows.to_numpy()
        order = np.argsort(known, kind="stable")
        start = np.searchsorted(known[order], codes)
        count = np.searchsorted(known[order], codes, side="right") - start
        chosen = order[np.minimum(start + draws.integers(np.maximum(count, 1)), len(order) - 1)]
        return values[chosen]


def make_network(counts: list[int], starts: list[np.ndarray]) -> Any:
    """Return a masked network: from all columns as indicators to logits, each of those before."""
    import torch
    from torch import nn

    def masked(rows: np.ndarray, columns: np.ndarray, *, strict: bool) -> Any:
        allowed = rows[:, None] > columns if strict else rows[:, None] >= columns
        layer = nn.Linear(len(columns), len(rows))
        mask = torch.from_numpy(allowed.astype(np.float32))
        layer.weight.data *= mask
        layer.weight.register_hook(lambda gradient: gradient * mask)
        return layer

    units = np.repeat(np.arange(len(counts)), counts)
    hidden = np.arange(WIDTH) % max(1, len(counts) - 1)
    last = masked(units, hidden, strict=True)
    last.weight.data.zero_()
    last.bias.data = torch.from_numpy(np.concatenate(starts).astype(np.float32))
    return nn.Sequential(
        *(masked(hidden, units, strict=False), nn.ReLU(), nn.Dropout(0.1)),
        *(masked(hidden, hidden, strict=False), nn.ReLU(), nn.Dropout(0.1), last),
    )


class BinnedSoftmax(Contestant):
    """A masked autoregressive network with one softmax over the bins of each column."""

    def fit(self, rows: pd.DataFrame, seconds: float) -> None:
        import torch

        torch.manual_seed(self.seed)
        begin = perf_counter()
        self.rows = rows
        laws = [Marginal(column, rows[column.name], self.seed) for column in self.columns]
        self.bins = [Bins(law, rows[law.column.name]) for law in laws]
        codes = torch.from_numpy(self.encode(rows))
        counts = [bins.count for bins in self.bins]
        starts = [
            smooth(np.bincount(codes[:, place].numpy(), minlength=count))
            for place, count in enumerate(counts)
        ]
        self.network = make_network(counts, starts)
        held, kept = codes[: int(HELD_OUT * len(codes))], codes[int(HELD_OUT * len(codes)) :]
        adam = torch.optim.Adam(self.network.parameters(), lr=RATE)
        best, best_loss, step, stale = copy.deepcopy(self.network), math.inf, 0, 0
        while (spent := (perf_counter() - begin) / seconds) < 1 and stale < 30:
            adam.param_groups[0]["lr"] = RATE * (1 + math.cos(math.pi * spent)) / 2
            adam.zero_grad()
            loss = -self.log_shares(kept[torch.randint(len(kept), (BATCH,))]).mean()
            loss.backward()
            adam.step()
            step += 1
            if step % 50 == 0:
                self.network.eval()
                with torch.no_grad():
                    found = -self.log_shares(held).mean().item()
                self.network.train()
                stale += 1
                if found < best_loss:
                    best_loss, best, stale = found, copy.deepcopy(self.network), 0
        self.network = best.eval()

    def encode(self, rows: pd.DataFrame) -> np.ndarray:
        """Return the bins of all cells."""
        return np.stack([bins.encode(rows[bins.law.column.name]) for bins in self.bins], 1)

    def logits(self, codes: Any) -> list[Any]:
        """Return the logits of each column given the bins of those before it."""
        import torch
        from torch.nn.functional import one_hot

        counts = [bins.count for bins in self.bins]
        shown = [
            one_hot(codes[:, place], count).float() if place < codes.shape[1] else None
            for place, count in enumerate(counts)
        ]
        return [*self.network(torch.cat(shown, 1)).split(counts, 1)]

    def log_shares(self, codes: Any) -> Any:
        """Return the log-probability of the bins of each row."""
        total = 0.0
        for place, logits in enumerate(self.logits(codes)):
            total = total + logits.log_softmax(1).gather(1, codes[:, place : place + 1])[:, 0]
        return total

    def score(self, rows: pd.DataFrame) -> np.ndarray:
        import torch

        with torch.no_grad():
            parts = torch.from_numpy(self.encode(rows)).split(4096)
            found = torch.cat([self.log_shares(part) for part in parts]).double().numpy()
        return found + sum(bins.within(rows[bins.law.column.name]) for bins in self.bins)

    def sample(self, count: int) -> pd.DataFrame:
        import torch

        torch.manual_seed(self.seed)
        draws = np.random.default_rng(self.seed)
        codes = torch.zeros(count, len(self.bins), dtype=torch.long)
        with torch.no_grad():
            for place in range(len(self.bins)):
                share = self.logits(codes)[place].softmax(1)
                codes[:, place] = torch.multinomial(share, 1)[:, 0]
        return pd.DataFrame(
            {
                bins.law.column.name: bins.draw(
                    codes[:, place].numpy(), self.rows[bins.law.column.name], draws
                )
                for place, bins in enumerate(self.bins)
            }
        )


class Pylace(Contestant):
    """CrossCat by pylace: numbers are continuous, empty cells and unseen levels by frequency."""

    def fit(self, rows: pd.DataFrame, seconds: float) -> None:
        import lace
        import polars as pl

        self.laws = [Marginal(column, rows[column.name], self.seed) for column in self.columns]
        self.seen = {c.name: set(rows[c.name].dropna()) for c in self.columns if c.levels}
        lines = rows.assign(ID=[f"row {index}" for index in range(len(rows))])
        frame = pl.from_pandas(lines[["ID", *rows]], nan_to_null=True)
        builder = lace.CodebookBuilder.infer(cat_cutoff=0)
        self.engine = lace.Engine.from_df(frame, codebook=builder, n_states=8, rng_seed=self.seed)
        self.engine.update(100_000, timeout=int(seconds), quiet=True)

    def score(self, rows: pd.DataFrame) -> np.ndarray:
        import polars as pl

        found = np.zeros(len(rows))
        known = rows.notna()
        for law in self.laws:
            name, column = law.column.name, law.column
            if column.empty:
                found += law.log_empty[rows[name].isna().astype(int)]
            if column.levels:
                unseen = (known[name] & ~rows[name].isin(self.seen[name])).to_numpy()
                codes = pd.Categorical(rows[name][unseen], categories=column.levels).codes
                found[unseen] += law.log_levels[codes]
                known[name] &= ~unseen
            else:
                found += np.where(known[name], np.log(column.step), 0.0)
        for pattern, lines in rows.groupby([*map(known.get, rows)], sort=False).groups.items():
            there = [
                name for name, shown in zip(rows, np.atleast_1d(pattern), strict=True) if shown
            ]
            part = pl.from_pandas(rows.loc[lines, there])
            found[lines] += np.atleast_1d(np.asarray(self.engine.logp(part)))
        return found

    def sample(self, count: int) -> pd.DataFrame:
        names = [column.name for column in self.columns]
        drawn = self.engine.simulate(names, n=count).to_pandas()
        return snap(drawn, self.columns)


class Ours(Contestant):
    """`bnaf.Model.fit(frame)`, with its defaults."""

    def fit(self, rows: pd.DataFrame, seconds: float) -> None:
        import bnaf

        settings = bnaf.TrainingSettings(seconds=seconds, seed=self.seed)
        self.model = bnaf.Model.fit(rows, settings=settings, progress=False)

    def score(self, rows: pd.DataFrame) -> np.ndarray:
        return self.model.log_prob(rows).numpy() + self.widths(rows)

    def widths(self, rows: pd.DataFrame) -> np.ndarray:
        """Return the logs of the steps of the cells of each row that ours gives a density."""
        from bnaf.tables.frames import read_frame

        schema = self.model.schema
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
