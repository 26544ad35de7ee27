"""Draws that are private: torch's own generators are left as they were found."""

import hashlib
import secrets
from collections.abc import Iterator
from contextlib import contextmanager

import torch


def mix_seed(seed: int, *numbers: int) -> int:
    """Return a seed for the draws of those numbers, unlike those of their neighbours."""
    for number in numbers:
        digest = hashlib.blake2b(f"{seed}:{number}".encode(), digest_size=4).digest()
        seed = int.from_bytes(digest, "big")
    return seed


@contextmanager
def private_draws(seed: int | None = None, device: torch.device | None = None) -> Iterator[None]:
    """Lend torch's generators a state of our own for a while.

    Args:
        seed: The seed; one of the system's by default.
        device: Where values are drawn, beside the CPU.
    """
    seed = secrets.randbits(62) if seed is None else seed
    cuda = device is not None and device.type == "cuda"
    with torch.random.fork_rng(devices=[device] if cuda else []):
        torch.default_generator.manual_seed(seed)
        if cuda:
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        yield
