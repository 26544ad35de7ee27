"""The flows that every property test runs over; adding one here is all it takes to test it."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from bnaf import BNAF, Flow

FEATURES = 3
CONTEXT_FEATURES = 2


def _bnaf(**settings) -> Callable[..., Flow]:
    def build(features: int = FEATURES, context_features: int = 0) -> Flow:
        return BNAF(features, context_features, **{"width": 4, **settings})

    return build


def _paper(**settings) -> Callable[..., Flow]:
    def build(features: int = FEATURES, context_features: int = 0) -> Flow:
        return BNAF.paper(features, context_features, **{"transforms": 2, "width": 4, **settings})

    return build


FLOWS: dict[str, Callable[..., Flow]] = {
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
    "paper": _paper(),
    "paper_plain_residual": _paper(residual="normal", hidden_layers=1),
    "sampling": _bnaf(direction="sampling", transforms=2),
    "paper_sampling": _paper(direction="sampling"),
}
ONTO = [name for name in FLOWS if not name.startswith("paper")]
DENSITY = [name for name in FLOWS if not name.endswith("sampling")]
SAMPLING = [name for name in FLOWS if name.endswith("sampling")]
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


def randomise(flow: Flow, scale: float = 0.7) -> None:
    """Draw all parameters of order one: faults hide at initialisation."""
    with torch.no_grad():
        for name, parameter in flow.named_parameters():
            fan_in = (
                parameter.shape[1] if name.startswith("conditioner") and parameter.dim() > 1 else 1
            )
            parameter.normal_(std=scale / fan_in**0.5)
