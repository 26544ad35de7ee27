"""Model files: safetensors weights with a JSON header; no pickles.

A file says what it is in the metadata of the safetensors format: ``bnaf`` holds the JSON header,
``sha256`` a digest of that header and of all tensors. Nothing in a file is run. All that it claims
is held against its size before anything of that size is made.
"""

import json
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bnaf._digest import digest_contents
from bnaf._files import stored_file
from bnaf.errors import BnafError, SettingsError, StorageError
from bnaf.flows.flow import Flow
from bnaf.flows.registry import flow_name, flow_named, stored_names
from bnaf.model._blueprint import Shapes, build_flow, check_tensors, check_values, plan_flow
from bnaf.model._stored import TENSORS, encoding_fields, read_encoding, store_encoding
from bnaf.model.model import Model
from bnaf.training.record import check_record

FORMAT = (
    5  # 5: bounds of plain numbers; 4: columns of every kind; 3: factor and slopes are tensors
)
HEADER_LIMIT = 2**24  # bytes
PARTS_LIMIT = {"[": 2**18, "{": 2**18, '"': 2**20, ",": 2**21}  # of a header, as they are counted
UPGRADES: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {
    1: lambda header: header,
    2: lambda header: header,
    3: lambda header: header,
    4: lambda header: {"openings": [], **header},
}
"""From the header of a format to that of the next."""


def save(flow_or_model: nn.Module | Model, path: str | Path, *, overwrite: bool = True) -> None:
    """Write a flow or a model to a file, whole or not at all.

    Args:
        flow_or_model: What to keep: weights and settings, and of a model its columns,
            standardisation and training record.
        path: The file, by custom .safetensors.
        overwrite: Whether it may replace a file that exists.

    Raises:
        StorageError: If it cannot be written or made anew, or exists and may not be replaced.
        SettingsError: If the flow is of a class without a name.

    Example:
        >>> from bnaf import BNAF
        >>> save(BNAF(3), "flow.safetensors")  # doctest: +SKIP
        >>> flow = load("flow.safetensors", dtype=torch.float64)  # doctest: +SKIP
    """
    if not isinstance(flow_or_model, Flow | Model):
        raise StorageError(
            f"save expects a flow or a model, got {type(flow_or_model).__name__}; for a VAE use "
            "bnaf.vae.save_vae, for other modules safetensors.torch.save_model."
        )
    flow = flow_or_model.flow if isinstance(flow_or_model, Model) else flow_or_model
    tensors = flow.state_dict()
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    header = _describe(flow_or_model, flow)
    check_tensors(plan_flow(type(flow), flow.settings, shapes, "The flow"), shapes, "The flow")
    check_values(flow, "The flow")
    if isinstance(flow_or_model, Model):
        found = store_encoding(flow_or_model.encoding)[1]
        _model(flow, header, found, "The model")  # so that no file is written that cannot be read
        tensors |= found
    write_contents(Path(path), header, tensors, overwrite=overwrite)


def load(
    path: str | Path,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
) -> Any:
    """Return the flow or the model that a file holds.

    Args:
        path: A file written by :func:`save`.
        device: Where to put it; the CPU by default.
        dtype: Floating-point type of the flow; the one it was saved with by default.

    Raises:
        StorageError: If the file is truncated, altered, of a newer version, or no model file.
    """
    if dtype is not None and not dtype.is_floating_point:
        raise SettingsError(f"dtype must be a floating-point type, got {dtype}.")
    path = Path(path)
    header, tensors = read_contents(path, _check_model)
    found = {name: tensors.pop(name) for name in TENSORS if name in tensors}
    flow = make_flow(header, tensors, path.name)
    flow.to(device=device, dtype=dtype)
    if header["kind"] == "flow":
        return flow
    return _model(flow, header, found, path.name)


def _describe(what: Flow | Model, flow: Flow) -> dict[str, Any]:
    """Return the header of a flow or a model."""
    header: dict[str, Any] = {
        "kind": "model" if isinstance(what, Model) else "flow",
        "flow": flow_name(flow),
        "settings": flow.settings,
    }
    if isinstance(what, Model):
        header |= store_encoding(what.encoding)[0] | {"record": what.record}
    return header


