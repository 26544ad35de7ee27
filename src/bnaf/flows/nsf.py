"""Neural spline flows, autoregressive and by couplings."""

from bnaf._checks import between, whole
from bnaf.flows.autoregressive import OneCurveFlow
from bnaf.flows.couplings import CouplingFlow
from bnaf.laws.spline import SplineCurve


class NSF(OneCurveFlow):
    """Autoregressive neural spline flow (Durkan et al., 2019).

    A stack of linear maps, each followed by a transform that bends every feature by a spline of
    rational quadratic functions, as a masked network says that reads the features before it. A
    context is read by the networks and scales and shifts every feature before all else, so that
    it is felt where splines have ended too. Arguments that are not listed are those of
    :class:`bnaf.flows.autoregressive.AutoregressiveFlow`.

    Args:
        bins: Pieces of each spline.
        bound: Where splines end and the identity begins, on either side of zero.

    Example:
        >>> NSF(features=3, transforms=4)().event_shape
        torch.Size([3])
    """

    learning_rate = 0.005
    sizes = (("transforms", 2, 4), ("bins", 4, 8))

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
        self.curve = SplineCurve(whole("bins", bins, least=2), between("bound", bound))
        self._draw_networks(
            self.curve,
            transforms=transforms,
            hidden_layers=hidden_layers,
            width=width,
            mixing="linear",
            scaled=True,
        )


class CouplingNSF(CouplingFlow):
    """Neural spline flow by couplings (Durkan et al., 2019), both sides of which are closed-form.

    A stack of linear maps, each followed by a coupling: a network reads the first half of the
    features and says by which splines the others are bent. A context is read by the networks and
    scales and shifts every feature before all else, so that every feature feels it. Arguments
    that are not listed are those of :class:`bnaf.flows.couplings.CouplingFlow`.

    Args:
        bins: Pieces of each spline.
        bound: Where splines end and the identity begins, on either side of zero.

    Example:
        >>> CouplingNSF(features=3, transforms=4)().event_shape
        torch.Size([3])
    """

    learning_rate = 0.005
    sizes = (("transforms", 2, 6), ("bins", 4, 8))

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
        super().__init__(
            features,
            context_features,
            SplineCurve(whole("bins", bins, least=2), between("bound", bound)),
            transforms=transforms,
            hidden_layers=hidden_layers,
            width=width,
            mixing="linear",
            direction=direction,
        )
