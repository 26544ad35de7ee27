"""Average of the weights over the steps of a run."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from bnaf._torch import copy_all, lerp_all


class WeightAverage:
    r"""Exponential average of parameters, corrected for its start at zero.

    .. math:: \bar\theta_t = \bar\theta_{t-1} + w_t (\theta_t - \bar\theta_{t-1}), \qquad
              w_t = \max\left(\frac{1 - d}{1 - d^t}, \frac{1}{s t}\right)

    The first fraction is the bias-corrected average of decay d, written so that what is stored is
    the corrected value. The second lets it look back on no more than a share s of the steps;
    with s = 1 it never acts. Without correction the average starts at zero and :math:`w_t = 1 -
    d`, as in the published code.

    Args:
        parameters: What is averaged.
        decay: The number d.
        share: The number s.
        bias_correction: Whether the average is corrected.
    """

    def __init__(
        self,
        parameters: Sequence[Tensor],
        *,
        decay: float,
        share: float = 1.0,
        bias_correction: bool = True,
    ) -> None:
        self.parameters = list(parameters)
        self.values = [torch.zeros_like(parameter) for parameter in self.parameters]
        self.decay, self.share, self.bias_correction = decay, share, bias_correction
        self.steps = 0

    @torch.no_grad()
    def update(self) -> None:
        """Take in the parameters as they are now."""
        self.steps += 1
        lerp_all(self.values, self.parameters, self._weight(self.steps))

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Let the parameters be the average for as long as this lasts."""
        if not self.steps:
            yield
            return
        with torch.no_grad():
            raw = [parameter.clone() for parameter in self.parameters]
            copy_all(self.parameters, self.values)
        try:
            yield
        finally:
            with torch.no_grad():
                copy_all(self.parameters, raw)

    def state_dict(self) -> dict[str, Tensor]:
        """Return the average and the number of steps it is over, by name."""
        values = {f"values.{number}": value for number, value in enumerate(self.values)}
        return values | {"steps": torch.tensor(self.steps)}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Put back what :meth:`state_dict` returned."""
        self.steps = int(state["steps"])
        for number, value in enumerate(self.values):
            value.copy_(state[f"values.{number}"])

    def _weight(self, step: int) -> float:
        if not self.bias_correction:
            return 1 - self.decay
        corrected = (1 - self.decay) / (1 - self.decay**step)
        return min(1.0, max(corrected, 1 / (self.share * step)))
