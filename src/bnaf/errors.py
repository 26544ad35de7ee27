"""Exceptions and warnings a caller may catch; each derives from the built-in it refines.

A message is made of parts: text, and the arguments that would remedy what is wrong. ``str(error)``
names them as Python does, and whoever takes them under other names, as the command line does, has
the ``parts`` of a :class:`Told` to tell them in its own.
"""

from typing import Any, NamedTuple


class Argument(NamedTuple):
    """An argument that would help, as part of a message.

    Args:
        name: What it is called in Python.
        value: What to give; an ellipsis where only the caller knows.

    Example:
        >>> str(Argument("drop_missing", True)), str(Argument("columns"))
        ('drop_missing=True', 'columns=...')
    """

    name: str
    value: object = ...

    def __str__(self) -> str:
        return f"{self.name}={'...' if self.value is ... else repr(self.value)}"


class Told(Exception):  # noqa: N818 (warnings are told too)
    """What carries a message made of parts.

    Args:
        parts: Text and arguments, in the order they are told.

    Example:
        >>> error = TableError("2 rows are incomplete; leave them out with ",
        ...                    Argument("drop_missing", True), ".")
        >>> str(error), error.remedies
        ('2 rows are incomplete; leave them out with drop_missing=True.',
         (Argument(name='drop_missing', value=True),))
    """

    def __init__(self, *parts: str | Argument) -> None:
        super().__init__("".join(map(str, parts)))
        self.parts = parts

    @property
    def remedies(self) -> tuple[Argument, ...]:
        """The arguments that would help."""
        return tuple(part for part in self.parts if isinstance(part, Argument))


class BnafError(Told):
    """Root of all errors raised by this library."""


class ShapeError(BnafError, ValueError):
    """Tensor whose shape does not fit the flow."""


class DtypeError(BnafError, TypeError):
    """Tensor whose element type does not fit the flow."""


class SettingsError(BnafError, ValueError):
    """Setting outside its allowed values."""


class TableError(BnafError, ValueError):
    """Table that cannot be read or modelled."""


class KindError(TableError):
    """Table with columns of every kind where numbers alone are taken.

    Args:
        found: Which columns hold what.
        remedy: What to do; whoever asked for numbers may know better.
    """

    def __init__(self, found: str, *remedy: str | Argument) -> None:
        super().__init__(found, *remedy)
        self.found = found


class TableWarning(Told, UserWarning):
    """Table that can be modelled, but whose density will not be what one may expect."""


class RedrawWarning(UserWarning):
    """Some draws of the base had no pre-image and were drawn again."""


class FewDrawsWarning(UserWarning):
    """What is given was met by so few draws that some of them are many of the rows."""


class StorageError(BnafError, ValueError):
    """Model file or state dict that cannot be read."""


class InversionError(BnafError, ValueError):
    """Points without a pre-image, or whose pre-image was not found."""


class StaleLawError(BnafError, RuntimeError):
    """Law that is used after the weights of its flow have changed."""


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
