"""The flows that every property test runs over; adding one here is all it takes to test it."""

import inspect
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from bnaf import BNAF, Flow, FlowDistribution
from bnaf.flows.ffjord import FFJORD
from bnaf.flows.glow import Glow
from bnaf.flows.iaf import IAF
from bnaf.flows.made import MADE, MADEMoG
from bnaf.flows.maf import MAF, MAFMoG
from bnaf.flows.naf import NAF
from bnaf.flows.nsf import NSF, CouplingNSF
from bnaf.flows.planar import Planar
from bnaf.flows.real_nvp import RealNVP
from bnaf.flows.sylvester import Sylvester
from bnaf.flows.tan import TAN, LinearTAN
from bnaf.flows.trade import TraDE
from bnaf.laws.transforms import RowTransform

FEATURES = 3
CONTEXT_FEATURES = 2


def _bnaf(**settings) -> Callable[..., Flow]:
    def build(features: int = FEATURES, context_features: int = 0) -> Flow:
        return BNAF(features, context_features, **{"width": 4, **settings})

    return build


def _scaled(**settings) -> Callable[..., Flow]:
    def build(features: int = FEATURES, context_features: int = 0) -> Flow:
        flow = BNAF(features, context_features, **{"width": 4, "transforms": 2, **settings})
        flow.scale_base(torch.linspace(-0.5, 0.5, features), torch.linspace(0.7, 1.5, features))
        return flow

    return build


def _paper(**settings) -> Callable[..., Flow]:
    def build(features: int = FEATURES, context_features: int = 0) -> Flow:
        return BNAF.paper(features, context_features, **{"transforms": 2, "width": 4, **settings})

    return build


def closed_form(law: FlowDistribution) -> RowTransform:
    """The side of a law that needs no numerical inverse."""
    return law.transform if law.direction == "density" else law.transform.inv


def _baseline(kind: type[Flow], **settings) -> Callable[..., Flow]:
    def build(features: int = FEATURES, context_features: int = 0) -> Flow:
        return kind(features, context_features, **settings)

    return build


