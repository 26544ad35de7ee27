"""Checks of settings, with messages that say what was expected and what came."""

import operator
from collections.abc import Sequence

from bnaf.errors import SettingsError


def whole(name: str, value: object, least: int = 1) -> int:
    """Return a setting that must be a whole number of at least ``least``.

    Raises:
        SettingsError: If it is not.

    Example:
        >>> whole("features", 3)
        3
    """
    try:
        number = None if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = None
    if number is None or number < least:
        raise SettingsError(f"{name} must be a whole number of at least {least}, got {value!r}.")
    return number


def one_of(name: str, value: str | None, allowed: Sequence[str | None]) -> str | None:
    """Return a setting that must be one of a few values.

    Raises:
        SettingsError: If it is not.
    """
    if value not in allowed:
        listed = ", ".join(map(repr, allowed))
        raise SettingsError(f"{name} must be one of {listed}, got {value!r}.")
    return value


def widths_of(width: object, hidden_layers: int) -> list[int]:
    """Return the width of every hidden layer, given one for all or one for each.

    Raises:
        SettingsError: If it is neither.

    Example:
        >>> widths_of(4, 2), widths_of([4, 5], 2)
        ([4, 4], [4, 5])
    """
    if not isinstance(width, Sequence) or isinstance(width, str):
        return [whole("width", width)] * hidden_layers
    if len(width) != hidden_layers:
        raise SettingsError(
            f"width must be a number or one number per hidden layer ({hidden_layers}), "
            f"got {len(width)}: {list(width)}."
        )
    return [whole("width", value) for value in width]
