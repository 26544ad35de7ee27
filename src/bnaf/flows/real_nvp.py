"""Real NVP for vectors."""

from bnaf.flows.couplings import CouplingFlow
from bnaf.laws.curves import AffineCurve


class RealNVP(CouplingFlow):
    """Real NVP (Dinh et al., 2017) for rows without spatial structure.

    A stack of affine couplings: a network reads one half of the features and says how the other
    is scaled and shifted; the features are reversed in between. Both sides are closed-form. It
    departs from the paper in having no batch normalisation, under which the density of a row
    would depend on others. A context, which the paper does not have, is read by the networks and
    scales and shifts every feature before all else, so that every feature feels it. Its arguments
    are among those of :class:`bnaf.flows.couplings.CouplingFlow`.

    Example:
        >>> RealNVP(features=3, transforms=4)().event_shape
        torch.Size([3])
    """

    learning_rate = 0.005  # it diverged at 0.01 on POWER
    sizes = (("transforms", 4, 10),)

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
        super().__init__(
            features,
            context_features,
            AffineCurve(),
            transforms=transforms,
            hidden_layers=hidden_layers,
            width=width,
            mixing="reverse",
            direction=direction,
        )
