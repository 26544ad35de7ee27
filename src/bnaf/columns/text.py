"""Identifiers and free text: told, and left out."""

from dataclasses import dataclass


@dataclass(frozen=True)
class LeftOut:
    """A column that no model is made of.

    Args:
        name: Its name.
        reason: What it was taken for.
    """

    name: str
    reason: str
