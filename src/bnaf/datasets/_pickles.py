"""Pickled arrays and frames, read without running or importing anything they name.

A pickle calls whatever it names. Here every name of NumPy, pandas and Arrow stands for an inert
:class:`_Part`, which only remembers what it was called with; any other name is refused. Arrays are
then built from the bytes that the parts hold.
"""

import io
import pickle
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

LIBRARIES = ("numpy", "pandas", "pyarrow")  # whose names become parts
NUMBERS = re.compile(r"[biuf]\d")  # element types of arrays that are read
ENCODING = "latin1"  # in which pickles of Python 2 hold bytes


class _Part:
    """Stand-in for an object of a library: what it was made of, and the state it was given."""

    origin: str
    args: tuple[Any, ...]
    state: Any = None

    def __new__(cls, *args: Any) -> "_Part":
        part = super().__new__(cls)
        part.args = args
        return part

    def __setstate__(self, state: Any) -> None:
        self.state = state

    @property
    def name(self) -> str:
        """What it is called in its module."""
        return self.origin.rpartition(".")[2]


class _PartUnpickler(pickle.Unpickler):
    """Reader of pickles that makes parts, and slices and bytes, and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        origin = f"{module}.{name}"
        if module.partition(".")[0] in LIBRARIES:
            return type(name, (_Part,), {"origin": origin})
        if origin not in _HARMLESS:
            raise ValueError(f"expected arrays and frames alone, got {origin}, which is not run")
        return _HARMLESS[origin]


class _Harmless:
    """Function that pickles may call, and cannot give a state."""

    __slots__ = ("_call",)

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call

    def __call__(self, *args: Any) -> Any:
        return self._call(*args)

    def __setstate__(self, state: Any) -> None:
        raise ValueError("expected arrays and frames alone, got the state of a function")


@_Harmless
def _remake(kind: type[_Part], *_: Any) -> _Part:
    """Return an empty part, as the oldest protocol makes objects."""
    if not isinstance(kind, type) or not issubclass(kind, _Part):
        raise ValueError(f"expected an array or a frame, got {kind!r}")
    return kind()


@_Harmless
def _encode(text: str, encoding: str) -> bytes:
    return text.encode("utf-8" if encoding.startswith("utf") else ENCODING)


_HARMLESS = {
    "_codecs.encode": _encode,
    "copy_reg._reconstructor": _remake,
    "copyreg._reconstructor": _remake,
    "__builtin__.object": object,
    "builtins.object": object,
    "__builtin__.slice": slice,
    "builtins.slice": slice,
    "__builtin__.bytearray": bytearray,
    "builtins.bytearray": bytearray,
}


def read_pickled_array(path: Path) -> np.ndarray:
    """Return the array, or the list of arrays as one, that a pickle holds.

    Raises:
        ValueError: If it holds something else, or names anything else.
    """
    held = _load(path)
    with _told("an array"):
        parts = [_array(part) for part in held] if isinstance(held, list) else _array(held)
        return np.asarray(parts)


def read_pickled_frame(path: Path) -> tuple[np.ndarray, list[str]]:
    """Return the numbers of a pickled pandas frame, and the names of its columns.

    Frames of pandas 0.14 and later are known; those of Python 2 too.

    Raises:
        ValueError: If it holds something else, or names anything else.
    """
    frame = _load(path)
    with _told("a frame of numbers"):
        return _frame(frame)


@contextmanager
def _told(expected: str) -> Iterator[None]:
    """Tell of parts that are not what they stand for.

    Raises:
        ValueError: In place of what was raised.
    """
    try:
        yield
    except ValueError:
        raise
    except (AttributeError, TypeError, LookupError, ArithmeticError) as error:
        raise ValueError(f"expected {expected} ({error})") from None
    except (MemoryError, RecursionError) as error:
        raise ValueError(f"expected {expected}, got one that is too large ({error})") from None


def _load(path: Path) -> Any:
    try:
        return _PartUnpickler(io.BytesIO(path.read_bytes()), encoding=ENCODING).load()
    except Exception as error:  # a pickle that is none, or not whole, may end in any
        raise ValueError(str(error)) from None


def _frame(frame: Any) -> tuple[np.ndarray, list[str]]:
    state = frame.state
    manager = state["_mgr"] if "_mgr" in state else state["_data"]
    if manager.args:
        axes = manager.args[1]
        blocks = [part.args[:2] for part in manager.args[0]]
    else:  # before pandas 1.3
        whole = manager.state[3]["0.14.1"]
        axes = whole["axes"]
        blocks = [(block["values"], block["mgr_locs"]) for block in whole["blocks"]]
    names = _names(axes[0].args[1]["data"])
    parts = [(_array(values), _places(where)) for values, where in blocks]
    (count,) = {values.shape[1] for values, _ in parts}
    if sum(len(values) for values, _ in parts) != len(names):
        raise ValueError(f"expected numbers of {len(names)} columns")
    rows = np.full((count, len(names)), np.nan)
    for values, where in parts:
        rows[:, where] = values.T
    return rows, names


def _places(where: Any) -> Any:
    return where if isinstance(where, slice) else _array(where)


def _names(labels: Any) -> list[str]:
    """Return the labels of an index: an array of objects, or text as Arrow lays it out."""
    if "_pa_array" not in (labels.state if isinstance(labels.state, dict) else ()):
        return [str(label) for label in _array(labels)]
    stored = labels.state["_pa_array"]
    stored = stored.args[0][0] if stored.name == "chunked_array" else stored
    kind, length, _, offset, buffers, *_ = stored.args[0] if len(stored.args) == 1 else stored.args
    width = np.int64 if kind.args[0].startswith("large") else np.int32
    offsets = np.frombuffer(_bytes(buffers[1].args[0]), width)[offset : offset + length + 1]
    text = _bytes(buffers[2].args[0])
    return [text[offsets[i] : offsets[i + 1]].decode() for i in range(length)]


def _array(part: Any) -> np.ndarray:
    """Return the array that a part stands for."""
    if not isinstance(part, _Part):
        raise ValueError(f"expected an array, got {type(part).__name__}")
    if part.name == "_frombuffer":
        content, kind, shape, order = part.args
    elif part.name == "_reconstruct" and isinstance(part.state, tuple):
        _, shape, kind, fortran, content = part.state
        order = "F" if fortran else "C"
    else:
        raise ValueError(f"expected an array, got {part.origin}")
    if isinstance(content, list):  # of objects, such as names
        return np.array(content, object).reshape(shape)
    return np.frombuffer(_bytes(content), _dtype(kind)).reshape(shape, order=order)


def _dtype(part: _Part) -> np.dtype[Any]:
    code, order = _text(part.args[0]), _text(part.state[1])
    if not NUMBERS.fullmatch(code) or order not in ("<", ">", "|", "="):
        raise ValueError(f"expected numbers, got elements of type {code!r}")
    return np.dtype(order + code)


def _bytes(content: Any) -> bytes:
    if isinstance(content, _Part):
        raise ValueError(f"expected bytes, got {content.origin}")
    return content.encode(ENCODING) if isinstance(content, str) else bytes(content)


def _text(content: Any) -> str:
    return content.decode(ENCODING) if isinstance(content, bytes) else str(content)
