"""The variational auto-encoder."""

from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from bnaf._checks import whole
from bnaf.errors import ShapeError
from bnaf.laws.bases import StandardNormal
from bnaf.laws.distribution import FlowDistribution
from bnaf.vae.posterior import Posterior


@runtime_checkable
class Law(Protocol):
    """What a decoder and a prior return: anything with these two methods of torch's laws."""

    def log_prob(self, value: Tensor, /) -> Tensor:
        """Return one number per row, in nats."""

    def sample(self, sample_shape: Any = ..., /) -> Tensor:
        """Draw rows: so many for each row of latents, one by default."""


class VAE(nn.Module):
    r"""Model of x by latents z, with a posterior that is learned beside it.

    .. math::
        \log p(x) \ge \mathrm{E}_{q(z \mid x)} [\log p(x \mid z) + \log p(z) - \log q(z \mid x)]

    Its parts are any modules: the encoder maps rows to features, the decoder latents to a law of
    rows, and the prior, called without arguments, is a law of latents. A law is a torch
    distribution or anything else with ``log_prob`` and ``sample``; that of a decoder which reads
    what it has written so far, as those of text do, runs the decoder in its ``log_prob``.

    Args:
        encoder: From rows, whose first dimension counts them, to ``context_features`` columns.
        posterior: From these to a law of latents.
        decoder: From a row of latents each to a law of rows.
        prior: Law of latents, as an unconditional flow is; standard normal by default.

    Attributes:
        record: Whatever is to be kept with it in a file, ready for JSON.

    Example:
        >>> from torch.distributions import Bernoulli, Independent
        >>> class Decoder(nn.Linear):
        ...     def forward(self, z):
        ...         return Independent(Bernoulli(logits=super().forward(z)), 1)
        >>> vae = VAE(nn.Linear(6, 4), Posterior(2, 4), Decoder(2, 6))
        >>> vae.elbo(torch.ones(3, 6)).shape, vae.sample(5).shape
        (torch.Size([3]), torch.Size([5, 6]))
    """

    def __init__(
        self,
        encoder: nn.Module,
        posterior: Posterior,
        decoder: nn.Module,
        prior: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.encoder, self.posterior, self.decoder = encoder, posterior, decoder
        self.prior = prior
        self.record: dict[str, Any] = {}

    @property
    def latents(self) -> int:
        """Number of latents."""
        return self.posterior.features

    def encode(self, x: Tensor) -> FlowDistribution:
        """Return the law of the latents of each row."""
        features = self.encoder(x)
        if features.shape[:-1] != x.shape[:1]:
            raise ShapeError(
                f"encoder must return one row of features for each of {len(x)} rows, got shape "
                f"{tuple(features.shape)}."
            )
        law: FlowDistribution = self.posterior(features)
        return law

    def decode(self, z: Float[Tensor, "rows latents"]) -> Law:
        """Return the law of rows given latents."""
        law: Law = self.decoder(z)
        return law

    def prior_law(self) -> Law:
        """Return the law of the latents before anything is seen."""
        if self.prior is None:
            return StandardNormal(self.latents, self.posterior.mean.weight)
        law: Law = self.prior()
        return law

    def log_terms(
        self, x: Tensor, law: FlowDistribution, draws: int = 1
    ) -> tuple[Float[Tensor, "draws rows"], Float[Tensor, "draws rows"]]:
        """Draw latents and return log p(x | z) and log p(z) - log q(z | x).

        Args:
            x: Rows.
            law: What :meth:`encode` returned of them.
            draws: Number of draws for each row.
        """
        z, log_posterior = law.rsample_and_log_prob((draws,))
        flat = z.flatten(0, 1)
        again = x if draws == 1 else x.expand(draws, *x.shape).flatten(0, 1)
        likelihood = self.decode(flat).log_prob(again)
        if likelihood.shape != flat.shape[:1]:
            raise ShapeError(
                f"decoder must return a law whose log_prob has one number per row, shape "
                f"({len(flat)},), got shape {tuple(likelihood.shape)}."
            )
        prior = self.prior_law().log_prob(z)
        return likelihood.view(draws, -1), prior - log_posterior

    def elbo(self, x: Tensor, *, draws: int = 1) -> Float[Tensor, " rows"]:
        """Return the lower bound of the log-likelihood of each row, in nats, as draws estimate it.

        Args:
            x: Rows.
            draws: Number of draws that are averaged.
        """
        likelihood, log_ratio = self.log_terms(x, self.encode(x), whole("draws", draws))
        return (likelihood + log_ratio).mean(0)

    @torch.no_grad()
    def reconstruct(self, x: Tensor) -> Tensor:
        """Return what the decoder expects where the latents of each row are drawn once."""
        return expected(self.decode(self.encode(x).sample()))

    @torch.no_grad()
    def sample(self, count: int, *, expect: bool = False) -> Tensor:
        """Draw rows from the model.

        Args:
            count: How many.
            expect: Whether to return what the decoder expects in place of a draw of it.
        """
        law = self.decode(self.prior_law().sample((whole("count", count),)))
        return expected(law) if expect else law.sample()

    @torch.no_grad()
    def interpolate(self, x: Tensor, y: Tensor, *, steps: int = 8) -> Tensor:
        """Return what the decoder expects on straight lines between the latents of two rows.

        Args:
            x: Rows to begin with.
            y: As many rows to end with.
            steps: Points of each line, both ends included; they come second in the result.
        """
        begin, end = self.encode(x).sample(), self.encode(y).sample()
        share = torch.linspace(0, 1, whole("steps", steps, least=2)).to(begin)
        z = torch.lerp(begin.unsqueeze(1), end.unsqueeze(1), share.view(-1, 1))
        lines = expected(self.decode(z.flatten(0, 1)))
        return lines.view(len(x), steps, *lines.shape[1:])


def expected(law: Any) -> Tensor:
    """Return the mean of a law, or a draw where it has none."""
    try:
        mean: Tensor = law.mean
    except (AttributeError, NotImplementedError):
        mean = law.sample()
    return mean
