"""Sizes of a block neural autoregressive flow that suit a table."""

from typing import Any

FULL_WIDTH, HELD_WIDTH, LEAST_WIDTH = 40, 20, 5
NARROW_FEATURES, PLAIN_FEATURES = 8, 16  # columns up to which widths are full, and held
TRANSFORMS, MANY_TRANSFORMS = 3, 5  # of tables that are not small; of those of many rows
WIDTH_TIMES_FEATURES = 250  # units that more columns share
MOST_WEIGHTS = 2**25  # of a flow that is chosen for a table
CONTEXT_SIZES = {  # of a context network that is chosen for a table
    "context_layers": 2,
    "context_width": 128,
    "context_bins": 32,
    "context_dropout": 0.1,
}


def sizes_for(features: int, *, small: bool, many: bool, given: bool) -> dict[str, Any]:
    """Return transforms, hidden layers and width, and of given columns the context network.

    Args:
        features: Number of columns, those given left out.
        small: Whether the table is small.
        many: Whether its rows are so many that a larger flow pays.
        given: Whether columns are given.
    """
    if given:
        return _network_sizes(features, small, TRANSFORMS, HELD_WIDTH) | CONTEXT_SIZES
    full = not small and features <= NARROW_FEATURES
    transforms = MANY_TRANSFORMS if many else TRANSFORMS
    return _network_sizes(features, small, transforms, FULL_WIDTH if full else HELD_WIDTH)


def _network_sizes(features: int, small: bool, transforms: int, width: int) -> dict[str, Any]:
    hidden_layers = 2
    if features > PLAIN_FEATURES:
        width = max(LEAST_WIDTH, round(WIDTH_TIMES_FEATURES / features))
    if small:
        transforms, hidden_layers, width = 2, 1, max(LEAST_WIDTH, width // 2)

    def too_many() -> bool:
        products = 2 * width + (hidden_layers - 1) * width**2 if hidden_layers else 1
        return transforms * features * (features + 1) // 2 * products > MOST_WEIGHTS

    while width > 1 and too_many():
        width -= 1
    while transforms > 1 and too_many():
        transforms -= 1
    while hidden_layers > 0 and too_many():
        hidden_layers -= 1
    return {"transforms": transforms, "hidden_layers": hidden_layers, "width": width}
