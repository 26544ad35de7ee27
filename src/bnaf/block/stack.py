"""The stack of block networks that a flow is made of, as one transform."""

import torch
from jaxtyping import Float
from torch import Tensor

from bnaf._checks import check_rows
from bnaf.block import engine
from bnaf.block.drawing import draw
from bnaf.block.implicit import invert_with_gradient
from bnaf.block.transform import BlockTransform, NetworkTransform
from bnaf.block.weights import Networks
from bnaf.errors import Argument, SettingsError
from bnaf.laws.cells import Cells, Snap
from bnaf.laws.transforms import Passage, PermutationTransform, RowTransform, reached


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

    def log_shares(self, cells: Cells) -> Float[Tensor, "... features"]:
        """Return log p(cell | the cells before it), the base being standard normal.

        That of a point is the logarithm of a density, that of an interval of a mass, and that of
        a cell that is not known is zero. What later cells see of an interval is its middle, and
        of a cell that is not known zero. The shares of a row add up to its log-likelihood.

        Args:
            cells: Rows of cells.

        Raises:
            SettingsError: If the features change their order between the transforms.
            ShapeError: If the number of features is wrong.
            DtypeError: If type or device are not those of the transform.
        """
        self._check_order("log_shares")
        for name, part in zip(cells._fields[:3], cells, strict=False):
            check_rows(part, self.features, self.like, name)
        _, batch, networks = self._lay_out(cells.middle)
        rows = (part.expand(*batch, -1).reshape(-1, self.features) for part in cells)
        shares = engine.log_shares(networks, Cells(*rows))
        return shares.reshape(*batch, self.features)

    def draw(self, z: Float[Tensor, "... features"], snap: Snap) -> Cells:
        """Return the cells that base noise becomes, each seen by those after it.

        Feature by feature it is the root of the increasing map given the middles of the cells
        before. All rows are taken at once, without gradients.

        Args:
            z: Base noise.
            snap: Called as ``snap(i, x)`` with the draws of feature i, all rows at once, it
                returns the middles of their cells and the distances to the lower and the upper
                ends, or ``None`` where the feature is not known. A middle of NaN is a cell that is
                not known.

        Raises:
            SettingsError: If the features change their order, or the flow is not onto.
            ShapeError: If the number of features is wrong.
            DtypeError: If type or device are not those of the transform.
            InversionError: If z is not finite, or the search for a pre-image did not end.

        Example:
            >>> from bnaf import BNAF
            >>> stack = BNAF(2, permutation=None)().transform
            >>> def snap(feature, x):  # whole numbers
            ...     return x.round(), torch.full_like(x, 0.5), torch.full_like(x, 0.5)
            >>> middle = stack.draw(torch.randn(5, 2), snap).middle
            >>> bool((middle == middle.round()).all())
            True
        """
        self._check_order("draw")
        check_rows(z, self.features, self.like, "z")
        if not self.onto:
            raise SettingsError(
                "draw needs a flow that is onto: some base noise has no pre-image under this "
                'one; use activation="leaky_tanh" or a residual on every transform.'
            )
        rows, batch, networks = self._lay_out(z)
        reached(Passage(rows, rows[:, 0], rows.isfinite().all(1)))
        cells = draw(networks, rows.detach(), _in_batches(snap, batch))
        return Cells(*(part.reshape(*batch, self.features) for part in cells))

    def _check_order(self, wanted: str) -> None:
        """Check that the stack is one triangular map.

        Raises:
            SettingsError: If it is not.
        """
        if self.networks.orders is not None and len(self.networks.residuals) > 1:
            raise SettingsError(
                f"{wanted} needs the features in one order in all transforms, and this flow "
                "changes it in between; build it with ",
                Argument("permutation", None),
                ".",
            )

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


def _in_batches(snap: Snap, batch: torch.Size) -> Snap:
    """Return the same for draws one after another, given it for those of a batch shape."""

    def snap_flat(feature: int, x: Tensor) -> tuple[Tensor, Tensor, Tensor] | None:
        found = snap(feature, x.reshape(batch))
        if found is None:
            return None
        middle, below, above = (part.reshape(-1) for part in found)
        return middle, below, above

    return snap_flat
