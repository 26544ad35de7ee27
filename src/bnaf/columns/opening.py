"""Numbers between bounds sent to the whole line, smoothly."""

from typing import NamedTuple

import numpy as np

from bnaf.columns.kind import Bounds, Values

NEAREST = 1e-9  # to a bound, as a share of the softness or of the range


class Opening(NamedTuple):
    r"""Increasing map from between two bounds, or one, or none, onto the line.

    With a lower bound a and a softness s it is

    .. math:: y = s \log(e^{(x - a) / s} - 1),

    which is x - a but for x near a; with an upper bound it is mirrored; with both it is s times
    the log-odds; with none it changes nothing.

    Args:
        bounds: Lower and upper bound, ``None`` where there is none.
        soft: The softness, in the units of x.
    """

    bounds: Bounds
    soft: float

    def apply(self, x: Values) -> tuple[Values, Values]:
        """Return y and the log of its slope; what lies outside is taken to the bounds."""
        low, high = self.bounds
        if low is not None and high is not None:
            nearest = NEAREST * (high - low)
            left, right = np.maximum(x - low, nearest), np.maximum(high - x, nearest)
            y: Values = self.soft * np.log(left / right)
            return y, np.log(self.soft * (1 / left + 1 / right))
        if low is not None:
            distance, sign = x - low, 1.0
        elif high is not None:
            distance, sign = high - x, -1.0
        else:
            return x, np.zeros_like(x)
        distance = np.maximum(distance / self.soft, NEAREST)
        # log(e^d - 1) = d + log(1 - e^-d), of slope 1 / (1 - e^-d)
        bent = np.log(-np.expm1(-distance))
        return sign * self.soft * (distance + bent), -bent

    def undo(self, y: Values) -> Values:
        """Return x of y."""
        low, high = self.bounds
        with np.errstate(over="ignore", invalid="ignore"):  # nan where there is no number
            if low is not None and high is not None:
                return np.asarray(low + (high - low) / (1 + np.exp(-y / self.soft)))
            if low is not None:
                return np.asarray(low + self.soft * np.logaddexp(0.0, y / self.soft))
            if high is not None:
                return np.asarray(high - self.soft * np.logaddexp(0.0, -y / self.soft))
        return y
