"""Pickles put together by hand, as no library of today writes them."""

import pickle
import struct

import numpy as np


def constant(value):
    """Return the instructions that make a plain value."""
    return pickle.dumps(value, protocol=2)[2:-1]


def text(content):
    """Return those of a string of Python 2, which holds bytes."""
    return b"T" + struct.pack("<i", len(content)) + content


def named(origin):
    """Return those that look a name up."""
    module, _, name = origin.rpartition(".")
    return f"c{module}\n{name}\n".encode()


def called(origin, *args):
    """Return those that call what a name stands for."""
    return named(origin) + b"(" + b"".join(args) + b"tR"


def made(origin, *args):
    """Return those that make an object of a class without calling it."""
    return named(origin) + b"(" + b"".join(args) + b"t\x81"


def listed(*items):
    return b"](" + b"".join(items) + b"e"


def tied(*items):
    return b"(" + b"".join(items) + b"t"


def mapped(**items):
    return b"}(" + b"".join(constant(key) + value for key, value in items.items()) + b"u"


def array(values):
    """Return those of an array, as NumPy wrote them under Python 2."""
    empty = called(
        "numpy.core.multiarray._reconstruct", named("numpy.ndarray"), constant((0,)), text(b"b")
    )
    kind = values.dtype.str[1:] if values.dtype.kind != "O" else "O8"
    order = "|" if values.dtype.kind == "O" else values.dtype.str[0]
    dtype = called("numpy.dtype", text(kind.encode()), constant(0), constant(1))
    dtype += constant((3, order, None, None, None, -1, -1, 0)) + b"b"
    content = text(values.tobytes())
    if values.dtype.kind == "O":
        content = listed(*(text(value.encode()) for value in values))
    return (
        empty + tied(constant(1), constant(values.shape), dtype, constant(False), content) + b"b"
    )


def old_frame(values, names):
    """Return a frame as pandas 0.18 pickled it under Python 2: columns by rows, in one block."""
    labels = mapped(data=array(np.array(names, object)), name=constant(None))
    columns = called("pandas.indexes.base._new_Index", named("pandas.indexes.base.Index"), labels)
    span = mapped(start=constant(0), stop=constant(values.shape[1]), step=constant(1))
    index = called(
        "pandas.indexes.base._new_Index", named("pandas.indexes.range.RangeIndex"), span
    )
    places = array(np.arange(len(names)))
    block = mapped(values=array(values), mgr_locs=places)
    whole = b"}" + constant("0.14.1") + mapped(axes=listed(columns, index), blocks=listed(block))
    state = tied(listed(), listed(), listed(), whole + b"s")
    manager = made("pandas.core.internals.BlockManager") + state + b"b"
    frame = made("pandas.core.frame.DataFrame") + mapped(_data=manager) + b"b"
    return b"\x80\x02" + frame + b"."
