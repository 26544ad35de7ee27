"""The masked autoregressive flow, on a normal base or on a masked mixture."""

from typing import Any

from jaxtyping import Float
from torch import Tensor

from bnaf._checks import one_of, whole
from bnaf.flows.made import MADEMoG
from bnaf.flows.networks import MaskedNetworks, width_for
from bnaf.flows.parts import MIXINGS, Mixings, interleave, masked_transforms
from bnaf.flows.transformed import TransformFlow
from bnaf.laws.curves import AffineCurve
from bnaf.laws.transforms import ComposeTransform, RowTransform


class MAF(TransformFlow):
    """Masked autoregressive flow (Papamakarios et al., 2017).

    A stack of transforms, each of which scales and shifts every feature as a masked network says
    that reads those before it. It departs from the paper in this. Between transforms the features
    are mixed by learned linear maps, as in later work, where the paper reverses their order;
    ``mixing="reverse"`` does so. There is no batch normalisation, under which the density of a
    row would depend on others. In the sampling direction this is the inverse autoregressive flow.

    Args:
        features: Number of columns of a row.
        context_features: Number of columns of a context; 0 for none.
        transforms: Number of transforms.
        hidden_layers: Hidden layers of each masked network.
        width: Units of each of them.
        mixing: What happens to the features before each transform: "linear" or "reverse".
        direction: Which side is closed-form: "density" (log_prob) or "sampling" (rsample).

    Example:
        >>> MAF(features=3, transforms=5)().event_shape
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
        hidden_layers: int = 2,
        width: int = 128,
        mixing: str = "linear",
        direction: str = "density",
    ) -> None:
        super().__init__(features, context_features, direction)
        transforms = whole("transforms", transforms)
        self.curve = AffineCurve()
        self.mixings = Mixings(features, transforms, one_of("mixing", mixing, MIXINGS))
        self.predictors = MaskedNetworks(
            features,
            context_features,
            self.curve.start(),
            transforms=transforms,
            hidden_layers=whole("hidden_layers", hidden_layers),
            width=whole("width", width),
        )

    @classmethod
    def sizes_for(cls, features: int, *, small: bool) -> dict[str, Any]:
        """Return the transforms and the width that suit a table."""
        return {"transforms": 2 if small else 5, "width": width_for(features, small=small)}

    def make_transform(
        self, context: Float[Tensor, "*batch context_features"] | None
    ) -> RowTransform:
        curves = [self.curve] * len(self.mixings.orders)
        parts = masked_transforms(self.predictors, curves, context)
        return interleave(self.mixings(self.predictors.biases[-1]), parts)


class MAFMoG(TransformFlow):
    """Masked autoregressive flow on the base of a masked mixture (Papamakarios et al., 2017).

    :class:`MAF` followed by a :class:`bnaf.flows.made.MADEMoG`; both depart from the paper as
    they do alone.

    Args:
        features: Number of columns of a row.
        context_features: Number of columns of a context; 0 for none.
        transforms: Number of transforms before the mixture.
        components: Normal laws in each mixture.
        hidden_layers: Hidden layers of each masked network.
        width: Units of each of them.
        mixing: What happens to the features before each transform: "linear" or "reverse".
        direction: Which side is closed-form: "density" (log_prob) or "sampling" (rsample).

    Example:
        >>> MAFMoG(features=3, transforms=5)().event_shape
        torch.Size([3])
    """

    learning_rate = 0.005
    order_buffers = ("flow.mixings.orders",)

    def __init__(
        self,
        features: int,
        context_features: int = 0,
        *,
        transforms: int = 5,
        components: int = 10,
        hidden_layers: int = 2,
        width: int = 128,
        mixing: str = "linear",
        direction: str = "density",
    ) -> None:
        super().__init__(features, context_features, direction)
        self.flow = MAF(
            features,
            context_features,
            transforms=transforms,
            hidden_layers=hidden_layers,
            width=width,
            mixing=mixing,
        )
        self.mixture = MADEMoG(
            features,
            context_features,
            components=components,
            hidden_layers=hidden_layers,
            width=width,
        )

    @classmethod
    def sizes_for(cls, features: int, *, small: bool) -> dict[str, Any]:
        """Return the transforms, the width and the components that suit a table."""
        return {
            "transforms": 2 if small else 5,
            "components": 3 if small else 10,
            "width": width_for(features, small=small),
        }

    def make_transform(
        self, context: Float[Tensor, "*batch context_features"] | None
    ) -> RowTransform:
        parts = [self.flow.make_transform(context), self.mixture.make_transform(context)]
        return ComposeTransform(parts)