def write_contents(
    path: Path, header: Mapping[str, Any], tensors: Mapping[str, Tensor], *, overwrite: bool
) -> None:
    """Write a header and tensors to a file, whole or not at all.

    Args:
        path: The file.
        header: Its facts, a ``kind`` among them; format and version are added.
        tensors: Its tensors.
        overwrite: Whether it may replace a file that exists.

    Raises:
        StorageError: If the header is too large or holds what JSON cannot, or the file cannot be
            written.
    """
    from safetensors.torch import save as pack

    text = _encode({"format": FORMAT, "library": version("bnaf"), **header})
    copies = {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, tensor in tensors.items()
    }
    content = pack(copies, {"bnaf": text, "sha256": digest_contents(text, copies)})
    with stored_file(path, overwrite=overwrite) as file:
        file.write(content)


def _encode(header: Mapping[str, Any]) -> str:
    try:
        check_record(header.get("record", {}))
        text = json.dumps(header)
    except (TypeError, ValueError, RecursionError) as error:
        raise StorageError(
            f"Settings and record must be made of what JSON can hold, got something else: {error}."
        ) from None
    if len(text) > HEADER_LIMIT // 2:  # escaped once more within the file
        raise StorageError(
            f"The header takes {len(text):,} bytes, expected {HEADER_LIMIT // 2:,} at most; keep "
            "a shorter record."
        )
    _check_parts(text, "The model")
    return text


def _check_parts(text: str, name: str) -> None:
    """Refuse a header of many parts: in memory they take far more than as text."""
    for mark, most in PARTS_LIMIT.items():
        if text.count(mark) > most:
            raise StorageError(
                f"{name} has a header with {text.count(mark):,} times {mark!r}, expected "
                f"{most:,} at most; its record is too long, or it is no model file."
            )


