"""The log-likelihood of a VAE, by importance sampling."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from bnaf._checks import whole
from bnaf._random import private_draws
from bnaf.vae.vae import VAE

CHUNK = 500  # draws that are decoded at once


@dataclass(frozen=True)
class Evidence:
    """Estimates of log p(x), row by row.

    Args:
        log_likelihoods: One number per row, in nats.
        errors: Standard error of each, from the spread of its weights.
        samples: Number of draws for each row.
    """

    log_likelihoods: Float[Tensor, " rows"]
    errors: Float[Tensor, " rows"]
    samples: int

    @property
    def mean(self) -> float:
        """Mean over rows."""
        return self.log_likelihoods.mean().item()

    @property
    def standard_error(self) -> float:
        """Standard error of the mean: the rows are a sample of all there might be."""
        if len(self.log_likelihoods) < 2:
            return math.nan
        return self.log_likelihoods.std().item() / math.sqrt(len(self.log_likelihoods))


@torch.no_grad()
def estimate_evidence(
    vae: VAE,
    x: Tensor,
    *,
    samples: int = 5000,
    chunk: int = CHUNK,
    seed: int | None = None,
    tell: Callable[[int], None] | None = None,
) -> Evidence:
    r"""Estimate the log-likelihood of rows by importance sampling from the posterior.

    .. math:: \log \hat p(x) = \log \frac1S \sum_s w_s, \qquad
              w_s = \frac{p(x \mid z_s) \, p(z_s)}{q(z_s \mid x)}, \qquad z_s \sim q(z \mid x)

    Its expectation is a lower bound that rises with S, from the ELBO at S = 1 to log p(x) where
    the posterior has mass wherever the prior has; that of :meth:`bnaf.BNAF.paper` has a bounded
    range, and its bound stays below by what the prior and the decoder have outside of it. Sums
    are kept as logarithms in float64, so that memory does not grow with S. The standard error of
    a row follows from the spread of its weights: :math:`\sqrt{\sum w^2 / (\sum w)^2 - 1/S}`.

    Args:
        vae: The model, as it is: call ``vae.eval()`` where its parts differ in training.
        x: Rows.
        samples: Number S of draws for each row.
        chunk: Draws that are decoded at once, which bounds the memory.
        seed: Seed of the draws; torch's own generator without one.
        tell: Called with the number of rows that are done.

    Raises:
        SettingsError: If a number is not a whole one of at least 1.
    """
    samples, chunk = whole("samples", samples), whole("chunk", chunk)
    if seed is not None:
        with private_draws(seed):
            return estimate_evidence(vae, x, samples=samples, chunk=chunk, tell=tell)
    rows = max(1, chunk // samples)
    parts = []
    for first in range(0, len(x), rows):
        parts.append(_log_sums(vae, x[first : first + rows], samples, chunk))
        if tell is not None:
            tell(min(first + rows, len(x)))
    log_sum, log_square = (torch.cat(part) for part in zip(*parts, strict=True))
    spread = (log_square - 2 * log_sum).exp() - 1 / samples
    return Evidence(log_sum - math.log(samples), spread.clamp(min=0).sqrt(), samples)


def _log_sums(vae: VAE, x: Tensor, samples: int, chunk: int) -> tuple[Tensor, Tensor]:
    """Return the logarithms of the sums of the weights of each row, and of their squares."""
    law = vae.encode(x)
    sums = [torch.full((len(x),), -math.inf, dtype=torch.float64, device=x.device)] * 2
    for first in range(0, samples, chunk):
        likelihood, log_ratio = vae.log_terms(x, law, min(chunk, samples - first))
        log_weights = likelihood.double() + log_ratio.double()
        sums = [
            torch.logaddexp(total, torch.logsumexp(power * log_weights, 0))
            for power, total in enumerate(sums, 1)
        ]
    return sums[0], sums[1]
