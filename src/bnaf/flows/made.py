"""The masked autoencoder for distributions, with one normal law a feature or a mixture."""

from typing import Any

from jaxtyping import Float
from torch import Tensor

from bnaf._checks import whole
from bnaf.flows.networks import MaskedNetworks, width_for
from bnaf.flows.parts import masked_transforms
from bnaf.flows.transformed import TransformFlow
from bnaf.laws.curves import AffineCurve
from bnaf.laws.mixture import LOG_DEVIATION_LIMIT, MixtureCurve
from bnaf.laws.transforms import RowTransform


class MADE(TransformFlow):
    """Masked autoencoder (Germain et al., 2015): each feature is normal, given those before it.

    Its mean and deviation are said by one masked network for all features at once.

    Args:
        features: Number of columns of a row.
        context_features: Number of columns of a context; 0 for none.
        hidden_layers: Hidden layers of the network.
        width: Units of each of them.
        direction: Which side is closed-form: "density" (log_prob) or "sampling" (rsample).

    Example:
        >>> MADE(features=3)().event_shape
        torch.Size([3])
    """

    learning_rate = 0.005

    def __init__(
        self,
        features: int,
        context_features: int = 0,
        *,
        hidden_layers: int = 2,
        width: int = 256,
        direction: str = "density",
    ) -> None:
        super().__init__(features, context_features, direction)
        self.curve = AffineCurve(LOG_DEVIATION_LIMIT)
        self.predictors = MaskedNetworks(
            features,
            context_features,
            self.curve.start(),
            transforms=1,
            hidden_layers=whole("hidden_layers", hidden_layers),
            width=whole("width", width),
        )

    @classmethod
    def sizes_for(cls, features: int, *, small: bool) -> dict[str, Any]:
        """Return the width that suits a table."""
        return {"width": 2 * width_for(features, small=small)}

    def make_transform(
        self, context: Float[Tensor, "*batch context_features"] | None
    ) -> RowTransform:
        return masked_transforms(self.predictors, [self.curve], context)[0]


class MADEMoG(TransformFlow):
    """Masked autoencoder in which each feature follows a mixture of normal laws.

    It is a flow by the distribution functions of its features, each given those before it; see
    :class:`bnaf.laws.mixture.MixtureCurve`.

    Args:
        features: Number of columns of a row.
        context_features: Number of columns of a context; 0 for none.
        components: Normal laws in each mixture.
        hidden_layers: Hidden layers of the network.
        width: Units of each of them.
        direction: Which side is closed-form: "density" (log_prob) or "sampling" (rsample).

    Example:
        >>> MADEMoG(features=3)().event_shape
        torch.Size([3])
    """

    learning_rate = 0.005

    def __init__(
        self,
        features: int,
        context_features: int = 0,
        *,
        components: int = 10,
        hidden_layers: int = 2,
        width: int = 256,
        direction: str = "density",
    ) -> None:
        super().__init__(features, context_features, direction)
        self.curve = MixtureCurve(whole("components", components))
        self.predictors = MaskedNetworks(
            features,
            context_features,
            self.curve.start(),
            transforms=1,
            hidden_layers=whole("hidden_layers", hidden_layers),
            width=whole("width", width),
        )

    @classmethod
    def sizes_for(cls, features: int, *, small: bool) -> dict[str, Any]:
        """Return the width and the components that suit a table."""
        width = 2 * width_for(features, small=small)
        return {"width": width, "components": 3 if small else 10}

    def make_transform(
        self, context: Float[Tensor, "*batch context_features"] | None
    ) -> RowTransform:
        return masked_transforms(self.predictors, [self.curve], context)[0]
