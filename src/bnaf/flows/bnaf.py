"""The block neural autoregressive flow."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from bnaf._checks import between, one_of, whole, widths_of
from bnaf._random import draws_wanted
from bnaf._torch import traced
from bnaf.block.activations import activation_named
from bnaf.block.context import Conditioner, condition_together
from bnaf.block.layers import BlockNetworks
from bnaf.block.published import read_published
from bnaf.block.stack import BlockStack
from bnaf.block.weights import Contexts, Networks, Numbers
from bnaf.flows._sizes import sizes_for
from bnaf.flows.flow import Pull
from bnaf.flows.transformed import TransformFlow
from bnaf.laws.transforms import RowTransform

GATE_LIMIT = math.log(99)  # keeps both shares of a gated residual at or above 0.01
START_GAIN = -1.0  # log-gains of a flow that starts smoothly
RESIDUALS = ("gated", "normal", None)
PERMUTATIONS = ("reverse", "random", None)
INITS = ("published", "normal", "identity")
CONTEXTS = ("biases", "amortised")
CONTEXT_RATE, PIECES_RATE = 0.1, 0.2  # of the rate of the block networks; pieces are small numbers
WEIGHT_PRECISION = 2.0  # of the prior of a raw weight, per feature


class BNAF(TransformFlow):
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
        context: What a context predicts of every layer: its "biases", or, "amortised" as in the
            paper, a bias and two scales.
        context_layers: Hidden layers of the context network; 0 makes it one linear map.
        context_width: Units of each of them.
        context_rank: Numbers that they are boiled down to before biases are predicted.
        context_bins: Pieces that each column of the context is cut into; 0 for none.
        context_dropout: Share of the context network's units that each step leaves out.
        init: Raw weights "published" as in the authors' code, "normal" as in the paper's
            appendix, or such that every transform starts near the "identity".
        base: What the noise follows: the "normal" law or, for heavy tails, Student's t
            ("student"), whose degrees of freedom are learned, or a normal law with a mean and a
            deviation ("scaled"), which :meth:`bnaf.TransformFlow.scale_base` sets.

    Example:
        >>> flow = BNAF(features=3)
        >>> flow().log_prob(torch.zeros(7, 3)).shape
        torch.Size([7])
    """

    learning_rate = 0.05  # its weights live in log space and want large steps
    takes_kinds = True  # as the numbers of a mixed flow
    order_buffers = ("orders",)
    snapshots = True

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
        context: str = "biases",
        context_layers: int = 1,
        context_width: int = 64,
        context_rank: int = 16,
        context_bins: int = 0,
        context_dropout: float = 0.0,
        init: str = "published",
        base: str = "normal",
    ) -> None:
        super().__init__(features, context_features, direction, base)
        transforms = whole("transforms", transforms)
        widths = widths_of(width, whole("hidden_layers", hidden_layers, least=0))
        one_of("residual", residual, RESIDUALS)
        one_of("permutation", permutation, PERMUTATIONS)
        one_of("init", init, INITS)
        one_of("context", context, CONTEXTS)
        context_layers = whole("context_layers", context_layers, least=0)
        context_width = whole("context_width", context_width)
        context_rank = whole("context_rank", context_rank)
        context_bins = whole("context_bins", context_bins, least=0)
        if context_dropout:
            between("context_dropout", context_dropout, 0, 1)
        self.residuals = (residual,) * (transforms - 1) + (residual if last_residual else None,)
        self.permutation, self.bounded_gate = permutation, bounded_gate
        self.activation = activation_named(activation, leak)
        self.networks = BlockNetworks(
            features, widths, transforms=transforms, bias=context_features == 0
        )
        self.networks.draw(init)
        self.gates: nn.Parameter | None = None
        gate_count = self.residuals.count("gated")
        if gate_count:
            self.gates = nn.Parameter(
                torch.zeros(gate_count) if bounded_gate else torch.randn(gate_count)
            )
        self.orders: Tensor
        seed = whole("permutation_seed", permutation_seed, least=0)
        self.register_buffer("orders", _orders(features, transforms, permutation, seed))
        self.conditioner: Conditioner | None = None
        if context_features:
            self.conditioner = Conditioner(
                context_features,
                features,
                [1, *widths, 1],
                transforms=transforms,
                hidden_layers=context_layers,
                width=context_width,
                rank=context_rank if context == "biases" else None,
                scales=context == "amortised",
                bins=context_bins,
                dropout=context_dropout,
            )
            drawn = init != "identity" and draws_wanted()
            if context == "amortised" and direction == "sampling" and drawn:
                # published gains below one, layer by layer, would start as a law of no width
                self.conditioner.undo_gains(self.networks.log_gain)

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
            context="amortised" if context_features else "biases",
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

    @classmethod
    def sizes_for(
        cls,
        features: int,
        *,
        small: bool,
        many: bool = False,
        given: int = 0,
    ) -> dict[str, Any]:
        """Return transforms, hidden layers and width that suit a table, and its context network.

        Weights grow with the square of features times width, so wide tables get few units per
        feature, and the widest fewer transforms and hidden layers, down to a linear map. Small
        tables get a small flow, which has less to memorise with, and tables of many rows more
        transforms. Given columns are cut into pieces.

        Args:
            features: Number of columns, those given left out.
            small: Whether the table is small.
            many: Whether its rows are so many that a larger flow pays.
            given: Number of columns that are given.

        Example:
            >>> BNAF.sizes_for(6, small=False), BNAF.sizes_for(43, small=False)["width"]
            ({'transforms': 3, 'hidden_layers': 2, 'width': 40}, 6)
            >>> BNAF.sizes_for(6, small=False, many=True)["transforms"]
            5
            >>> BNAF.sizes_for(8000, small=True)
            {'transforms': 1, 'hidden_layers': 0, 'width': 1}
        """
        return sizes_for(features, small=small, many=many, given=given > 0)

    @property
    def takes_cells(self) -> bool:
        """Whether rows may be cells: of one column, with a normal base that was not scaled."""
        alone = self.features == 1 and self.direction == "density"
        return alone and self.settings.get("base", "normal") == "normal"

    def see_contexts(self, context: Tensor) -> None:
        """Cut the columns of the context into pieces of as many rows each."""
        if self.conditioner is not None:
            self.conditioner.see(context)

    def rates(self) -> dict[str, tuple[float, list[nn.Parameter]]]:
        """Return the context network's share of the rate: its weights are ordinary ones."""
        if self.conditioner is None:
            return {}
        parameters = list(self.conditioner.parameters())
        if self.conditioner.edges is None:
            return {"context": (CONTEXT_RATE, parameters)}
        return {"context in pieces": (PIECES_RATE, parameters)}

    @classmethod
    def settings_of(cls, recorded: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings of a flow in a file; older ones know amortised contexts alone."""
        return {"context": "amortised", **recorded}

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
            if self.conditioner.scales:  # that made up for gains of before
                self.conditioner.undo_gains(torch.zeros_like(self.networks.log_gain))

    def pulls(self) -> dict[nn.Parameter, Pull]:
        """Return the prior of the raw weights: at zero, columns do not depend on each other."""
        weight = self.networks.weight
        return {weight: Pull(torch.zeros_like(weight), WEIGHT_PRECISION * self.features)}

    def make_transform(
        self, context: Float[Tensor, "*batch context_features"] | None
    ) -> BlockStack:
        contexts = None if self.conditioner is None else self.conditioner(context)
        return self._stack(context, contexts)

    @classmethod
    def make_transforms(
        cls,
        flows: "Sequence[TransformFlow]",
        context: Float[Tensor, "*batch context_features"] | None,
    ) -> list[RowTransform]:
        """Return the transforms of several flows, their context networks computed at once.

        What a step of training leaves out of one it then leaves out of all. Off the CPU, where
        comparing pieces would wait for the device, and in compiled code they are computed apart.
        """
        members = [flow for flow in flows if isinstance(flow, BNAF)]
        conditioners = [flow.conditioner for flow in members if flow.conditioner is not None]
        if context is None or traced() or context.device.type != "cpu":
            return super().make_transforms(flows, context)
        if not all(map(conditioners[0].agrees_with, conditioners[1:])):
            return super().make_transforms(flows, context)
        said = condition_together(conditioners, context)
        return [flow._stack(context, each) for flow, each in zip(members, said, strict=True)]

    def _stack(self, context: Tensor | None, contexts: Contexts | None) -> BlockStack:
        networks = Networks(
            tuple(self.networks.blocks),
            self.activation,
            self.residuals,
            None if self.permutation is None or self.features == 1 else self.orders,
            Numbers(self.networks.normalise(), self._bounded_gates(), contexts),
        )
        return BlockStack(networks, () if context is None else context.shape[:-1])

    def _bounded_gates(self) -> Tensor | None:
        if self.gates is None:
            return None
        if not self.bounded_gate:
            return self.gates.clone()  # a law is a snapshot
        return GATE_LIMIT * (self.gates / GATE_LIMIT).tanh()


def _orders(features: int, transforms: int, permutation: str | None, seed: int) -> Tensor:
    """Return the order of the features before each transform but the first."""
    if permutation != "random":
        order = torch.arange(features)
        return (order.flip(0) if permutation == "reverse" else order).repeat(transforms - 1, 1)
    generator = torch.Generator().manual_seed(seed)
    drawn = [torch.randperm(features, generator=generator) for _ in range(transforms - 1)]
    return torch.stack(drawn) if drawn else torch.empty(0, features, dtype=torch.long)
