"""Binned-softmax autoregression: what a network makes of rows whose numbers are in bins."""

import copy
import math
from time import perf_counter
from typing import Any

import numpy as np
import pandas as pd
from mixed_contest import Contestant
from mixed_marginals import Bins, Marginal, smooth

HELD_OUT = 0.1
BATCH, RATE, WIDTH = 256, 2e-3, 256


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
