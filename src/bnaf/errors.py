"""Exceptions and warnings a caller may catch; each derives from the built-in it refines."""

from typing import Any


class BnafError(Exception):
    """Root of all errors raised by this library."""


class ShapeError(BnafError, ValueError):
    """Tensor whose shape does not fit the flow."""


class DtypeError(BnafError, TypeError):
    """Tensor whose element type does not fit the flow."""


class SettingsError(BnafError, ValueError):
    """Setting outside its allowed values."""


class TableError(BnafError, ValueError):
    """Table that cannot be read or modelled."""


class TableWarning(UserWarning):
    """Table that can be modelled, but whose density will not be what one may expect."""


class StorageError(BnafError, ValueError):
    """Model file or state dict that cannot be read."""


class InversionError(BnafError, ValueError):
    """Points without a pre-image, or whose pre-image was not found."""


class TrainingError(BnafError, RuntimeError):
    """Fit that could not be carried out.

    Args:
        message: What went wrong.
        record: How far it came.
        column: Number of the column that is to blame, where one is known.
        model: The model with the best weights so far, of :meth:`bnaf.Model.fit`.
    """

    def __init__(
        self,
        message: str,
        record: Any = None,
        *,
        column: int | None = None,
        model: Any = None,
    ) -> None:
        super().__init__(message)
        self.record, self.column, self.model = record, column, model
