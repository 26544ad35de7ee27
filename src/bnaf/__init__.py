"""Block neural autoregressive flows: compact, normalised, conditional densities for PyTorch."""

from importlib.metadata import version

from bnaf.distributions import FlowDistribution, RedrawWarning
from bnaf.errors import (
    BnafError,
    DtypeError,
    InversionError,
    SettingsError,
    ShapeError,
    StorageError,
    TableError,
    TrainingError,
)
from bnaf.flows import BNAF, Flow, MissingMass

__version__ = version("bnaf")

__all__ = [
    "BNAF",
    "BnafError",
    "DtypeError",
    "Flow",
    "FlowDistribution",
    "InversionError",
    "MissingMass",
    "RedrawWarning",
    "SettingsError",
    "ShapeError",
    "StorageError",
    "TableError",
    "TrainingError",
]
