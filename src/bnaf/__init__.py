"""Block neural autoregressive flows: compact, normalised, conditional densities for PyTorch."""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from bnaf.training import TrainingRecord, TrainingSettings, fit

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
    "TrainingRecord",
    "TrainingSettings",
    "fit",
]

_ON_FIRST_USE = {
    "TrainingRecord": "bnaf.training",
    "TrainingSettings": "bnaf.training",
    "fit": "bnaf.training",
}


def __getattr__(name: str) -> Any:
    """Import what is heavy when it is first asked for."""
    if name not in _ON_FIRST_USE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_ON_FIRST_USE[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_ON_FIRST_USE})
