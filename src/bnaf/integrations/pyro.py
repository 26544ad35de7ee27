"""Flows in Pyro: as laws of sample sites, as transform modules, and as a guide.

Pyro's transforms lead from the base to the data, ours from the data to the base. A
:class:`FlowTransform` is the way from the base, whichever direction of the flow is closed-form.
"""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import torch
from pyro.distributions import Normal, constraints
from pyro.distributions.conditional import ConditionalTransformModule
from pyro.distributions.torch_distribution import TorchDistribution, TorchDistributionMixin
from pyro.distributions.torch_transform import ComposeTransformModule, TransformModule
from pyro.distributions.transforms import AffineTransform
from pyro.infer.autoguide import AutoContinuous
from pyro.infer.autoguide.initialization import init_to_median
from pyro.nn.module import PyroParam
from torch import Tensor
from torch.distributions import Distribution, biject_to

from bnaf._checks import between
from bnaf.flows.bnaf import BNAF
from bnaf.flows.transformed import TransformFlow
from bnaf.laws.affine import ScaleTransform
from bnaf.laws.distribution import FlowDistribution
from bnaf.laws.transforms import ComposeTransform, RowTransform

QUANTILE_DRAWS = 10_000


class FlowLaw(FlowDistribution, TorchDistributionMixin):
    """The law of a flow as Pyro wants it at a sample site, in plates too.

    Args:
        law: What a flow returned.

    Example:
        >>> import pyro
        >>> flow = BNAF(2)
        >>> with pyro.plate("rows", 5):
        ...     x = pyro.sample("x", FlowLaw(flow()))
        >>> x.shape
        torch.Size([5, 2])
    """

    def __init__(self, law: FlowDistribution) -> None:
        law.expand(law.batch_shape, _instance=self)  # all that the law has, watched weights too


class _Pass(NamedTuple):
    """What passed through a transform last, kept so that its log-determinant is not made anew."""

    z: Tensor
    x: Tensor
    log_det: Tensor


class FlowTransform(TransformModule):
    """A flow as a transform of Pyro, from base noise to rows; its weights are parameters.

    Args:
        flow: The flow; ``direction="sampling"`` makes draws closed-form, as guides want them,
            ``direction="density"`` makes log-densities of data so.
        cache_size: 1 to keep the last draw with its noise, so that its density needs no inverse.
        context: Contexts of the flow, for one that takes some.

    Example:
        >>> from pyro.distributions import TransformedDistribution
        >>> base = Normal(torch.zeros(2), 1.0)
        >>> law = TransformedDistribution(base, [FlowTransform(BNAF(2))])
        >>> law.log_prob(torch.zeros(7, 2)).shape
        torch.Size([7])
    """

    domain = codomain = constraints.real_vector
    bijective = True
    sign = +1

    def __init__(
        self, flow: TransformFlow, *, cache_size: int = 1, context: Tensor | None = None
    ) -> None:
        super().__init__(cache_size=cache_size)
        self.flow, self.context = flow, context
        self._last: _Pass | None = None

    @property
    def batch_shape(self) -> torch.Size:
        """Batch shape of the contexts."""
        return torch.Size() if self.context is None else self.context.shape[:-1]

    def forward_shape(self, shape: torch.Size) -> torch.Size:
        batch = torch.broadcast_shapes(shape[:-1], self.batch_shape)
        return torch.Size((*batch, *shape[-1:]))

    inverse_shape = forward_shape

    def with_cache(self, cache_size: int = 1) -> "FlowTransform":
        """Return the transform with a cache of another size, of the same flow."""
        if cache_size == self._cache_size:
            return self
        return FlowTransform(self.flow, cache_size=cache_size, context=self.context)

    def _call(self, z: Tensor) -> Tensor:
        x, log_det = self._transform().inv.call_and_ladj(z)
        self._keep(_Pass(z, x, log_det))
        return x

    def _inverse(self, x: Tensor) -> Tensor:
        z, log_det = self._transform().call_and_ladj(x)
        self._keep(_Pass(z, x, -log_det))
        return z

    def _transform(self) -> RowTransform:
        """Return the transform of the flow as its weights are now."""
        transform: RowTransform = self.flow(self.context).transform
        return transform

    def _keep(self, passed: _Pass) -> None:
        self._last = passed if self._cache_size else None

    def log_abs_det_jacobian(self, z: Tensor, x: Tensor) -> Tensor:
        last = self._last
        if last is not None and last.z is z and last.x is x:
            return last.log_det
        if self.flow.direction == "density":  # the way that is closed-form
            return -self._transform().call_and_ladj(x)[1]
        return self._transform().inv.call_and_ladj(z)[1]

    def clear_cache(self) -> None:
        """Forget what passed last, as Pyro asks after every step."""
        self._last = None
        self._cached_x_y = None, None


class ConditionalFlowTransform(ConditionalTransformModule):
    """A flow with a context as a conditional transform of Pyro, from base noise to rows.

    Args:
        flow: The flow, which takes contexts.
        cache_size: As of :class:`FlowTransform`.

    Example:
        >>> transform = ConditionalFlowTransform(BNAF(2, 1))
        >>> transform.condition(torch.zeros(5, 1))(torch.zeros(5, 2)).shape
        torch.Size([5, 2])
    """

    def __init__(self, flow: TransformFlow, *, cache_size: int = 1) -> None:
        super().__init__()
        self.flow, self.cache_size = flow, cache_size

    def condition(self, context: Tensor) -> FlowTransform:
        """Return the transform given contexts."""
        return FlowTransform(self.flow, cache_size=self.cache_size, context=context)

    def clear_cache(self) -> None:
        """Do nothing: the transforms of contexts have caches of their own."""


