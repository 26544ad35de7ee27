"""Variational auto-encoders whose posterior is any conditional flow."""

from bnaf.vae.evidence import Evidence, estimate_evidence
from bnaf.vae.files import load_vae, save_vae
from bnaf.vae.objective import NegativeELBO
from bnaf.vae.posterior import Posterior
from bnaf.vae.vae import VAE

__all__ = [
    "VAE",
    "Evidence",
    "NegativeELBO",
    "Posterior",
    "estimate_evidence",
    "load_vae",
    "save_vae",
]
