"""Draws in order: each feature is put into its cell before the next one looks at it."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from bnaf.block.inverse import FeatureNetwork, Sweep
from bnaf.block.weights import Networks
from bnaf.laws.cells import Cells, Snap
from bnaf.laws.roots import Targets, solve_increasing


class FeatureStack(NamedTuple):
    """One feature through all networks, those before it being known."""

    networks: tuple[FeatureNetwork, ...]

    def keep(self, rows: Bool[Tensor, " rows"]) -> "FeatureStack":
        """Return the networks of some of the rows."""
        return FeatureStack(tuple(network.keep(rows) for network in self.networks))

    def value_and_slope(self, x: Targets) -> tuple[Targets, Targets]:
        """Return the feature's last output and its derivative."""
        slope = torch.ones_like(x)
        for network in self.networks:
            x, step = network.value_and_slope(x)
            slope = slope * step
        return x, slope


@torch.no_grad()
def draw(networks: Networks, z: Float[Tensor, "rows features"], snap: Snap) -> Cells:
    """Return the cells that base noise becomes, feature by feature.

    Args:
        networks: Networks in one order that are onto.
        z: Base noise, one row for each context.
        snap: From draws of a feature to their cells.

    Raises:
        InversionError: If the search for a pre-image did not end.
    """
    weights, contexts = networks.numbers.weights, networks.modulations()
    sweeps = [
        Sweep(network, networks.activation, networks.residual(index), contexts[index], len(z))
        for index, network in enumerate(weights.networks(networks.blocks))
    ]
    nothing = (
        torch.full_like(z[:, 0], torch.nan),
        torch.zeros_like(z[:, 0]),
        torch.zeros_like(z[:, 0]),
    )
    columns: list[Cells] = []
    for feature in range(networks.features):
        stack = FeatureStack(tuple(sweep.feature(feature) for sweep in sweeps))
        x = solve_increasing(stack, z[:, feature].unsqueeze(0)).squeeze(0)
        cells = Cells.of(*(snap(feature, x) or nothing))
        columns.append(cells)
        seen = cells.middle.unsqueeze(0)
        for sweep, network in zip(sweeps, stack.networks, strict=True):
            inputs = network.hidden(seen)
            sweep.settle(feature, inputs)
            seen = network.output(inputs)
    return Cells(*(torch.stack(parts, 1) for parts in zip(*columns, strict=True)))
