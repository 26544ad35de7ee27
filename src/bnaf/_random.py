"""Draws that are private: torch's own generators are neither used nor disturbed.

In plain torch a mode gives generators of our own to whatever draws, or, where nothing else does,
to what the library draws. Compiled code takes neither modes nor generators, so what the library
draws in it is drawn by an operator, which finds them when it runs.
"""

import hashlib
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar, Token
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Generator, Tensor, nn
from torch.overrides import TorchFunctionMode

from bnaf._torch import GAMMA_DRAWS

_TAKE_GENERATORS: frozenset[Callable[..., Any]] = frozenset(
    [
        *(torch.rand, torch.randn, torch.randint, torch.randperm, torch.normal),
        *(torch.bernoulli, torch.binomial, torch.multinomial, torch.poisson),
        *GAMMA_DRAWS,
        *(Tensor.uniform_, Tensor.normal_, Tensor.log_normal_, Tensor.cauchy_),
        *(Tensor.bernoulli, Tensor.bernoulli_, Tensor.exponential_, Tensor.geometric_),
        *(Tensor.multinomial, Tensor.random_),
        *(nn.init.uniform_, nn.init.normal_, nn.init.trunc_normal_, nn.init.orthogonal_),
        *(nn.init.xavier_uniform_, nn.init.xavier_normal_, nn.init.sparse_),
        *(nn.init.kaiming_uniform_, nn.init.kaiming_normal_),
    ]
)
_ALIKE = {torch.rand_like: torch.rand, torch.randn_like: torch.randn}
_library: "ContextVar[_PrivateDraws | None]" = ContextVar("library", default=None)
_wanted: ContextVar[bool] = ContextVar("wanted", default=True)


def mix_seed(seed: int, *numbers: int) -> int:
    """Return a seed for the draws of those numbers, unlike those of their neighbours."""
    for number in numbers:
        digest = hashlib.blake2b(f"{seed}:{number}".encode(), digest_size=4).digest()
        seed = int.from_bytes(digest, "big")
    return seed


def private_draws(source: int | Generator | None = None) -> AbstractContextManager[Any]:
    """Let what draws in this thread draw from generators of our own for a while.

    Args:
        source: The seed, or the generator itself; a seed of the system's by default.
    """
    return _PrivateDraws(secrets.randbits(62) if source is None else source)


@contextmanager
def library_draws(seed: int) -> Iterator[None]:
    """Let :func:`draw_normal` and `Dropout` draw from generators of our own, and nothing else.

    Compiled code knows no other way, and plain torch is not slowed down by it.

    Args:
        seed: The seed; the numbers are those of :func:`private_draws`.
    """
    token = _library.set(_PrivateDraws(seed))
    try:
        yield
    finally:
        _library.reset(token)


def draw_normal(
    shape: Sequence[int], like: Tensor, generator: Generator | None = None
) -> Float[Tensor, "..."]:
    """Return standard normal numbers of the type and on the device of a tensor."""
    if generator is None and _is_compiled():
        drawn: Tensor = _draw(shape, None, like.dtype, like.device)
        return drawn
    private = _library_mode()
    if generator is None and private is not None:
        generator = private.generator(like.device)
    if generator is None:  # not given at all: exports of an open shape know no other way
        return torch.randn(shape, dtype=like.dtype, device=like.device)
    return torch.randn(shape, dtype=like.dtype, device=like.device, generator=generator)


class Dropout(nn.Dropout):
    """Torch's dropout, whose masks are ours in compiled code and among our own draws too."""

    def forward(self, input: Tensor) -> Tensor:
        private = _library_mode()
        if private is not None:
            return private.drop_out(input, self.p, self.training)
        if not (self.training and self.p and _is_compiled()):
            return super().forward(input)
        kept: Tensor = _draw(input.shape, 1 - self.p, input.dtype, input.device)
        return input * (kept / (1 - self.p))


def _library_mode() -> "_PrivateDraws | None":
    """Return where the library draws from, if it is told; torch.compile cannot look it up."""
    return None if torch.compiler.is_dynamo_compiling() else _library.get()


def _is_compiled() -> bool:
    """Tell whether torch.compile looks on; what is exported must run without the library."""
    return torch.compiler.is_dynamo_compiling() and not torch.compiler.is_exporting()


@torch.library.custom_op("bnaf::draw", mutates_args=(), tags=(torch.Tag.nondeterministic_seeded,))
def _draw(
    shape: Sequence[int], share: float | None, dtype: torch.dtype, device: torch.device
) -> Tensor:
    """Return standard normal numbers or, given a share, as many ones among zeros."""
    private = _library.get()
    generator = None if private is None else private.generator(device)
    if share is None:
        return torch.randn(shape, dtype=dtype, device=device, generator=generator)
    return torch.empty(shape, dtype=dtype, device=device).bernoulli_(share, generator=generator)


@_draw.register_fake
def _(
    shape: Sequence[int], share: float | None, dtype: torch.dtype, device: torch.device
) -> Tensor:
    return torch.empty(shape, dtype=dtype, device=device)


class _PrivateDraws(TorchFunctionMode):
    """Torch with a generator given to whatever draws without one; other threads see none of it."""

    def __init__(self, source: int | Generator) -> None:
        super().__init__()
        self.generators: dict[torch.device, Generator] = {}
        if isinstance(source, Generator):
            self.generators[source.device] = source
            source = source.initial_seed()
        self.seed = source
        self._tokens: list[Token[_PrivateDraws | None]] = []

    def __enter__(self) -> "_PrivateDraws":
        self._tokens.append(_library.set(None))  # the innermost is the one that counts
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *problem: Any) -> None:
        super().__exit__(*problem)  # type: ignore[no-untyped-call]
        _library.reset(self._tokens.pop())

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func is F.dropout:
            return self.drop_out(*args, **kwargs)
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
        return func(*args, **kwargs | {"generator": self.generator(device)})

    def drop_out(
        self, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
    ) -> Tensor:
        """Return what torch's dropout does, which takes no generator."""
        if not training or p == 0:
            return input
        kept = torch.empty_like(input).bernoulli_(1 - p, generator=self.generator(input.device))
        scaled = kept / (1 - p) if p < 1 else kept
        return input.mul_(scaled) if inplace else input * scaled

    def generator(self, device: torch.device) -> Generator:
        """Return the generator of a device."""
        if device not in self.generators:
            self.generators[device] = Generator(device).manual_seed(self.seed)
        return self.generators[device]


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
