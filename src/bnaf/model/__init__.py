"""A flow with the columns and the units of its table, how it is fitted, kept and described."""

from bnaf.model.model import Model

__all__ = ["Model"]
