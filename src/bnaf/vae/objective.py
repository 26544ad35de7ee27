"""The evidence lower bound as an objective of the training loop."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from bnaf._checks import whole
from bnaf.training import Batch, Objective
from bnaf.vae.vae import VAE


class NegativeELBO(Objective):
    r"""Mean negative lower bound of the log-likelihood, its divergence grown over a warm-up.

    .. math:: -\mathrm{E}_{q} [\log p(x \mid z) + \beta (\log p(z) - \log q(z \mid x))]

    A posterior that pays for its latents from the first step on may give up on using them. So
    :math:`\beta` grows from 0 to 1 over the steps of the warm-up; losses that are evaluated, not
    trained on, always have all of it. ``bnaf.fit(vae, rows, objective=NegativeELBO(vae))`` trains
    a VAE as it trains a flow.

    Args:
        vae: What is trained.
        warm_up: Steps over which the divergence grows; 0 for none.
        latent_draws: Draws of the latents for each row, whose losses are averaged.

    Raises:
        SettingsError: If a number is not a whole one, or too small.
    """

    draws = True
    steps: Tensor

    def __init__(self, vae: VAE, *, warm_up: int = 0, latent_draws: int = 1) -> None:
        super().__init__()
        self.vae = vae
        self.warm_up = whole("warm_up", warm_up, least=0)
        self.latent_draws = whole("latent_draws", latent_draws)
        if self.warm_up:  # kept with the weights, so that a run that goes on knows where it stood
            self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    @property
    def trained(self) -> nn.Module:
        """The VAE."""
        return self.vae

    @property
    def settings(self) -> dict[str, Any]:
        """Steps of the warm-up, and draws for each row."""
        return {"warm_up": self.warm_up, "latent_draws": self.latent_draws}

    @property
    def counted_from(self) -> int:
        """Step by which the divergence has grown."""
        return self.warm_up

    def rates(self) -> dict[str, tuple[float, list[nn.Parameter]]]:
        """Return none: the shares of flows are of a flow's rate, and a VAE is trained at one."""
        return {}

    def losses(self, batch: Batch) -> Float[Tensor, " rows"]:
        rows = batch.rows
        likelihood, log_ratio = self.vae.log_terms(rows, self.vae.encode(rows), self.latent_draws)
        if self.training and self.warm_up:
            log_ratio = log_ratio * self._share()
        return -(likelihood + log_ratio).mean(0)

    def _share(self) -> Float[Tensor, ""]:
        """Return how much of the divergence this step feels, and count the step."""
        self.steps += 1
        return (self.steps / self.warm_up).clamp(max=1)
