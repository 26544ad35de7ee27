"""The masked autoencoder for distributions, with one normal law a feature or a mixture."""

from bnaf._checks import whole
from bnaf.flows.autoregressive import OneCurveFlow
from bnaf.laws.curves import AffineCurve
from bnaf.laws.mixture import LOG_DEVIATION_LIMIT, MixtureCurve


class MADE(OneCurveFlow):
    """Masked autoencoder (Germain et al., 2015): each feature is normal, given those before it.

    Its mean and deviation are said by one masked network for all features at once. Its arguments
    are among those of :class:`bnaf.flows.autoregressive.AutoregressiveFlow`.

    Example:
        >>> MADE(features=3)().event_shape
        torch.Size([3])
    """

    order_buffers = ()
    width_share = 2

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
        self._draw_networks(
            self.curve, transforms=1, hidden_layers=hidden_layers, width=width, mixing=None
        )


class MADEMoG(OneCurveFlow):
    """Masked autoencoder in which each feature follows a mixture of normal laws.

    It is a flow by the distribution functions of its features, each given those before it; see
    :class:`bnaf.laws.mixture.MixtureCurve`. Arguments that are not listed are those of
    :class:`bnaf.flows.autoregressive.AutoregressiveFlow`.

    Args:
        components: Normal laws in each mixture.

    Example:
        >>> MADEMoG(features=3)().event_shape
        torch.Size([3])
    """

    order_buffers = ()
    sizes = (("components", 3, 10),)
    width_share = 2

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
        self._draw_networks(
            self.curve, transforms=1, hidden_layers=hidden_layers, width=width, mixing=None
        )
