"""Draws that are private: torch's own generators are neither used nor disturbed."""

import hashlib
import secrets
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn
from torch.overrides import TorchFunctionMode

_TAKE_GENERATORS: frozenset[Callable[..., Any]] = frozenset(
    [
        *(torch.rand, torch.randn, torch.randint, torch.randperm, torch.normal),
        *(torch.bernoulli, torch.binomial, torch.multinomial, torch.poisson),
        *(torch._standard_gamma, torch._sample_dirichlet),
        *(Tensor.uniform_, Tensor.normal_, Tensor.log_normal_, Tensor.cauchy_),
        *(Tensor.bernoulli, Tensor.bernoulli_, Tensor.exponential_, Tensor.geometric_),
        *(Tensor.multinomial, Tensor.random_),
        *(nn.init.uniform_, nn.init.normal_, nn.init.trunc_normal_, nn.init.orthogonal_),
        *(nn.init.xavier_uniform_, nn.init.xavier_normal_, nn.init.sparse_),
        *(nn.init.kaiming_uniform_, nn.init.kaiming_normal_),
    ]
)
_ALIKE = {torch.rand_like: torch.rand, torch.randn_like: torch.randn}
_wanted: ContextVar[bool] = ContextVar("wanted", default=True)


def mix_seed(seed: int, *numbers: int) -> int:
    """Return a seed for the draws of those numbers, unlike those of their neighbours."""
    for number in numbers:
        digest = hashlib.blake2b(f"{seed}:{number}".encode(), digest_size=4).digest()
        seed = int.from_bytes(digest, "big")
    return seed


def private_draws(seed: int | None = None) -> AbstractContextManager[Any]:
    """Let what draws in this thread draw from generators of our own for a while.

    Args:
        seed: The seed; one of the system's by default.
    """
    return _PrivateDraws(secrets.randbits(62) if seed is None else seed)


class _PrivateDraws(TorchFunctionMode):
    """Torch with a generator given to whatever draws without one; other threads see none of it."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.seed = seed
        self.generators: dict[torch.device, Generator] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func is F.dropout:
            return self._drop_out(*args, **kwargs)
        draws = func in _TAKE_GENERATORS or func in _ALIKE
        if not draws or kwargs.get("generator") is not None:
            return func(*args, **kwargs)
        device = _device(args, kwargs)
        if device.type == "meta":
            return func(*args, **kwargs)
        if func in _ALIKE:
            like, *args = args
            kwargs = {"dtype": like.dtype, "device": device} | kwargs
            func, args = _ALIKE[func], (like.shape, *args)
        return func(*args, **kwargs | {"generator": self._generator(device)})

    def _drop_out(
        self, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
    ) -> Tensor:
        """Return what torch's dropout does, which takes no generator."""
        if not training or p == 0:
            return input
        kept = torch.empty_like(input).bernoulli_(1 - p, generator=self._generator(input.device))
        scaled = kept / (1 - p) if p < 1 else kept
        return input.mul_(scaled) if inplace else input * scaled

    def _generator(self, device: torch.device) -> Generator:
        if device not in self.generators:
            self.generators[device] = Generator(device).manual_seed(self.seed)
        return self.generators[device]


@contextmanager
def lent_draws(seed: int, device: torch.device) -> Iterator[None]:
    """Lend torch's own generators a state of ours, for code that takes no others.

    Whatever other threads draw meanwhile is disturbed.

    Args:
        seed: The seed.
        device: Where values are drawn, beside the CPU.
    """
    cuda = device.type == "cuda"
    with torch.random.fork_rng(devices=[device] if cuda else []):
        torch.default_generator.manual_seed(seed)
        if cuda:
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        yield


def _device(args: Any, kwargs: dict[str, Any]) -> torch.device:
    """Return where a function is going to draw."""
    if kwargs.get("device") is not None:
        return torch.device(kwargs["device"])
    tensors = (value for value in (*args, *kwargs.values()) if isinstance(value, Tensor))
    first = next(tensors, None)
    return torch.get_default_device() if first is None else first.device


def draws_wanted() -> bool:
    """Tell whether a constructor is to draw weights; not where others are about to be loaded."""
    return _wanted.get()


@contextmanager
def without_draws() -> Iterator[None]:
    """Let constructors leave weights as they are, because others are about to be loaded."""
    token = _wanted.set(False)
    try:
        yield
    finally:
        _wanted.reset(token)
