"""The stack of block networks that a flow is made of, as one transform."""

import torch
from torch import Tensor

from bnaf.block.implicit import invert_with_gradient
from bnaf.block.transform import BlockTransform, NetworkTransform
from bnaf.block.weights import Networks
from bnaf.laws.transforms import PermutationTransform, RowTransform


class BlockStack(NetworkTransform):
    """Networks one after another, the features reordered in between.

    The inverse goes through them one by one where gradients are kept: a stack whose features
    change order is not triangular as a whole.
    """

    @property
    def parts(self) -> list[RowTransform]:
        """The networks as transforms of their own, with the permutations in between."""
        parts: list[RowTransform] = []
        for index in range(len(self.networks.residuals)):
            if index and self.networks.orders is not None:
                parts.append(PermutationTransform(self.networks.orders[index - 1], self.like))
            parts.append(BlockTransform(self.networks.single(index), self.context_batch))
        return parts

    def _invert_rows(
        self, networks: Networks, y: Tensor, *, ladj: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        log_det, inside = y.new_zeros(len(y)), torch.ones_like(y[:, 0], dtype=torch.bool)
        for index in reversed(range(len(networks.residuals))):
            y, log_det_part, found = invert_with_gradient(networks.single(index), y, ladj=ladj)
            log_det, inside = log_det + log_det_part, inside & found
            if index and networks.orders is not None:
                y = y[:, networks.orders[index - 1].argsort()]
        return y, log_det, inside
