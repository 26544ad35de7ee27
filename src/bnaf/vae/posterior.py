"""Laws of latents given what an encoder says: a Gaussian, and a flow that goes on from it."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from bnaf._checks import between, check_rows, whole
from bnaf.errors import SettingsError
from bnaf.flows.flow import Flow
from bnaf.flows.transformed import check_normal_base
from bnaf.laws.affine import ScaleTransform
from bnaf.laws.bases import StandardNormal
from bnaf.laws.distribution import FlowDistribution
from bnaf.laws.transforms import ComposeTransform, RowTransform

LINEAR = -15.0  # below it log softplus(x) is x, to the last bit of float32


class Posterior(nn.Module):
    r"""Module from features of an encoder to a law of latents.

    .. math::
        z = f(\mu(h) + \sigma(h) \odot \epsilon \,; h), \qquad
        \log q(z \mid h) = \log \mathcal N(\epsilon) - \sum_i \log \sigma_i - \log |\det J_f|

    Mean and variance are linear in the features, the variance through a softplus (van den Berg et
    al., 2018), computed in log space so that it cannot underflow. The flow takes the same features
    as its context. Without a flow this is the diagonal Gaussian.

    Args:
        features: Number of latents.
        context_features: Number of features of the encoder.
        flow: Flow over so many features with so many columns of context, in the sampling
            direction, where draws are closed-form.
        variance_bounds: Least and largest variance of the Gaussian; ``None`` for none.

    Raises:
        SettingsError: If the flow does not fit, or the bounds are not positive and in order.

    Example:
        >>> from bnaf import BNAF
        >>> flow = BNAF(2, 5, transforms=1, width=4, direction="sampling")
        >>> z, log_prob = Posterior(2, 5, flow=flow)(torch.zeros(7, 5)).rsample_and_log_prob()
        >>> z.shape, log_prob.shape
        (torch.Size([7, 2]), torch.Size([7]))
    """

    def __init__(
        self,
        features: int,
        context_features: int,
        *,
        flow: Flow | None = None,
        variance_bounds: Sequence[float] | None = None,
    ) -> None:
        super().__init__()
        self.features = whole("features", features)
        self.context_features = whole("context_features", context_features)
        _check_flow(flow, features, context_features)
        self.variance_bounds = _checked_bounds(variance_bounds)
        self.mean = nn.Linear(context_features, features)
        self.variance = nn.Linear(context_features, features)
        self.flow = flow

    def forward(self, context: Tensor) -> FlowDistribution:
        """Return the law of latents given features.

        Args:
            context: What the encoder says, a row each.

        Raises:
            ShapeError: If the number of features is wrong.
            DtypeError: If they are not of the posterior's floating-point type.
        """
        like = self.mean.weight
        check_rows(context, self.context_features, like, "context")
        parts: list[RowTransform] = [ScaleTransform(self._log_scale(context), self.mean(context))]
        if self.flow is not None:
            parts.append(self.flow(context).transform.inv)
        transform = ComposeTransform(parts)
        base = StandardNormal(self.features, like)
        return FlowDistribution(transform.inv, base, context.shape[:-1])

    def _log_scale(self, context: Float[Tensor, "... _"]) -> Float[Tensor, "... _"]:
        log_variance = log_softplus(self.variance(context))
        if self.variance_bounds is not None:
            least, most = torch.tensor(self.variance_bounds, dtype=torch.float64).log().tolist()
            log_variance = log_variance.clamp(least, most)
        return 0.5 * log_variance

    def extra_repr(self) -> str:
        return (
            f"features={self.features}, context_features={self.context_features}, "
            f"variance_bounds={self.variance_bounds}"
        )


def log_softplus(x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Return log softplus(x), finite and with a slope for every x.

    Example:
        >>> log_softplus(torch.tensor([-1000.0])).item()
        -1000.0
    """
    far = x < LINEAR
    return torch.where(far, x, F.softplus(torch.where(far, 0.0, x)).log())


def _checked_bounds(bounds: Sequence[float] | None) -> tuple[float, float] | None:
    if bounds is None:
        return None
    least, most = bounds
    between("The least of variance_bounds", least)
    between("The largest of variance_bounds", most, least)
    return float(least), float(most)


def _check_flow(flow: Flow | None, features: int, context_features: int) -> None:
    if flow is None:
        return
    check_normal_base(flow, "A posterior")
    expected = {
        "features": features,
        "context_features": context_features,
        "direction": "sampling",
    }
    for name, value in expected.items():
        if getattr(flow, name) != value:
            raise SettingsError(
                f"flow must have {name}={value!r} to be a posterior here, got "
                f"{getattr(flow, name)!r}; build it so."
            )
