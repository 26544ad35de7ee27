"""The neural autoregressive flow with deep dense sigmoidal functions."""

import torch
from torch import nn

from bnaf._checks import whole
from bnaf.flows.autoregressive import AutoregressiveFlow
from bnaf.laws.sigmoids import SigmoidCurve


class NAF(AutoregressiveFlow):
    """Neural autoregressive flow with deep dense sigmoidal functions (Huang et al., 2018).

    A stack of transforms with the features reversed in between. Each bends every feature by layers
    of sigmoids, whose numbers are said by a masked network that reads the features before it; see
    :class:`bnaf.laws.sigmoids.SigmoidCurve`. The paper has 5 or 10 transforms of 16 units. It
    departs from the authors' code in this: the masked network says the numbers of each
    feature directly, where theirs has one more linear map that all features share. Arguments that
    are not listed are those of :class:`bnaf.flows.autoregressive.AutoregressiveFlow`.

    Args:
        sigmoid_layers: Layers of each function; one makes it the deep sigmoidal flow.
        units: Sigmoids in each of them.

    Example:
        >>> NAF(features=3, transforms=2)().event_shape
        torch.Size([3])
    """

    sizes = (("transforms", 2, 5),)

    def __init__(
        self,
        features: int,
        context_features: int = 0,
        *,
        transforms: int = 5,
        sigmoid_layers: int = 2,
        units: int = 8,
        hidden_layers: int = 2,
        width: int = 128,
        direction: str = "density",
    ) -> None:
        super().__init__(features, context_features, direction)
        transforms, units = whole("transforms", transforms), whole("units", units)
        layers = whole("sigmoid_layers", sigmoid_layers)
        matrices = [torch.randn(transforms, units, units) for _ in range(2 * (layers - 1))]
        self.inner = nn.ParameterList(matrices[: layers - 1])
        self.outer = nn.ParameterList(matrices[layers - 1 :])
        self.last = nn.Parameter(torch.zeros(transforms, 1, units))
        self._draw_networks(
            self._curves()[0],
            transforms=transforms,
            hidden_layers=hidden_layers,
            width=width,
            mixing="reverse",
        )

    def _curves(self) -> list[SigmoidCurve]:
        inner = [matrix.unbind() for matrix in self.inner]
        outer = [matrix.unbind() for matrix in (*self.outer, self.last)]
        return [
            SigmoidCurve([u[index] for u in inner], [w[index] for w in outer])
            for index in range(len(self.last))
        ]
