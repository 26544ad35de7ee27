"""What every model of rows of every kind can do: it is fitted, scores and samples."""

from abc import ABC, abstractmethod

import numpy as np
import pandas as pd
from mixed_tables import Column


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
