"""The neural autoregressive flow with deep dense sigmoidal functions."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from bnaf._checks import whole
from bnaf.flows.networks import MaskedNetworks, width_for
from bnaf.flows.parts import Mixings, interleave, masked_transforms
from bnaf.flows.transformed import TransformFlow
from bnaf.laws.sigmoids import SigmoidCurve
from bnaf.laws.transforms import RowTransform


class NAF(TransformFlow):
    """Neural autoregressive flow with deep dense sigmoidal functions (Huang et al., 2018).

    A stack of transforms with the features reversed in between. Each bends every feature by layers
    of sigmoids, whose numbers are said by a masked network that reads the features before it; see
    :class:`bnaf.laws.sigmoids.SigmoidCurve`. The paper has 5 or 10 transforms of 16 units. It
    departs from the authors' code in this: the masked network says the numbers of each
    feature directly, where theirs has one more linear map that all features share.

    Args:
        features: Number of columns of a row.
        context_features: Number of columns of a context; 0 for none.
        transforms: Number of transforms.
        sigmoid_layers: Layers of each function; one makes it the deep sigmoidal flow.
        units: Sigmoids in each of them.
        hidden_layers: Hidden layers of each masked network.
        width: Units of each of them.
        direction: Which side is closed-form: "density" (log_prob) or "sampling" (rsample).

    Example:
        >>> NAF(features=3, transforms=2)().event_shape
        torch.Size([3])
    """

    learning_rate = 0.005
    order_buffers = ("mixings.orders",)

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
        self.mixings = Mixings(features, transforms, "reverse")
        matrices = [torch.randn(transforms, units, units) for _ in range(2 * (layers - 1))]
        self.inner = nn.ParameterList(matrices[: layers - 1])
        self.outer = nn.ParameterList(matrices[layers - 1 :])
        self.last = nn.Parameter(torch.zeros(transforms, 1, units))
        self.predictors = MaskedNetworks(
            features,
            context_features,
            self._curves()[0].start(),
            transforms=transforms,
            hidden_layers=whole("hidden_layers", hidden_layers),
            width=whole("width", width),
        )

    @classmethod
    def sizes_for(cls, features: int, *, small: bool) -> dict[str, Any]:
        """Return the transforms and the width that suit a table."""
        return {"transforms": 2 if small else 5, "width": width_for(features, small=small)}

    def _curves(self) -> list[SigmoidCurve]:
        inner = [matrix.unbind() for matrix in self.inner]
        outer = [matrix.unbind() for matrix in (*self.outer, self.last)]
        return [
            SigmoidCurve([u[index] for u in inner], [w[index] for w in outer])
            for index in range(len(self.last))
        ]

    def make_transform(
        self, context: Float[Tensor, "*batch context_features"] | None
    ) -> RowTransform:
        parts = masked_transforms(self.predictors, self._curves(), context)
        return interleave(self.mixings(self.last), parts)
