"""Block neural autoregressive flows: compact, normalised, conditional densities for PyTorch."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from bnaf.errors import (
    BnafError,
    DtypeError,
    FewDrawsWarning,
    InversionError,
    RedrawWarning,
    SettingsError,
    ShapeError,
    StaleLawError,
    StorageError,
    TableError,
    TableWarning,
    TrainingError,
)

if TYPE_CHECKING:
    from bnaf.flows.bnaf import BNAF
    from bnaf.flows.flow import Flow, MissingMass
    from bnaf.flows.transformed import TransformFlow
    from bnaf.laws.distribution import FlowDistribution
    from bnaf.model.files import load, save
    from bnaf.model.model import Model
    from bnaf.tables.reading import read_table
    from bnaf.training import TrainingRecord, TrainingSettings, fit

    __version__: str

__all__ = [
    "BNAF",
    "BnafError",
    "DtypeError",
    "FewDrawsWarning",
    "Flow",
    "FlowDistribution",
    "InversionError",
    "MissingMass",
    "Model",
    "RedrawWarning",
    "SettingsError",
    "ShapeError",
    "StaleLawError",
    "StorageError",
    "TableError",
    "TableWarning",
    "TrainingError",
    "TrainingRecord",
    "TrainingSettings",
    "TransformFlow",
    "fit",
    "load",
    "read_table",
    "save",
]

_ON_FIRST_USE = {
    "BNAF": "bnaf.flows.bnaf",
    "Flow": "bnaf.flows.flow",
    "FlowDistribution": "bnaf.laws.distribution",
    "MissingMass": "bnaf.flows.flow",
    "Model": "bnaf.model.model",
    "TrainingRecord": "bnaf.training",
    "TrainingSettings": "bnaf.training",
    "TransformFlow": "bnaf.flows.transformed",
    "fit": "bnaf.training",
    "load": "bnaf.model.files",
    "read_table": "bnaf.tables.reading",
    "save": "bnaf.model.files",
}


def __getattr__(name: str) -> Any:
    """Import what is heavy, all that needs torch, when it is first asked for."""
    if name == "__version__":
        from importlib.metadata import version

        return version("bnaf")
    if name not in _ON_FIRST_USE:
        raise AttributeError(f"module 'bnaf' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_ON_FIRST_USE[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})
