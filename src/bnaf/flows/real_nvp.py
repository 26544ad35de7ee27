"""Real NVP for vectors."""

from typing import Any

from jaxtyping import Float
from torch import Tensor

from bnaf._checks import whole
from bnaf.flows.networks import width_for
from bnaf.flows.parts import Couplings
from bnaf.flows.transformed import TransformFlow
from bnaf.laws.curves import AffineCurve
from bnaf.laws.transforms import RowTransform


class RealNVP(TransformFlow):
    """Real NVP (Dinh et al., 2017) for rows without spatial structure.

    A stack of affine couplings: a network reads one half of the features and says how the other
    is scaled and shifted; the features are reversed in between. Both sides are closed-form. It
    departs from the paper in having no batch normalisation, under which the density of a row
    would depend on others. A context, which the paper does not have, is read by the networks and
    scales and shifts every feature before all else, so that every feature feels it.

    Args:
        features: Number of columns of a row.
        context_features: Number of columns of a context; 0 for none.
        transforms: Number of couplings.
        hidden_layers: Hidden layers of each network.
        width: Units of each of them.
        direction: Which side is computed forwards: "density" (log_prob) or "sampling" (rsample).

    Example:
        >>> RealNVP(features=3, transforms=4)().event_shape
        torch.Size([3])
    """

    learning_rate = 0.005
    order_buffers = ("couplings.mixings.orders",)

    def __init__(
        self,
        features: int,
        context_features: int = 0,
        *,
        transforms: int = 10,
        hidden_layers: int = 2,
        width: int = 128,
        direction: str = "density",
    ) -> None:
        super().__init__(features, context_features, direction)
        self.couplings = Couplings(
            features,
            context_features,
            AffineCurve(),
            transforms=whole("transforms", transforms),
            hidden_layers=whole("hidden_layers", hidden_layers),
            width=whole("width", width),
            mixing="reverse",
        )

    @classmethod
    def sizes_for(cls, features: int, *, small: bool) -> dict[str, Any]:
        """Return the transforms and the width that suit a table."""
        return {"transforms": 4 if small else 10, "width": width_for(features, small=small)}

    def make_transform(
        self, context: Float[Tensor, "*batch context_features"] | None
    ) -> RowTransform:
        transform: RowTransform = self.couplings(context)
        return transform
