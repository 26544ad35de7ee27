"""Checks of settings and rows, with messages that say what was expected and what came."""

import math
import operator
from collections.abc import Sequence
from numbers import Real
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bnaf.errors import DtypeError, SettingsError, ShapeError


def plain(value: Any) -> Any:
    """Return a setting as Python and JSON have it: numbers of NumPy and torch become plain ones.

    Example:
        >>> plain(np.int64(3)), plain((np.float64(0.5), True)), plain("tanh")
        (3, [0.5, True], 'tanh')
    """
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, np.ndarray | Tensor) and value.ndim == 0:
        return plain(value.item())
    if isinstance(value, list | tuple | range) or (isinstance(value, np.ndarray) and value.ndim):
        return [plain(entry) for entry in value]
    try:
        return operator.index(value)
    except TypeError:
        return float(value) if isinstance(value, Real) else value


def plain_number(value: Any) -> Any:
    """Return a number of NumPy or torch as a plain one, and anything else as it is.

    Example:
        >>> plain_number(np.array(3)), plain_number(np.zeros((1, 1)))
        (3, array([[0.]]))
    """
    single = isinstance(value, Real) or getattr(value, "ndim", None) == 0
    return plain(value) if single else value


def whole(name: str, value: object, least: int = 1) -> int:
    """Return a setting that must be a whole number of at least ``least``.

    Raises:
        SettingsError: If it is not.

    Example:
        >>> whole("features", np.int64(3))
        3
    """
    number = plain(value)
    if not isinstance(number, int) or isinstance(number, bool) or number < least:
        raise SettingsError(f"{name} must be a whole number of at least {least}, got {value!r}.")
    return number


def between(
    name: str, value: object, low: float = 0.0, high: float = math.inf, *, closed: bool = False
) -> float:
    """Return a setting that must be a number between two others.

    Args:
        name: What it is called.
        value: What came.
        low: What it must be above.
        high: What it must be below.
        closed: Whether it may be ``low``.

    Raises:
        SettingsError: If it is not.

    Example:
        >>> between("leak", np.float32(0.5), 0, 1)
        0.5
    """
    number = plain(value)
    is_number = isinstance(number, int | float) and not isinstance(number, bool)
    if is_number and (low <= number if closed else low < number) and number < high:
        return float(number) if isinstance(number, float) else number
    wanted = f"a finite number of at least {low:g}" if closed else "a positive finite number"
    if high < math.inf:
        wanted = f"a number between {low:g} and {high:g}"
    raise SettingsError(f"{name} must be {wanted}, got {value!r}.")


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


def in_precision(rows: Tensor, like: Tensor) -> Tensor:
    """Return rows in the type of a flow where autocast made another of it; else as they are."""
    if (
        isinstance(rows, Tensor)
        and rows.dtype != like.dtype
        and rows.dtype.is_floating_point
        and torch.is_autocast_enabled(like.device.type)
    ):
        return rows.to(like.dtype)
    return rows


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
