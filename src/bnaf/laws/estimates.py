"""What is known of the law of a flow by sampling alone."""

from collections.abc import Callable, Iterator

import torch
from jaxtyping import Float
from torch import Generator, Tensor
from torch.distributions import Distribution

from bnaf._checks import whole
from bnaf._random import private_draws

DRAWS = 10_000  # of each estimate
CHUNK = 2**18  # rows that are drawn at a time
Measure = Callable[[Float[Tensor, "draws ..."]], Float[Tensor, "draws ..."]]


def estimate_mean(
    law: Distribution, measure: Measure, *, draws: int, generator: Generator | None
) -> Float[Tensor, "..."]:
    """Return the mean of something over draws of a law.

    Its error falls as one over the root of the number of draws.

    Args:
        law: The law.
        measure: What is averaged.
        draws: How many, for each entry of the law's batch.
        generator: Where they come from; torch's own by default.
    """
    draws = whole("draws", draws)
    total: Tensor | None = None
    for rows in _draw(law, draws, generator):
        part = measure(rows).sum(0)
        total = part if total is None else total + part
    assert total is not None
    return total / draws


@torch.no_grad()
def estimate_moments(
    law: Distribution,
) -> tuple[Float[Tensor, "*batch features"], Float[Tensor, "*batch features"]]:
    """Return the mean and the variance of every feature over draws of a fixed seed."""

    def mean(measure: Measure) -> Tensor:
        generator = torch.Generator().manual_seed(0)
        return estimate_mean(law, measure, draws=DRAWS, generator=generator)

    centre = mean(lambda rows: rows)
    return centre, mean(lambda rows: (rows - centre).square()) * (DRAWS / (DRAWS - 1))


def estimate_divergence(
    p: Distribution, q: Distribution, *, draws: int = DRAWS, generator: Generator | None = None
) -> Float[Tensor, "..."]:
    r"""Return :math:`\mathrm{KL}(p \,\|\, q)` as draws of p estimate it.

    .. math:: \mathrm{E}_{x \sim p} [\log p(x) - \log q(x)]

    Args:
        p: The law that is drawn from.
        q: The other.
        draws: How many, for each entry of p's batch.
        generator: Where they come from; torch's own by default.
    """

    def difference(rows: Tensor) -> Tensor:
        return torch.sub(p.log_prob(rows), q.log_prob(rows))

    return estimate_mean(p, difference, draws=draws, generator=generator)


def _draw(law: Distribution, draws: int, generator: Generator | None) -> Iterator[Tensor]:
    """Yield draws, with gradients where the law has them, some at a time."""
    size = max(1, CHUNK // max(1, law.batch_shape.numel()))
    draw = law.rsample if law.has_rsample and torch.is_grad_enabled() else law.sample
    for start in range(0, draws, size):
        shape = torch.Size((min(size, draws - start),))
        if generator is None:
            yield draw(shape)
            continue
        with private_draws(generator):
            rows = draw(shape)
        yield rows