BNAF_FLOWS: dict[str, Callable[..., Flow]] = {
    "bnaf": _bnaf(),
    "leaky_relu": _bnaf(activation="leaky_relu", transforms=2),
    "plain_residual": _bnaf(residual="normal", transforms=2),
    "no_residual": _bnaf(residual=None, transforms=1),
    "random_order": _bnaf(permutation="random", permutation_seed=3),
    "fixed_order": _bnaf(permutation=None, transforms=2),
    "unequal_widths": _bnaf(hidden_layers=3, width=(2, 5, 3), transforms=2),
    "affine": _bnaf(hidden_layers=0, transforms=2),
    "deep": _bnaf(hidden_layers=8, width=2, transforms=1),
    "banded": _bnaf(width=(120, 90), transforms=2),
    "linear_context": _bnaf(context_layers=0),
    "amortised": _bnaf(context="amortised", transforms=2),
    "pieces": _bnaf(context_layers=2, context_width=6, context_bins=3, transforms=2),
    "paper": _paper(),
    "paper_plain_residual": _paper(residual="normal", hidden_layers=1),
    "sampling": _bnaf(direction="sampling", transforms=2),
    "paper_sampling": _paper(direction="sampling"),
    "scaled": _scaled(),
}
BASELINES: dict[str, Callable[..., Flow]] = {
    "glow": _baseline(Glow, transforms=3, width=6),
    "glow_one_step": _baseline(Glow, transforms=1, width=6, hidden_layers=1),
    "glow_sampling": _baseline(Glow, transforms=2, width=6, direction="sampling"),
    "planar": _baseline(Planar, transforms=8),
    "planar_context_network": _baseline(Planar, transforms=2, context_layers=1, context_width=6),
    "planar_sampling": _baseline(Planar, transforms=4, direction="sampling"),
    "iaf": _baseline(IAF, transforms=2, width=12, direction="sampling"),
    "iaf_density": _baseline(IAF, transforms=2, hidden_layers=1, width=12),
    "sylvester_orthogonal": _baseline(Sylvester, transforms=3, direction="sampling"),
    "sylvester_householder": _baseline(
        Sylvester, transforms=3, basis="householder", reflections=2, direction="sampling"
    ),
    "sylvester_triangular": _baseline(
        Sylvester, transforms=3, basis="triangular", context_layers=1, direction="sampling"
    ),
    "sylvester_density": _baseline(Sylvester, transforms=2, basis="triangular"),
    "real_nvp": _baseline(RealNVP, transforms=3, width=6),
    "made": _baseline(MADE, width=8),
    "made_mog": _baseline(MADEMoG, components=3, hidden_layers=1, width=8),
    "maf": _baseline(MAF, transforms=2, hidden_layers=1, width=8),
    "maf_sampling": _baseline(
        MAF, transforms=2, hidden_layers=1, width=5, mixing="reverse", direction="sampling"
    ),
    "maf_mog": _baseline(MAFMoG, transforms=1, components=2, hidden_layers=1, width=6),
    "nsf": _baseline(NSF, transforms=2, bins=3, hidden_layers=1, width=8),
    "nsf_coupling": _baseline(CouplingNSF, transforms=2, bins=4, hidden_layers=1, width=6),
    "naf_ddsf": _baseline(NAF, transforms=2, units=2, hidden_layers=1, width=6),
    "tan": _baseline(TAN, components=2, states=4, width=6),
    "tan_linear": _baseline(LinearTAN, components=2, states=4, width=6),
    "trade": _baseline(TraDE, hidden_layers=1, width=6, heads=2, components=2),
    "ffjord": _baseline(FFJORD, transforms=1, steps=8, width=4),
}
# Mixed is not among them: its packed rows are no points of a space that a transform could map
FLOWS = {**BNAF_FLOWS, **BASELINES}
_LAWS = {name: make()() for name, make in FLOWS.items()}
DENSITY = [name for name, law in _LAWS.items() if law.direction == "density"]
SAMPLING = [name for name, law in _LAWS.items() if law.direction == "sampling"]
ONTO = [name for name, law in _LAWS.items() if closed_form(law).onto]
SMOOTH = [name for name in DENSITY if name != "leaky_relu"]


class Case(NamedTuple):
    """A flow with parameters of order one, and a context where it takes one."""

    flow: Flow
    context: Tensor | None

    def rows(self, *batch: int, dtype: torch.dtype = torch.float64) -> Tensor:
        return torch.randn(*batch, self.flow.features, dtype=dtype)


def build(name: str, conditional: bool, features: int = FEATURES) -> Case:
    flow = FLOWS[name](features, CONTEXT_FEATURES if conditional else 0).double()
    randomise(flow)
    context = torch.randn(CONTEXT_FEATURES, dtype=torch.float64) if conditional else None
    return Case(flow, context)


def size_of(kind: type[Flow]) -> str:
    """Return the name of a setting of a flow that is a size: how many transforms, or layers."""
    settings = inspect.signature(kind).parameters
    return "transforms" if "transforms" in settings else "hidden_layers"


def idle_weights(flow: Flow) -> int:
    """Return how many weights get no gradient although they act."""
    if isinstance(flow, Sylvester):  # the diagonal of the mixing has a place, and is not used
        inputs = 0 if flow.conditioner is None else flow.conditioner[-1].in_features
        return flow.transforms * flow.vectors * (inputs + 1)
    if not isinstance(flow, BNAF):
        return 0
    # the first layer has one column per feature: on feature 0 its weight and norm cancel
    return flow.settings["transforms"] * flow.networks.layers[0].out_block


def randomise(flow: Flow, scale: float = 0.7) -> None:
    """Draw all parameters of order one: faults hide at initialisation."""
    with torch.no_grad():
        for name, parameter in flow.named_parameters():
            # the weights of block networks are normalised; all others count their inputs last
            normalised = name.startswith("networks.") or parameter.dim() < 2
            fan_in = 1 if normalised else max(1, parameter.shape[-1])
            parameter.normal_(std=scale / fan_in**0.5)
