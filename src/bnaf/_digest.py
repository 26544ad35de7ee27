"""Digests of what files hold, by which damage is found before anything is made of it."""

import hashlib
from collections.abc import Mapping

import torch
from torch import Tensor


def digest_contents(text: str, tensors: Mapping[str, Tensor]) -> str:
    """Return a digest of the header, and of names, types, shapes and values of all tensors."""
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name].contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
