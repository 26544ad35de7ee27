"""VAEs in model files: posterior, weights and record; encoder and decoder are the caller's."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bnaf.errors import BnafError, StorageError
from bnaf.flows.registry import flow_name, flow_names
from bnaf.model.files import check_fields, check_flow, make_flow, read_contents, write_contents
from bnaf.vae.posterior import Posterior
from bnaf.vae.vae import VAE

FLOW = "posterior.flow."


def save_vae(vae: VAE, path: str | Path, *, overwrite: bool = True) -> None:
    """Write a VAE to a file, whole or not at all.

    The file holds all weights, what makes the posterior anew, and ``vae.record``. It holds no
    code: who loads it brings modules of the same shapes for the other parts.

    Args:
        vae: What to keep.
        path: The file, by custom .safetensors.
        overwrite: Whether it may replace a file that exists.

    Raises:
        StorageError: If it cannot be written, holds numbers that are not finite, or exists and
            may not be replaced.
        SettingsError: If the flow is of a class without a name.

    Example:
        >>> save_vae(vae, "vae.safetensors")  # doctest: +SKIP
        >>> vae = load_vae("vae.safetensors", Encoder(), Decoder())  # doctest: +SKIP
    """
    posterior = vae.posterior
    header: dict[str, Any] = {
        "kind": "vae",
        "posterior": {
            "features": posterior.features,
            "context_features": posterior.context_features,
            "variance_bounds": posterior.variance_bounds,
        },
        "flow": "" if posterior.flow is None else flow_name(posterior.flow),
        "settings": {} if posterior.flow is None else posterior.flow.settings,
        "record": vae.record,
    }
    tensors = vae.state_dict()
    _check_finite(tensors, "The VAE")
    write_contents(Path(path), header, tensors, overwrite=overwrite)


def load_vae(
    path: str | Path,
    encoder: nn.Module,
    decoder: nn.Module,
    prior: nn.Module | None = None,
    *,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
) -> VAE:
    """Return the VAE that a file holds; weights are loaded into the modules that are given.

    Args:
        path: A file written by :func:`save_vae`.
        encoder: Module whose weights have the shapes of those in the file.
        decoder: Likewise.
        prior: Likewise; none where the VAE had none.
        device: Where to put it; the CPU by default.
        dtype: Floating-point type; the one it was saved with by default.

    Raises:
        StorageError: If the file is truncated, altered, no VAE, or one of other modules.
    """
    path = Path(path)
    header, tensors = read_contents(path, _check_vae)
    _check_finite(tensors, path.name)
    flow = make_flow(header, _within_flow(tensors), path.name) if header["flow"] else None
    try:
        posterior = Posterior(**header["posterior"], flow=flow)
    except (BnafError, TypeError, ValueError) as error:
        raise StorageError(f"{path.name} has a posterior that cannot be made: {error}") from None
    vae = VAE(encoder, posterior, decoder, prior)
    vae.record = header["record"]
    kept = tensors["posterior.mean.weight"].dtype
    if not kept.is_floating_point:
        raise StorageError(f"{path.name} expects weights of a floating-point type, got {kept}.")
    vae.to(kept)
    if flow is not None:  # it has its weights
        posterior.flow = None
        tensors = {key: part for key, part in tensors.items() if not key.startswith(FLOW)}
    try:
        vae.load_state_dict(tensors)
    except RuntimeError as error:
        told = " ".join(str(error).split())[:300]
        raise StorageError(
            f"{path.name} holds weights of other modules than those given: {told}"
        ) from None
    posterior.flow = flow
    return vae.to(device=device, dtype=dtype)


def _check_vae(header: dict[str, Any], shapes: Mapping[str, Any], name: str) -> None:
    """Check that a file holds a VAE, and a posterior whose tensors belong to it."""
    fields = {"kind": str, "posterior": dict, "flow": str, "settings": dict, "record": dict}
    check_fields(header, fields, name)
    if header["kind"] != "vae" or header["flow"] not in ("", *flow_names()):
        raise StorageError(
            f"{name} holds a {header['kind'][:40]!r} with the flow {header['flow'][:40]!r}, "
            "expected a 'vae'; load flows and models with bnaf.load."
        )
    posterior = header["posterior"]
    sizes = posterior.get("features"), posterior.get("context_features")
    if shapes.get("posterior.mean.weight") != sizes:
        raise StorageError(
            f"{name} expects a tensor of shape {sizes!r:.60} 'posterior.mean.weight', got "
            f"{shapes.get('posterior.mean.weight')}; was it altered?"
        )
    if header["flow"]:
        check_flow(header, _within_flow(shapes), name)


def _within_flow(entries: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name.removeprefix(FLOW): entry for name, entry in entries.items() if name.startswith(FLOW)
    }


def _check_finite(tensors: Mapping[str, Tensor], name: str) -> None:
    for key, tensor in tensors.items():
        if tensor.is_floating_point() and not tensor.isfinite().all():
            raise StorageError(
                f"{name} expects finite weights, got others in {key[:60]!r}; train it again."
            )
