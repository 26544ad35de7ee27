"""What flows have in common that bend every feature as the features before it say."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from bnaf._checks import one_of, whole
from bnaf.flows.networks import MaskedNetworks, NetworkFlow
from bnaf.flows.parts import (
    MIXINGS,
    ContextScale,
    Mixings,
    after_context,
    interleave,
    masked_transforms,
)
from bnaf.laws.curves import Curve
from bnaf.laws.transforms import RowTransform


class AutoregressiveFlow(NetworkFlow):
    """Stack of transforms that bend every feature as a masked network says.

    The network reads the features before it and the context. A flow that derives from this says
    what a feature is bent by, and draws the networks that say its numbers.

    Args:
        features: Number of columns of a row.
        context_features: Number of columns of a context; 0 for none.
        transforms: Number of transforms.
        hidden_layers: Hidden layers of each masked network.
        width: Units of each of them.
        mixing: What happens to the features before each transform: "linear" or "reverse".
        direction: Which side is closed-form: "density" (log_prob) or "sampling" (rsample).
    """

    order_buffers: ClassVar[tuple[str, ...]] = ("mixings.orders",)

    def _draw_networks(
        self,
        curve: Curve,
        *,
        transforms: int,
        hidden_layers: int,
        width: int,
        mixing: str | None,
        scaled: bool = False,
    ) -> None:
        """Draw what mixes the features, and the networks, which start with this curve.

        Args:
            curve: What every feature starts with in every transform.
            transforms: Number of transforms.
            hidden_layers: Hidden layers of each network.
            width: Units of each of them.
            mixing: "linear", "reverse", or ``None`` for features as they are.
            scaled: Whether a context scales and shifts every feature before all else.
        """
        transforms = whole("transforms", transforms)
        self.mixings: Mixings | None = None
        if mixing is not None:
            one_of("mixing", mixing, MIXINGS)
            self.mixings = Mixings(self.features, transforms, mixing)
        self.predictors = MaskedNetworks(
            self.features,
            self.context_features,
            curve.start(),
            transforms=transforms,
            hidden_layers=whole("hidden_layers", hidden_layers),
            width=whole("width", width),
        )
        self.scale: ContextScale | None = None
        if scaled and self.context_features:
            self.scale = ContextScale(self.features, self.context_features)

    @abstractmethod
    def _curves(self) -> Sequence[Curve]:
        """Return the curve of every transform."""

    def make_transform(
        self, context: Float[Tensor, "*batch context_features"] | None
    ) -> RowTransform:
        steps = interleave(masked_transforms(self.predictors, self._curves(), context))
        if self.mixings is not None:
            steps = interleave(self.mixings(self.predictors.biases[-1]), steps.parts)
        return after_context(self.scale, context, steps)


class OneCurveFlow(AutoregressiveFlow):
    """Autoregressive flow with one ``curve`` for all transforms, which has no weights itself.

    Its arguments are those of :class:`AutoregressiveFlow`.
    """

    curve: Curve

    def _curves(self) -> Sequence[Curve]:
        return [self.curve] * len(self.predictors.biases[-1])
