"""The masked autoregressive flow, on a normal base or on a masked mixture."""

from jaxtyping import Float
from torch import Tensor

from bnaf.flows.autoregressive import OneCurveFlow
from bnaf.flows.made import MADEMoG
from bnaf.flows.networks import NetworkFlow
from bnaf.laws.curves import AffineCurve
from bnaf.laws.transforms import ComposeTransform, RowTransform


class MAF(OneCurveFlow):
    """Masked autoregressive flow (Papamakarios et al., 2017).

    A stack of transforms, each of which scales and shifts every feature as a masked network says
    that reads those before it. It departs from the paper in this. Between transforms the features
    are mixed by learned linear maps, as in later work, where the paper reverses their order;
    ``mixing="reverse"`` does so. There is no batch normalisation, under which the density of a
    row would depend on others. In the sampling direction this is the inverse autoregressive flow.

    Its arguments are those of :class:`bnaf.flows.autoregressive.AutoregressiveFlow`.

    Example:
        >>> MAF(features=3, transforms=5)().event_shape
        torch.Size([3])
    """

    sizes = (("transforms", 2, 5),)

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
        self.curve = AffineCurve()
        self._draw_networks(
            self.curve,
            transforms=transforms,
            hidden_layers=hidden_layers,
            width=width,
            mixing=mixing,
        )


class MAFMoG(NetworkFlow):
    """Masked autoregressive flow on the base of a masked mixture (Papamakarios et al., 2017).

    :class:`MAF` followed by a :class:`bnaf.flows.made.MADEMoG`; both depart from the paper as
    they do alone, and its arguments are those of both.

    Example:
        >>> MAFMoG(features=3, transforms=5)().event_shape
        torch.Size([3])
    """

    order_buffers = ("flow.mixings.orders",)
    sizes = (("transforms", 2, 5), ("components", 3, 10))

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

    def make_transform(
        self, context: Float[Tensor, "*batch context_features"] | None
    ) -> RowTransform:
        parts = [self.flow.make_transform(context), self.mixture.make_transform(context)]
        return ComposeTransform(parts)
