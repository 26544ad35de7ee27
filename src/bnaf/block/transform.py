"""One block network as a transform between rows."""

import math
from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from bnaf._torch import transformed
from bnaf.block import engine
from bnaf.block.implicit import invert_with_gradient
from bnaf.block.weights import Networks
from bnaf.errors import InversionError
from bnaf.laws.transforms import Passage, Points, RowTransform


class NetworkTransform(RowTransform):
    """What one network and a stack of them have in common: rows of any batch, with contexts.

    Args:
        networks: What is computed.
        context_batch: Batch shape of the contexts in it.
    """

    def __init__(self, networks: Networks, context_batch: Sequence[int] = ()) -> None:
        super().__init__(networks.features, networks.like, context_batch)
        self.networks = networks.fold()

    @property
    def onto(self) -> bool:
        """Whether every row has a pre-image: with residuals, or an activation without bounds."""
        return self.networks.onto

    @abstractmethod
    def _invert_rows(
        self, networks: Networks, y: Tensor, *, ladj: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return pre-images with gradients, log |det dy/dx| and which rows have one."""

    def _map(self, x: Points, *, ladj: bool) -> Passage:
        rows, batch, networks = self._lay_out(x)
        y, log_det = engine.propagate(networks, rows)
        if len(batch) == 1:
            return Passage(y, log_det)
        return Passage(y.reshape(*batch, self.features), log_det.reshape(batch))

    def _invert(self, y: Points, *, ladj: bool) -> Passage:
        if transformed():
            raise InversionError(
                "Numerical inverses are differentiated by backward() or torch.autograd.grad, "
                'not by torch.func or forward mode; direction="sampling" has closed-form samples.'
            )
        rows, batch, networks = self._lay_out(y)
        if engine.is_watched(networks, rows):
            x, log_det, inside = self._invert_rows(networks, rows, ladj=ladj)
        else:
            x, log_det, inside = engine.invert(networks, rows, ladj=ladj)
        return Passage(
            x.reshape(*batch, self.features), -log_det.reshape(batch), inside.reshape(batch)
        )

    def _lay_out(self, x: Tensor) -> tuple[Tensor, torch.Size, Networks]:
        """Return rows one below the other, their batch shape, and contexts of as many rows.

        Sizes are multiplied by hand: torch's ``numel`` of a shape makes an export fix them.
        """
        batch = x.shape[:-1]
        if self.context_batch and batch != self.context_batch:
            batch = torch.broadcast_shapes(batch, self.context_batch)
            x = x.expand(*batch, x.shape[-1])
        rows = x if x.dim() == 2 else x.reshape(math.prod(batch), x.shape[-1])
        contexts = math.prod(self.context_batch)
        if contexts == 1 or batch == self.context_batch:
            return rows, batch, self.networks
        index = torch.arange(contexts, device=x.device)
        index = index.view(self.context_batch).expand(batch).flatten()
        return rows, batch, self.networks._replace(lines=index)


class BlockTransform(NetworkTransform):
    """One network, with its residual if it has one."""

    def _invert_rows(
        self, networks: Networks, y: Tensor, *, ladj: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        return invert_with_gradient(networks, y, ladj=ladj)
