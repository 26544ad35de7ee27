"""Checks of settings and rows, with messages that say what was expected and what came."""

import operator
from collections.abc import Sequence

from torch import Tensor

from bnaf.errors import DtypeError, SettingsError, ShapeError


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


def check_rows(rows: object, features: int, like: Tensor, name: str) -> None:
    """Check that a tensor holds rows a flow can take.

    Raises:
        DtypeError: If it is not of the flow's floating-point type, or on another device.
        ShapeError: If its last dimension is not ``features`` long.
    """
    if not isinstance(rows, Tensor):
        raise DtypeError(
            f"{name} must be a torch tensor, got {type(rows).__name__}; "
            "convert it with torch.as_tensor(...)."
        )
    if rows.dtype != like.dtype:
        kind = str(like.dtype).removeprefix("torch.")
        raise DtypeError(
            f"{name} must be of the flow's type {like.dtype}, got {rows.dtype}; "
            f"convert it with {name}.to(torch.{kind}) or the flow with flow.to({rows.dtype})."
            if rows.dtype.is_floating_point
            else f"{name} must be of the flow's type {like.dtype}, got {rows.dtype}; "
            f"convert it with {name}.to(torch.{kind})."
        )
    if rows.device != like.device:
        raise DtypeError(
            f"{name} must be on the flow's device {like.device}, got {rows.device}; "
            f"move it with {name}.to({str(like.device)!r})."
        )
    if rows.dim() == 0 or rows.shape[-1] != features:
        raise ShapeError(
            f"The flow expects {features} features in the last dimension of {name}, "
            f"got shape {tuple(rows.shape)}."
        )
