"""Neural spline flows, autoregressive and by couplings."""

from typing import Any

from jaxtyping import Float
from torch import Tensor

from bnaf._checks import between, whole
from bnaf.flows.networks import MaskedNetworks, width_for
from bnaf.flows.parts import (
    ContextScale,
    Couplings,
    Mixings,
    after_context,
    interleave,
    masked_transforms,
)
from bnaf.flows.transformed import TransformFlow
from bnaf.laws.spline import SplineCurve
from bnaf.laws.transforms import RowTransform


class NSF(TransformFlow):
    """Autoregressive neural spline flow (Durkan et al., 2019).

    A stack of linear maps, each followed by a transform that bends every feature by a spline of
    rational quadratic functions, as a masked network says that reads the features before it. A
    context is read by the networks and scales and shifts every feature before all else, so that
    it is felt where splines have ended too.

    Args:
        features: Number of columns of a row.
        context_features: Number of columns of a context; 0 for none.
        transforms: Number of transforms.
        bins: Pieces of each spline.
        bound: Where splines end and the identity begins, on either side of zero.
        hidden_layers: Hidden layers of each masked network.
        width: Units of each of them.
        direction: Which side is closed-form: "density" (log_prob) or "sampling" (rsample).

    Example:
        >>> NSF(features=3, transforms=4)().event_shape
        torch.Size([3])
    """

    learning_rate = 0.005
    order_buffers = ("mixings.orders",)

    def __init__(
        self,
        features: int,
        context_features: int = 0,
        *,
        transforms: int = 4,
        bins: int = 8,
        bound: float = 4.0,
        hidden_layers: int = 2,
        width: int = 128,
        direction: str = "density",
    ) -> None:
        super().__init__(features, context_features, direction)
        transforms = whole("transforms", transforms)
        self.curve = SplineCurve(whole("bins", bins, least=2), between("bound", bound))
        self.mixings = Mixings(features, transforms, "linear")
        self.predictors = MaskedNetworks(
            features,
            context_features,
            self.curve.start(),
            transforms=transforms,
            hidden_layers=whole("hidden_layers", hidden_layers),
            width=whole("width", width),
        )
        self.scale: ContextScale | None = None
        if context_features:
            self.scale = ContextScale(features, context_features)

    @classmethod
    def sizes_for(cls, features: int, *, small: bool) -> dict[str, Any]:
        """Return the transforms, the width and the pieces that suit a table."""
        sizes = {"transforms": 2, "bins": 4} if small else {"transforms": 4, "bins": 8}
        return sizes | {"width": width_for(features, small=small)}

    def make_transform(
        self, context: Float[Tensor, "*batch context_features"] | None
    ) -> RowTransform:
        curves = [self.curve] * len(self.mixings.orders)
        parts = masked_transforms(self.predictors, curves, context)
        steps = interleave(self.mixings(self.predictors.biases[-1]), parts)
        return after_context(self.scale, context, steps)


class CouplingNSF(TransformFlow):
    """Neural spline flow by couplings (Durkan et al., 2019), both sides of which are closed-form.

    A stack of linear maps, each followed by a coupling: a network reads the first half of the
    features and says by which splines the others are bent. A context is read by the networks and
    scales and shifts every feature before all else, so that every feature feels it.

    Args:
        features: Number of columns of a row.
        context_features: Number of columns of a context; 0 for none.
        transforms: Number of couplings.
        bins: Pieces of each spline.
        bound: Where splines end and the identity begins, on either side of zero.
        hidden_layers: Hidden layers of each network.
        width: Units of each of them.
        direction: Which side is computed forwards: "density" (log_prob) or "sampling" (rsample).

    Example:
        >>> CouplingNSF(features=3, transforms=4)().event_shape
        torch.Size([3])
    """

    learning_rate = 0.005
    order_buffers = ("couplings.mixings.orders",)

    def __init__(
        self,
        features: int,
        context_features: int = 0,
        *,
        transforms: int = 6,
        bins: int = 8,
        bound: float = 4.0,
        hidden_layers: int = 2,
        width: int = 128,
        direction: str = "density",
    ) -> None:
        super().__init__(features, context_features, direction)
        curve = SplineCurve(whole("bins", bins, least=2), between("bound", bound))
        self.couplings = Couplings(
            features,
            context_features,
            curve,
            transforms=whole("transforms", transforms),
            hidden_layers=whole("hidden_layers", hidden_layers),
            width=whole("width", width),
            mixing="linear",
        )

    @classmethod
    def sizes_for(cls, features: int, *, small: bool) -> dict[str, Any]:
        """Return the transforms, the width and the pieces that suit a table."""
        sizes = {"transforms": 2, "bins": 4} if small else {"transforms": 6, "bins": 8}
        return sizes | {"width": width_for(features, small=small)}

    def make_transform(
        self, context: Float[Tensor, "*batch context_features"] | None
    ) -> RowTransform:
        transform: RowTransform = self.couplings(context)
        return transform
