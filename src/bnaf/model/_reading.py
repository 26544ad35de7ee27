"""What a fit takes from any rows: plain numbers as a table, all others by the kinds of columns."""

from dataclasses import replace
from typing import Any

import numpy as np
from torch import Tensor

from bnaf.columns.detection import is_plain, open_columns
from bnaf.errors import Argument, SettingsError
from bnaf.flows.registry import flow_named
from bnaf.model._data import FitData
from bnaf.model._frame_streams import encode_stream
from bnaf.model._frames import encode_frame, warn_of_rounded
from bnaf.model._wish import Wish
from bnaf.tables.frame_streams import FrameStream
from bnaf.tables.frames import Frame, read_frame
from bnaf.tables.sources import has_names
from bnaf.tables.streams import ParquetStream
from bnaf.tables.table import Table
from bnaf.tables.ties import warn_of_columns
from bnaf.training.recipe import is_small


def read_data(source: Any, flow: str, wish: Wish) -> FitData:
    """Read rows, split and encode them: as plain numbers where that is what they are.

    Arrays, tensors, tables and streams of numbers are plain numbers. So are other rows whose
    modelled columns have a density everywhere and whose given ones are numbers, and all rows that
    are to be fitted by a flow that takes no others. A stream of columns of every kind is none of
    these, unless it is so short that it is read at once.

    Args:
        source: The rows.
        flow: Name of the flow.
        wish: What of them is to be fitted.

    Raises:
        TableError: If the rows cannot be read so.
        SettingsError: If kinds or bounds are told of plain numbers, or the flow takes none.
    """
    kind = flow_named(flow)
    numeric = isinstance(source, Table | ParquetStream | Tensor | np.ndarray | list | tuple)
    numeric = numeric and not has_names(source)
    if numeric and not kind.takes_numbers:
        raise SettingsError(
            f"The flow {flow!r} takes frames and files, whose columns may be of every kind, got a "
            f"{type(source).__name__}; leave out ",
            Argument("flow"),
            ", or give a frame.",
        )
    if numeric or not kind.takes_kinds:
        _refuse_kinds(source, flow, wish)
        return FitData.read(source, wish)
    if isinstance(source, FrameStream):
        names, known = wish.choose_columns(source.columns)
        wish.check_told(source.columns)
        division = wish.divide(source.rows, len(names), len(known), mixed=True, members=1)
        if not is_small(division.counted):
            _refuse_members(wish)
            return encode_stream(source, names, known, wish)
        source = source.read()
    frame = read_frame(source)
    names, known = wish.choose_columns(frame.names)
    wish.check_told(frame.names)
    warn_of_columns([*names, *known], len(frame), (), {})
    wish = replace(wish, columns=names, given=known)
    if kind.takes_numbers and is_plain(frame, names, known, wish.kinds, wish.bounds):
        table = frame.select([*names, *known]).as_table()
        warn_of_rounded(frame, table.columns)
        if wish.brings_rows:
            held_out = read_frame(wish.valid, columns=table.columns).as_table()
            wish = replace(wish, valid=held_out)
        data = FitData.read(table, wish, open_columns(frame.select(names), wish.bounds))
    else:
        _refuse_members(wish)
        data = encode_frame(frame, names, known, wish)
    if frame.index is None or isinstance(source, Frame):  # whoever read that could tell
        return data
    return replace(data, notes=("the first column, which numbers the rows, is left out.",))


def _refuse_members(wish: Wish) -> None:
    if wish.members not in (None, 1):
        raise SettingsError(
            f"members must be 1 for columns of several kinds, got {wish.members}; averages are of "
            "one column of numbers."
        )


def _refuse_kinds(source: Any, flow: str, wish: Wish) -> None:
    """Refuse what is told of columns that are plain numbers, and say why they are."""
    why: tuple[str | Argument, ...] = (
        "rows that come as an array or a table of numbers are plain numbers. Leave it out, or "
        "give a frame or a file, without ",
        Argument("dequantise"),
    )
    if isinstance(source, ParquetStream):
        why = (
            "rows of a ParquetStream are plain numbers. Leave it out, or give a FrameStream, "
            "whose columns may be of every kind, without ",
            Argument("dequantise"),
        )
    if not flow_named(flow).takes_kinds:
        why = (
            f"the flow {flow!r} takes plain numbers alone. For the default one, which takes all "
            "kinds, leave out ",
            Argument("flow"),
        )
        if isinstance(source, FrameStream):
            raise SettingsError(
                f"Expected a ParquetStream for the flow {flow!r}, which takes plain numbers, got "
                "a FrameStream. For the default one, which takes all kinds, leave out ",
                Argument("flow"),
                ".",
            )
    for name, value in (("kinds", wish.kinds), ("bounds", wish.bounds)):
        if value:
            raise SettingsError(Argument(name), " must be left out: ", *why, ".")
