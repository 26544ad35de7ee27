"""Checks of what a file says of a column."""

import math
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from bnaf.errors import StorageError

MOST_ENTRIES = 2**20
LARGEST, SMALLEST = sys.float_info.max, math.ulp(0.0)  # numbers above 0


def refused(key: str, wanted: str, value: object) -> StorageError:
    """Return the error of an entry that is not what it should be."""
    return StorageError(f"A column of a model expects {wanted} as {key!r}, got {value!r:.60}.")


def entry(stored: Mapping[str, Any], key: str) -> Any:
    """Return an entry that must be there.

    Raises:
        StorageError: If it is not, or nothing could be.
    """
    if not isinstance(stored, Mapping) or key not in stored:
        raise StorageError(f"A column of a model expects an entry {key!r}, got none.")
    return stored[key]


def number_of(
    stored: Mapping[str, Any], key: str, low: float = -math.inf, high: float = math.inf
) -> float:
    """Return an entry that must be a finite number within a range.

    Raises:
        StorageError: If it is not.
    """
    value = entry(stored, key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise refused(key, "a number", value)
    if not abs(value) <= LARGEST or not low <= value <= high:
        raise refused(key, f"a finite number from {low:g} to {high:g}", value)
    return float(value)


def whole_of(stored: Mapping[str, Any], key: str, low: int = 0, high: int = 2**53) -> int:
    """Return an entry that must be a whole number within a range.

    Raises:
        StorageError: If it is not.
    """
    value = entry(stored, key)
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise refused(key, f"a whole number from {low} to {high}", value)
    return value


def flag_of(stored: Mapping[str, Any], key: str) -> bool:
    """Return an entry that must be true or false.

    Raises:
        StorageError: If it is not.
    """
    value = entry(stored, key)
    if not isinstance(value, bool):
        raise refused(key, "true or false", value)
    return value


def text_of(stored: Mapping[str, Any], key: str, allowed: tuple[str, ...] | None = None) -> str:
    """Return an entry that must be text, one of a few if they are named.

    Raises:
        StorageError: If it is not.
    """
    value = entry(stored, key)
    if not isinstance(value, str) or (allowed is not None and value not in allowed):
        raise refused(key, f"one of {', '.join(allowed)}" if allowed else "text", value)
    return value


def numbers_of(stored: Mapping[str, Any], key: str) -> np.ndarray:
    """Return an entry that must be a list of finite numbers.

    Raises:
        StorageError: If it is not.
    """
    value = entry(stored, key)
    if not isinstance(value, list) or len(value) > MOST_ENTRIES:
        raise refused(key, "a list of numbers", value)
    if not all(isinstance(item, int | float) and abs(item) <= LARGEST for item in value):
        raise refused(key, "finite numbers", value)
    return np.array(value, dtype=np.float64)


def texts_of(stored: Mapping[str, Any], key: str) -> tuple[str, ...]:
    """Return an entry that must be a list of texts.

    Raises:
        StorageError: If it is not.
    """
    value = entry(stored, key)
    if not isinstance(value, list) or len(value) > MOST_ENTRIES:
        raise refused(key, "a list of texts", value)
    if not all(isinstance(item, str) for item in value):
        raise refused(key, "texts", value)
    return tuple(value)


def ends_of(stored: Mapping[str, Any]) -> tuple[float, float]:
    """Return the least and the largest value that a column had.

    Raises:
        StorageError: If they are no numbers in that order.
    """
    low, high = number_of(stored, "low"), number_of(stored, "high")
    if low > high:
        raise refused("high", f"a number from {low:g} on", high)
    return low, high


def bounds_of(stored: Mapping[str, Any], key: str) -> tuple[float | None, float | None]:
    """Return an entry that must be two bounds, the lower first; null where there is none.

    Raises:
        StorageError: If it is not.
    """
    value = entry(stored, key)
    if not isinstance(value, list) or len(value) != 2:
        raise refused(key, "two bounds", value)
    ends = [None if end is None else number_of({key: end}, key) for end in value]
    low, high = ends
    if low is not None and high is not None and not low < high:
        raise refused(key, "a lower bound below the upper", value)
    return low, high
