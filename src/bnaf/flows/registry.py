"""Flows by name: what model files, commands and studies look names up in."""

from importlib import import_module
from typing import TYPE_CHECKING

from bnaf.errors import SettingsError

if TYPE_CHECKING:
    from bnaf.flows.flow import Flow

MIXED = "mixed"
"""Flow of columns of every kind."""
FLOWS = {
    "bnaf": "bnaf.flows.bnaf:BNAF",
    "ffjord": "bnaf.flows.ffjord:FFJORD",
    "glow": "bnaf.flows.glow:Glow",
    "iaf": "bnaf.flows.iaf:IAF",
    "made": "bnaf.flows.made:MADE",
    "made-mog": "bnaf.flows.made:MADEMoG",
    "maf": "bnaf.flows.maf:MAF",
    "maf-mog": "bnaf.flows.maf:MAFMoG",
    "naf-ddsf": "bnaf.flows.naf:NAF",
    "nsf": "bnaf.flows.nsf:NSF",
    "nsf-coupling": "bnaf.flows.nsf:CouplingNSF",
    "planar": "bnaf.flows.planar:Planar",
    "real-nvp": "bnaf.flows.real_nvp:RealNVP",
    "sylvester": "bnaf.flows.sylvester:Sylvester",
    "tan": "bnaf.flows.tan:TAN",
    "tan-linear": "bnaf.flows.tan:LinearTAN",
    "trade": "bnaf.flows.trade:TraDE",
}
"""Module and class of each flow, imported on first use."""
COMPOSED = {
    "ensemble": "bnaf.flows.ensemble:Ensemble",
    MIXED: "bnaf.flows.mixed:Mixed",
}
"""Those that are made of others: model files know them, nobody fits them by name."""


def flow_names() -> list[str]:
    """Return the names of all flows.

    Example:
        >>> "bnaf" in flow_names()
        True
    """
    return sorted(FLOWS)


def stored_names() -> list[str]:
    """Return the names that model files may hold: those of flows made of others too."""
    return sorted(FLOWS | COMPOSED)


def flow_named(name: str) -> "type[Flow]":
    """Return the class of the flow of that name.

    Raises:
        SettingsError: If there is none.

    Example:
        >>> flow_named("bnaf").__name__
        'BNAF'
    """
    known = FLOWS | COMPOSED
    if name not in known:
        raise SettingsError(f"flow must be one of {', '.join(flow_names())}, got {name!r}.")
    module, _, attribute = known[name].partition(":")
    return getattr(import_module(module), attribute)  # type: ignore[no-any-return]


def flow_name(flow: "Flow") -> str:
    """Return the name of a flow.

    Raises:
        SettingsError: If its class has none.
    """
    place = f"{type(flow).__module__}:{type(flow).__qualname__}"
    for name, target in (FLOWS | COMPOSED).items():
        if target == place:
            return name
    raise SettingsError(
        f"Expected one of the flows {', '.join(flow_names())}, got {type(flow).__name__}; "
        f"name it in bnaf.flows.registry.FLOWS, as {place!r}."
    )
