"""Laws of images: pixels that are bits, or one of many levels."""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor
from torch.distributions import Bernoulli, Distribution, Independent, constraints


def bit_law(logits: Float[Tensor, "*batch pixels"]) -> Distribution:
    """Return the law of images whose pixels are independent bits.

    Args:
        logits: Log-odds of each pixel.
    """
    return Independent(Bernoulli(logits=logits, validate_args=False), 1, validate_args=False)


class LevelLaw(Distribution):
    """Law of images whose pixels are independent levels, whole numbers from 0.

    Args:
        logits: Those of the levels of each pixel.

    Example:
        >>> LevelLaw(torch.zeros(2, 560, 256)).log_prob(torch.zeros(2, 560)).shape
        torch.Size([2])
    """

    arg_constraints: dict[str, constraints.Constraint] = {}  # noqa: RUF012
    support = constraints.nonnegative_integer

    def __init__(self, logits: Float[Tensor, "rows pixels levels"]) -> None:
        self.logits = logits
        super().__init__(logits.shape[:1], logits.shape[1:2], validate_args=False)

    @property
    def mean(self) -> Float[Tensor, "rows pixels"]:
        """Level that is expected of each pixel."""
        levels = torch.arange(self.logits.shape[-1], device=self.logits.device)
        return self.logits.softmax(-1) @ levels.to(self.logits.dtype)

    def log_prob(self, value: Float[Tensor, "rows pixels"]) -> Float[Tensor, " rows"]:
        losses = F.cross_entropy(
            self.logits.flatten(0, 1), value.long().flatten(), reduction="none"
        )
        return -losses.view(value.shape).sum(-1)

    def sample(self, sample_shape: Any = torch.Size()) -> Float[Tensor, "... rows pixels"]:  # noqa: B008
        shares = self.logits.detach().softmax(-1).flatten(0, 1)
        count = torch.Size(sample_shape).numel()
        drawn = torch.multinomial(shares, count, replacement=True).t()
        drawn = drawn.reshape(*sample_shape, *self.batch_shape, *self.event_shape)
        return drawn.to(self.logits.dtype)