def read_contents(
    path: Path, check: Callable[[dict[str, Any], Shapes, str], None]
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return header and tensors of a file, each checked before the next is read.

    Args:
        path: The file.
        check: Called with the header, the shapes of the tensors and a name for the file, before
            a tensor is read; it raises a StorageError where they do not belong together.

    Raises:
        StorageError: If the file is truncated, altered, of a newer version, or no model file.
    """
    from safetensors import SafetensorError, safe_open

    _check_length(path)
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            header = _read_header(metadata, path.name)
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
            shapes = {name: tuple(part.get_shape()) for name, part in slices.items()}
            check(header, shapes, path.name)
            tensors = {name: file.get_tensor(name) for name in shapes}
    except StorageError:
        raise
    except (SafetensorError, OSError, ValueError, TypeError, KeyError, RuntimeError) as error:
        raise StorageError(
            f"{path.name} is truncated or no model file: {str(error)[:200]}. Copy it again."
        ) from None
    if digest_contents(metadata["bnaf"], tensors) != metadata.get("sha256"):
        raise StorageError(
            f"{path.name} was altered after it was saved: its digest is not the one expected. "
            "Copy it again."
        )
    return header, tensors


def _check_length(path: Path) -> None:
    """Refuse a file too short for what its first bytes say, or that says too much."""
    if not path.is_file():
        what = "a folder" if path.is_dir() else "nothing"
        raise StorageError(f"Expected a model file at {path}, got {what}; check the path.")
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
    if size >= 10 and length > HEADER_LIMIT:
        raise StorageError(
            f"{path.name} is no model file: it does not begin as one, with the length of a header "
            f"of {HEADER_LIMIT:,} bytes at most. Give a file written by bnaf.save or bnaf fit."
        )
    if size < 10 or length > size - 8:
        raise StorageError(
            f"{path.name} is truncated or no model file: it has {size:,} bytes, expected a header "
            f"of {length:,} and what follows. Copy it again."
        )


def _read_header(metadata: Mapping[str, str], name: str) -> dict[str, Any]:
    """Return the header in today's format."""
    if "bnaf" not in metadata:
        raise StorageError(
            f"{name} is a safetensors file of something else: expected metadata named 'bnaf', got "
            f"{sorted(metadata) or 'none'}. Give a file written by bnaf.save."
        )
    _check_parts(metadata["bnaf"], name)
    try:
        header = json.loads(metadata["bnaf"])
    except (ValueError, RecursionError) as error:
        raise StorageError(f"{name} has a header that is no JSON: {str(error)[:200]}.") from None
    if not isinstance(header, dict):
        raise StorageError(f"{name} has a header that is no object, got {type(header).__name__}.")
    return _upgrade(header, name)


def check_fields(header: Mapping[str, Any], fields: Mapping[str, type], name: str) -> None:
    """Check that the fields of a header are there, and of their types.

    Raises:
        StorageError: If one is not.
    """
    for field, kind in fields.items():
        if not isinstance(header.get(field), kind):
            raise StorageError(
                f"{name} expects {field!r} of type {kind.__name__} in its header, got "
                f"{type(header.get(field)).__name__}."
            )


def _check_model(header: dict[str, Any], shapes: Shapes, name: str) -> None:
    """Check that a file holds a flow or a model, and the tensors that belong to it."""
    if header.get("kind") == "vae":
        raise StorageError(
            f"{name} holds a VAE, expected a flow or a model; load it with bnaf.vae.load_vae."
        )
    fields: dict[str, type] = {"kind": str, "flow": str, "settings": dict}
    if header.get("kind") == "model":
        fields |= encoding_fields(header) | {"record": dict}
    check_fields(header, fields, name)
    if header["kind"] not in ("flow", "model") or header["flow"] not in stored_names():
        raise StorageError(
            f"{name} holds a {header['kind'][:40]!r} named {header['flow'][:40]!r}, expected a "
            f"'flow' or a 'model' named {' or '.join(map(repr, stored_names()))}. Update bnaf?"
        )
    if header["kind"] == "model":
        shapes = {tensor: shape for tensor, shape in shapes.items() if tensor not in TENSORS}
    check_flow(header, shapes, name)


def check_flow(header: dict[str, Any], shapes: Shapes, name: str) -> None:
    """Check that tensors are those of the flow that a header describes.

    Args:
        header: Names the ``flow`` and its ``settings``, which are brought up to date.
        shapes: Those of the tensors.
        name: What to call the file in messages.

    Raises:
        StorageError: If they do not belong together.
    """
    kind = flow_named(header["flow"])
    header["settings"] = kind.settings_of(header["settings"])
    check_tensors(plan_flow(kind, header["settings"], shapes, name), shapes, name)


def make_flow(header: Mapping[str, Any], tensors: Mapping[str, Tensor], name: str) -> Flow:
    """Return the flow that a header describes, with weights that were checked.

    Raises:
        StorageError: If their types or values are not possible.
    """
    return build_flow(flow_named(header["flow"]), header["settings"], tensors, name)


def _upgrade(header: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the header of a file of any version in today's format."""
    found = header.get("format")
    if not isinstance(found, int) or isinstance(found, bool):
        raise StorageError(f"{name} expects a format number in its header, got {found!r:.40}.")
    if found > FORMAT:
        raise StorageError(
            f"{name} is of format {found}, written by bnaf {header.get('library')!s:.20}; this "
            f"version ({version('bnaf')}) reads formats up to {FORMAT}. Update bnaf."
        )
    while found < FORMAT:
        if found not in UPGRADES:
            raise StorageError(
                f"{name} is of format {found}, which this version ({version('bnaf')}) no longer "
                f"reads; expected {FORMAT}. Load and save it with bnaf "
                f"{header.get('library')!s:.20} or the first version after it that reads it."
            )
        header, found = UPGRADES[found](header), found + 1
    return header


def _model(
    flow: Flow, header: Mapping[str, Any], tensors: Mapping[str, Tensor], name: str
) -> Model:
    try:
        check_record(header["record"])
        return Model(flow, read_encoding(header, tensors), record=header["record"])
    except (BnafError, LookupError, TypeError, ValueError, RuntimeError, ArithmeticError) as error:
        raise StorageError(
            f"{name} has columns or a record that do not fit its flow: {error}"
        ) from None
