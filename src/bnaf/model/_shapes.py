"""Results without values, of operators for which torch itself would import its compiler.

What torch computes of tensors on the meta device is defined by its compiler's operators, whose
import takes longer than loading and scoring. A flow that is planned needs shapes alone.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn


def _entrywise(first: Tensor, second: Any = None, **_: Any) -> Tensor:
    """Return what has an entry for each of one argument or two, broadcast."""
    if second is None:
        return first.new_empty(first.shape)
    shape = torch.broadcast_shapes(first.shape, getattr(second, "shape", ()))
    return first.new_empty(shape, dtype=torch.result_type(first, second))


def _unchanged(tensor: Tensor, *_: Any, **__: Any) -> Tensor:
    return tensor


def _mean(tensor: Tensor) -> Tensor:
    return tensor.new_empty(())


def _joined(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    shape = list(tensors[0].shape)
    shape[dim] = sum(tensor.shape[dim] for tensor in tensors)
    return tensors[0].new_empty(shape)


def _stacked(tensors: Sequence[Tensor]) -> Tensor:
    return tensors[0].new_empty((len(tensors), *tensors[0].shape))


def _below_diagonal(rows: int, columns: int, offset: int = 0) -> Tensor:
    count = sum(min(max(row + offset + 1, 0), columns) for row in range(rows))
    return torch.empty(2, count, dtype=torch.long, device="meta")


SHAPED: Mapping[Callable[..., Any], Callable[..., Tensor]] = {
    Tensor.mul: _entrywise,
    Tensor.add: _entrywise,
    Tensor.div: _entrywise,
    Tensor.ge: _entrywise,
    Tensor.__floordiv__: _entrywise,
    Tensor.__rsub__: _entrywise,
    Tensor.square: _entrywise,
    Tensor.log: _entrywise,
    Tensor.abs: _entrywise,
    Tensor.sign: _entrywise,
    Tensor.tril: _entrywise,
    Tensor.cumsum: _entrywise,
    torch.special.ndtri: _entrywise,
    Tensor.normal_: _unchanged,
    nn.init.normal_: _unchanged,
    Tensor.mean: _mean,
    torch.cat: _joined,
    torch.stack: _stacked,
    torch.tril_indices: _below_diagonal,
}
"""By operator, what has the shape of its result."""
