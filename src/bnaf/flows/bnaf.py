"""Flows: modules whose call returns a law."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from bnaf.block.activations import activation_named
from bnaf.block.stack import BlockAutoregressiveTransform
from bnaf._checks import check_rows, one_of, whole, widths_of
from bnaf.block.context import Conditioner
from bnaf.laws.distribution import FlowDistribution, StandardNormal
from bnaf.errors import ShapeError
from bnaf.block.layers import BlockNetworks
from bnaf.block.published import read_published
from bnaf.laws.transforms import InverseTransform, RowTransform

GATE_LIMIT = math.log(99)  # keeps both shares of a gated residual at or above 0.01
START_GAIN = -1.0  # log-gains of a flow that starts smoothly
RESIDUALS = ("gated", "normal", None)
DIRECTIONS = ("density", "sampling")
PERMUTATIONS = ("reverse", "random", None)
INITS = ("published", "normal")


class MissingMass(NamedTuple):
    """Share of the base that a flow cannot reach."""

    share: float
    standard_error: float


class Flow(nn.Module, ABC):
    """Module whose call returns a law: ``flow(context).log_prob(x)``.

    Args:
        features: Number of columns of a row.
        context_features: Number of columns of a context; 0 for a flow without one.
    """

    learning_rate: ClassVar[float] = 0.05
    """Rate that a fit takes where its settings leave it open. That of a block flow is many times
    that of other flows: its weights live in log space and want large steps."""

    def __init__(self, features: int, context_features: int = 0) -> None:
        super().__init__()
        self.features, self.context_features = features, context_features

    @property
    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """The arguments that make this flow anew."""

    @property
    @abstractmethod
    def parameter_count(self) -> int:
        """Number of weights that act, the context network included."""

    @abstractmethod
    def law(self, context: Float[Tensor, "*batch context_features"] | None) -> FlowDistribution:
        """Return the law for a context that was checked."""

    def forward(self, context: Tensor | None = None) -> FlowDistribution:
        """Return the law of rows given a context.

        Args:
            context: Conditioning rows; none for a flow without context. Its batch shape broadcasts
                against that of the rows.

        Raises:
            ShapeError: If a context is missing, not wanted, or of the wrong size.
            DtypeError: If it is not of the flow's floating-point type.
        """
        if self.context_features == 0:
            if context is not None:
                shape: Sequence[int] = getattr(context, "shape", ())
                raise ShapeError(
                    "This flow takes no context; call flow(), or build it with "
                    f"context_features={shape[-1] if len(shape) else 1}."
                )
            return self.law(None)
        if context is None:
            raise ShapeError(
                f"This flow expects a context of {self.context_features} features; "
                "call flow(context)."
            )
        check_rows(context, self.context_features, next(self.parameters()), "context")
        return self.law(context)

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in self.settings.items())

    def missing_mass(self, draws: int = 10_000, context: Tensor | None = None) -> MissingMass:
        """Return the share of the base that has no pre-image, and its standard error.

        A density that is the pull-back of its base through a map that is not onto integrates to
        one minus this share. It is exactly 0 where every transform is onto, and in the sampling
        direction.

        Args:
            draws: Number of draws of the base, per context.
            context: Conditioning rows, for a flow that takes them.
        """
        whole("draws", draws)
        with torch.no_grad():
            law = self(context)
            if law.onto:
                return MissingMass(0.0, 0.0)
            outside = law.draw_inside((draws,))[1]
            share = outside.to(torch.float64).mean().item()
            # one draw more on either side, so that an estimate of 0 or 1 is not taken for certain
            smooth = (share * outside.numel() + 1) / (outside.numel() + 2)
            return MissingMass(share, math.sqrt(smooth * (1 - smooth) / outside.numel()))


class BNAF(Flow):
    r"""Block neural autoregressive flow (De Cao, Aziz, Titov, 2019).

    A stack of increasing autoregressive networks with the features reordered in between. It
    departs from the paper where the paper's map is not onto: the activation is :math:`\tanh(h) +
    0.01 h`, every transform has a gated residual, the last included, and the gates start at 0 and
    keep both shares at or above 0.01. So the density integrates to one, every draw of the base
    has a pre-image, and tails stay sane. :meth:`paper` restores the published network.

    Args:
        features: Number of columns of a row.
        context_features: Number of columns of a context; 0 for none.
        transforms: Number of stacked networks.
        hidden_layers: Hidden layers of each network.
        width: Units per feature of each hidden layer; a sequence gives every layer its own.
        activation: "leaky_tanh", "tanh" (the paper's; not onto) or "leaky_relu".
        residual: "gated", "normal" (f(x) + x) or ``None``.
        direction: Which side is closed-form: "density" (log_prob) or "sampling" (rsample).
        permutation: Order of the features between transforms: "reverse", "random" or ``None``.
        permutation_seed: Seed of a random permutation.
        last_residual: Whether the last transform has the residual too.
        bounded_gate: Whether the gates are bounded, and start at 0 rather than at a normal draw.
        leak: Slope of the leaky activations where they saturate.
        context_layers: Hidden layers of the context network; 0 makes it one linear map.
        context_width: Units of each of them.
        init: Raw weights "published" as in the authors' code or "normal" as in the paper's
            appendix.

    Example:
        >>> flow = BNAF(features=3)
        >>> flow().log_prob(torch.zeros(7, 3)).shape
        torch.Size([7])
    """

    def __init__(
        self,
        features: int,
        context_features: int = 0,
        *,
        transforms: int = 3,
        hidden_layers: int = 2,
        width: int | Sequence[int] = 20,
        activation: str = "leaky_tanh",
        residual: str | None = "gated",
        direction: str = "density",
        permutation: str | None = "reverse",
        permutation_seed: int = 0,
        last_residual: bool = True,
        bounded_gate: bool = True,
        leak: float = 0.01,
        context_layers: int = 1,
        context_width: int = 64,
        init: str = "published",
    ) -> None:
        features = whole("features", features)
        context_features = whole("context_features", context_features, least=0)
        transforms = whole("transforms", transforms)
        hidden_layers = whole("hidden_layers", hidden_layers, least=0)
        super().__init__(features, context_features)
        widths = widths_of(width, hidden_layers)
        self._settings: dict[str, Any] = {
            "features": features,
            "context_features": context_features,
            "transforms": transforms,
            "hidden_layers": hidden_layers,
            "width": widths if isinstance(width, Sequence) else whole("width", width),
            "activation": activation,
            "residual": one_of("residual", residual, RESIDUALS),
            "direction": one_of("direction", direction, DIRECTIONS),
            "permutation": one_of("permutation", permutation, PERMUTATIONS),
            "permutation_seed": whole("permutation_seed", permutation_seed, least=0),
            "last_residual": last_residual,
            "bounded_gate": bounded_gate,
            "leak": leak,
            "context_layers": whole("context_layers", context_layers, least=0),
            "context_width": whole("context_width", context_width),
            "init": one_of("init", init, INITS),
        }
        self.activation = activation_named(activation, leak)
        self.networks = BlockNetworks(
            features, widths, transforms=transforms, bias=context_features == 0
        )
        self.networks.draw(init)
        self.gates: nn.Parameter | None = None
        gate_count = transforms - (not last_residual)
        if residual == "gated" and gate_count:
            self.gates = nn.Parameter(
                torch.zeros(gate_count) if bounded_gate else torch.randn(gate_count)
            )
        self.orders: Tensor
        self.register_buffer(
            "orders", _orders(features, transforms, permutation, permutation_seed)
        )
        self.conditioner: Conditioner | None = None
        if context_features:
            self.conditioner = Conditioner(
                context_features,
                features,
                [1, *widths, 1],
                transforms=transforms,
                hidden_layers=context_layers,
                width=context_width,
            )

    @classmethod
    def paper(
        cls,
        features: int,
        context_features: int = 0,
        *,
        transforms: int = 5,
        hidden_layers: int = 2,
        width: int | Sequence[int] = 40,
        residual: str | None = "gated",
        direction: str = "density",
        init: str = "published",
    ) -> "BNAF":
        """Return the published network: tanh, free gates, no residual on the last transform.

        Its last transform maps onto a bounded box. In the density direction the density therefore
        integrates to less than one and some draws of the base have no pre-image; ``missing_mass``
        says how many. In the sampling direction it is normalised, on a bounded range.

        Args:
            features: Number of columns of a row.
            context_features: Number of columns of a context; 0 for none.
            transforms: Number of stacked networks.
            hidden_layers: Hidden layers of each network.
            width: Units per feature of each hidden layer.
            residual: "gated", "normal" or ``None``; never on the last transform.
            direction: Which side is closed-form: "density" or "sampling".
            init: Raw weights "published" as in the authors' code, "normal" as in the paper's
                appendix.

        Example:
            >>> BNAF.paper(6, transforms=5, hidden_layers=2, width=40).parameter_count
            181264
        """
        return cls(
            features,
            context_features,
            transforms=transforms,
            hidden_layers=hidden_layers,
            width=width,
            activation="tanh",
            residual=residual,
            direction=direction,
            last_residual=False,
            bounded_gate=False,
            context_layers=0,
            init=init,
        )

    @classmethod
    def from_published(
        cls,
        state_dict: Mapping[str, Tensor],
        *,
        residual: str | None = "gated",
        direction: str = "density",
    ) -> "BNAF":
        """Return the flow whose weights were trained with the authors' code.

        Sizes, and the floating-point type, are read off the tensors. A plain residual leaves no
        trace in a state dict, so its kind must be told.

        Args:
            state_dict: Tensors by the names of the authors' code; masks are ignored.
            residual: "gated", "normal" or ``None``, as the network was trained.
            direction: "density" or "sampling", as it was trained.

        Raises:
            StorageError: If a tensor is missing, left over, or of the wrong shape.
        """
        published = read_published(state_dict, residual)
        flow = cls.paper(
            published.features,
            transforms=len(published.flows),
            hidden_layers=len(published.widths),
            width=published.widths,
            residual=residual,
            direction=direction,
        ).to(published.flows[0][0].weight.dtype)
        with torch.no_grad():
            for transform, layers in enumerate(published.flows):
                for layer, raw in zip(flow.networks.layers, layers, strict=True):
                    layer.load_raw_weight(transform, raw.weight)
                    layer.log_gain[transform] = raw.log_gain.flatten()
                    assert layer.bias is not None
                    layer.bias[transform] = raw.bias
            if flow.gates is not None:
                flow.gates.copy_(torch.stack(published.gates))
        return flow

    @torch.no_grad()
    def start_smoothly(self) -> None:
        """Draw biases of order one, and give every unit a slope below one.

        The density is then smooth, and the bends of the networks lie all over its bulk. A flow
        whose transforms do not all have gates is left as it is.
        """
        if self.gates is None or len(self.gates) < self.networks.transforms:
            return
        self.networks.log_gain.fill_(START_GAIN)
        if self.networks.bias is not None:
            self.networks.bias.normal_()
        if self.conditioner is not None:
            self.conditioner.spread_biases()

    @property
    def settings(self) -> dict[str, Any]:
        return dict(self._settings)

    @property
    def parameter_count(self) -> int:
        return sum(parameter.numel() for parameter in self.parameters())

    def law(self, context: Float[Tensor, "*batch context_features"] | None) -> FlowDistribution:
        settings = self._settings
        residuals = [settings["residual"]] * settings["transforms"]
        if not settings["last_residual"]:
            residuals[-1] = None
        batch = context.shape[:-1] if context is not None else torch.Size(())
        transform: RowTransform = BlockAutoregressiveTransform(
            self.networks.normalise(),
            self.networks.blocks,
            self.activation,
            residuals=residuals,
            gates=self._bounded_gates(),
            orders=None if settings["permutation"] is None else self.orders,
            contexts=None if self.conditioner is None else self.conditioner(context),
            context_batch=batch,
        )
        if settings["direction"] == "sampling":
            transform = InverseTransform(transform)
        base = StandardNormal(self.features, next(self.parameters()))
        return FlowDistribution(transform, base, batch)

    def _bounded_gates(self) -> Tensor | None:
        if self.gates is None or not self._settings["bounded_gate"]:
            return self.gates
        return GATE_LIMIT * (self.gates / GATE_LIMIT).tanh()


def _orders(features: int, transforms: int, permutation: str | None, seed: int) -> Tensor:
    """Return the order of the features before each transform but the first."""
    if permutation != "random":
        order = torch.arange(features)
        return (order.flip(0) if permutation == "reverse" else order).repeat(transforms - 1, 1)
    generator = torch.Generator().manual_seed(seed)
    drawn = [torch.randperm(features, generator=generator) for _ in range(transforms - 1)]
    return torch.stack(drawn) if drawn else torch.empty(0, features, dtype=torch.long)