class PathLaw(TorchDistribution):
    r"""Law of a guide whose draws know its weights, and whose log-density takes them as constants.

    Of the gradient of :math:`\log q_w(x_w)` in the weights w, the part that does not go through
    the draw x has a mean of zero, and is noise alone. Without it the gradient of an ELBO vanishes
    where the guide is right, in each draw and not just on average.

    Args:
        law: The law that draws.
        constant: The same law, made of weights without gradients.
    """

    arg_constraints: ClassVar[dict[str, Any]] = {}
    support = constraints.real_vector
    has_rsample = True

    def __init__(self, law: Distribution, constant: Distribution) -> None:
        super().__init__(law.batch_shape, law.event_shape, validate_args=False)
        self.law, self.constant = law, constant

    def rsample(self, sample_shape: Any = torch.Size()) -> Tensor:  # noqa: B008
        return self.law.rsample(sample_shape)

    def log_prob(self, value: Tensor) -> Tensor:
        return self.constant.log_prob(value)

    def expand(self, batch_shape: Any, _instance: Any = None) -> "PathLaw":
        return PathLaw(self.law.expand(batch_shape), self.constant.expand(batch_shape))


class AutoBNAF(AutoContinuous):
    r"""Guide over all latent variables of a model at once: a block neural autoregressive flow.

    A draw is :math:`\mu + \sigma \odot f(z)`, with z standard normal, f the flow, and
    :math:`\mu` and :math:`\sigma` learned. With :class:`pyro.infer.Trace_ELBO` its gradients are
    those of :class:`PathLaw`; objectives of importance weights want ``path_gradients=False``. Its
    weights live in log space and want a rate near 0.05, that falls towards the end.

    Args:
        model: A Pyro model whose latent variables are continuous.
        transforms: Number of stacked networks.
        hidden_layers: Hidden layers of each network.
        width: Units per feature of each hidden layer.
        init_scale: Where :math:`\sigma` starts.
        init_loc_fn: Where :math:`\mu` starts, by a function of Pyro's.
        path_gradients: Whether log-densities of draws take the weights as constants.

    Example:
        >>> import pyro
        >>> def model():
        ...     x = pyro.sample("x", Normal(0.0, 1.0))
        ...     pyro.sample("y", Normal(x**2, 0.5), obs=torch.tensor(1.0))
        >>> guide = AutoBNAF(model)
        >>> sorted(guide())
        ['x']
    """

    scale_constraint = constraints.softplus_positive

    def __init__(
        self,
        model: Callable[..., Any],
        *,
        transforms: int = 3,
        hidden_layers: int = 1,
        width: int | Sequence[int] = 20,
        init_scale: float = 0.1,
        init_loc_fn: Callable[..., Any] = init_to_median,
        path_gradients: bool = True,
    ) -> None:
        super().__init__(model, init_loc_fn=init_loc_fn)
        self._settings: dict[str, Any] = {
            "transforms": transforms,
            "hidden_layers": hidden_layers,
            "width": width,
        }
        self._init_scale = between("init_scale", init_scale)
        self.path_gradients = path_gradients

    def _setup_prototype(self, *args: Any, **kwargs: Any) -> None:
        super()._setup_prototype(*args, **kwargs)
        loc = self._init_loc()
        flow = BNAF(self.latent_dim, direction="sampling", **self._settings).to(loc)
        flow.start_smoothly()
        self.transform = FlowTransform(flow)
        self.loc = torch.nn.Parameter(loc)
        self.scale = PyroParam(torch.full_like(loc, self._init_scale), self.scale_constraint)

    def get_base_dist(self) -> Any:
        """Return the law of z."""
        return Normal(torch.zeros_like(self.loc), 1.0).to_event(1)

    def get_transform(self, *args: Any, **kwargs: Any) -> Any:
        """Return the way from z to a draw."""
        affine = AffineTransform(self.loc, self.scale, event_dim=1, cache_size=1)
        return ComposeTransformModule([self.transform, affine], cache_size=1)

    def get_posterior(self, *args: Any, **kwargs: Any) -> Any:
        """Return the law of all latent variables, unconstrained and in a row."""
        flow, loc, scale = self.transform.flow, self.loc, self.scale
        law = _shifted(flow(), loc, scale)
        if not self.path_gradients:
            return FlowLaw(law)
        return PathLaw(law, _shifted(flow.constant(), loc.detach(), scale.detach()))

    @torch.no_grad()
    def quantiles(self, quantiles: Any, *args: Any, **kwargs: Any) -> dict[str, Tensor]:
        """Return quantiles of each latent variable, of draws of the guide.

        Args:
            quantiles: Levels between 0 and 1.
            args: Arguments of the model.
            kwargs: Likewise.
        """
        drawn = self.get_posterior(*args, **kwargs).sample((QUANTILE_DRAWS,))
        levels = torch.as_tensor(quantiles, dtype=drawn.dtype, device=drawn.device)
        found: dict[str, list[Tensor]] = {}
        for latent in torch.quantile(drawn, levels.reshape(-1), 0):
            for site, value in self._unpack_latent(latent):
                constrained = biject_to(site["fn"].support)(value)
                found.setdefault(site["name"], []).append(constrained)
        return {name: torch.stack(values) for name, values in found.items()}

    def median(self, *args: Any, **kwargs: Any) -> dict[str, Tensor]:
        """Return the median of each latent variable, of draws of the guide."""
        medians = self.quantiles([0.5], *args, **kwargs)
        return {name: values[0] for name, values in medians.items()}


def _shifted(law: Any, loc: Tensor, scale: Tensor) -> FlowDistribution:
    """Return the law of loc + scale x."""
    standardise = ScaleTransform(-scale.log(), -loc / scale)
    return FlowDistribution(ComposeTransform([standardise, law.transform]), law.base)
