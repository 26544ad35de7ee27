"""Encodings as model files hold them: fields of the header, and tensors."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bnaf.columns.schema import Schema
from bnaf.columns.stored import numbers_of
from bnaf.errors import StorageError
from bnaf.model.encoding import Encoding
from bnaf.model.kinds import KindEncoding
from bnaf.model.numbers import NumberEncoding
from bnaf.model.openings import Openings
from bnaf.model.standardisation import Standardisation

SCALES = "standardisation"  # and, in the names of tensors, its matrices
MATRICES = ("factor", "slopes")
TENSORS = tuple(f"{SCALES}.{matrix}" for matrix in MATRICES)
"""Names of tensors that belong to an encoding, not to a flow."""
NUMBER_FIELDS: dict[str, type] = {
    "columns": list,
    "types": list,
    SCALES: dict,
    "given_columns": list,
    f"given_{SCALES}": dict,
    "openings": list,
}
KIND_FIELDS: dict[str, type] = {"schema": dict, "moments": dict}


def encoding_fields(header: Mapping[str, Any]) -> dict[str, type]:
    """Return the fields that the encoding in a header must have, and their types."""
    return KIND_FIELDS if "schema" in header else NUMBER_FIELDS


def store_encoding(encoding: Encoding) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return fields of a header, and tensors by name."""
    if isinstance(encoding, KindEncoding):
        given = encoding.given_schema
        return {
            "schema": encoding.schema.as_dict(),
            "given_schema": None if given is None else given.as_dict(),
            "moments": _scales(encoding),
        }, {}
    assert isinstance(encoding, NumberEncoding)
    scales = encoding.standardisation
    matrices = {f"{SCALES}.{name}": getattr(scales, name) for name in MATRICES}
    return {
        "columns": encoding.columns,
        "types": encoding.types,
        SCALES: _scales(scales),
        "given_columns": encoding.given_columns,
        f"given_{SCALES}": _scales(encoding.given_standardisation),
        "openings": encoding.openings.as_list(),
        "ranges": None if encoding.ranges is None else encoding.ranges.tolist(),
    }, {name: part.contiguous() for name, part in matrices.items() if part is not None}


def read_encoding(header: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Encoding:
    """Return the encoding that a header and its tensors describe.

    Raises:
        BnafError, LookupError, TypeError, ValueError, RuntimeError: If they describe none.
    """
    if "schema" in header:
        given = header.get("given_schema")
        schema = Schema.from_dict(header["schema"])
        given_schema = None if given is None else Schema.from_dict(given)
        moments = _standardisation(header["moments"], {})
        if moments.features != len(schema.names) + (
            len(given_schema.names) if given_schema else 0
        ):
            raise StorageError("moments must be those of all columns")
        return KindEncoding(schema, given_schema, moments.location, moments.scale)
    names = header["columns"] + header["given_columns"]
    if not all(isinstance(name, str) for name in names):
        raise TypeError("names of columns must be strings")
    matrices = {name.removeprefix(f"{SCALES}."): part for name, part in tensors.items()}
    return NumberEncoding(
        header["columns"],
        header["given_columns"],
        _standardisation(header[SCALES], matrices),
        _standardisation(header[f"given_{SCALES}"], {}),
        header["types"],
        Openings.from_list(header["openings"], len(header["columns"])),
        _ranges(header.get("ranges"), len(header["columns"])),
    )


def _ranges(stored: Any, columns: int) -> Tensor | None:
    """Return ranges of columns, which files of earlier versions do not have."""
    if stored is None:
        return None
    ends = dict(zip(("least", "largest"), stored, strict=True))
    ranges = torch.from_numpy(np.stack([numbers_of(ends, name) for name in ends]))
    if ranges.shape[1] != columns or (ranges[0] > ranges[1]).any():
        raise ValueError("ranges must be the least and the largest value of each column")
    return ranges


def _scales(scales: Any) -> dict[str, list[float]]:
    return {name: getattr(scales, name).tolist() for name in ("location", "scale")}


def _standardisation(parts: Mapping[str, Any], matrices: Mapping[str, Tensor]) -> Standardisation:
    tensors = {name: torch.tensor(parts[name], dtype=torch.float64) for name in parts}
    if not all(matrix.is_floating_point() for matrix in matrices.values()):
        raise TypeError("matrices must be of floating-point numbers")
    tensors |= matrices
    return Standardisation(
        tensors["location"], tensors["scale"], tensors.get("factor"), tensors.get("slopes")
    )
