"""One VAE of the study: trained, kept, measured; each of it goes on where it was cut short."""

import json
import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float64, Int
from torch import Generator, Tensor, nn
from torch.optim import Adamax

from bnaf._files import atomic_file
from bnaf._random import mix_seed, private_draws
from bnaf.errors import SettingsError
from bnaf.evaluation.scores import block_means, standard_error
from bnaf.studies.ledger import Record, describe_machine
from bnaf.studies.vae.data import ImageParts, evaluation_source, training_source
from bnaf.studies.vae.networks import Decoder, Encoder, ImageKind
from bnaf.studies.vae.plans import STUDY, VaeTrial, Variant
from bnaf.training import TrainingRecord, fit
from bnaf.training.progress import Progress
from bnaf.vae import VAE, NegativeELBO, estimate_evidence, load_vae, save_vae

EPSILON = 1e-7  # of Adamax
CHECKPOINT_SECONDS = 300.0  # with its optimiser a VAE takes up to 700 MB
ELBO_DRAWS = 10
ELBO_IMAGES = 20  # at a time
EVIDENCE_IMAGES = 10  # after which what there is is kept
DECODED = 200  # draws at a time
CURVE = 200  # points of a curve that are recorded, at most
TEST_SEED = 1_000_000

Tell = Callable[[str], None]


def vae_file(folder: Path, stem: str, epochs: int) -> Path:
    """Return where the trained VAE of a run is kept."""
    return folder / f"{stem}-{epochs}.safetensors"


def carry_out(
    trial: VaeTrial, images: ImageParts, folder: Path, progress: Progress, tell: Tell
) -> Record:
    """Train a VAE, or carry it on, keep it and measure it.

    Args:
        trial: What to do.
        images: What to train on, to choose by and to test with.
        folder: Where its checkpoint and the trained VAE are kept.
        progress: Display of the training.
        tell: Called with lines on the measuring.

    Raises:
        KeyboardInterrupt: If it was asked to stop; its checkpoint is written.
        SettingsError: If the run was carried on past these epochs before.
    """
    path = vae_file(folder, trial.stem, trial.epochs)
    if not path.exists():
        vae = trial.build()
        training = train(trial, vae, images, folder / f"{trial.stem}.checkpoint", progress)
        vae.record = {"run": trial.key, "training": training.as_dict()}
        save_vae(vae, path)
    vae = load_trained(path, trial.images.kind)
    training = TrainingRecord.from_dict(vae.record["training"])
    kept = folder / f"{trial.key}.evidence"
    measures = measure(trial, vae, images.test, kept, tell)
    record = make_record(trial, vae, training, measures)
    kept.unlink()
    return record


def load_trained(path: Path, kind: ImageKind) -> VAE:
    """Return the trained VAE of a run, ready to be evaluated."""
    vae = load_vae(path, Encoder(kind), Decoder(kind))
    return vae.to(memory_format=torch.channels_last).eval()  # type: ignore[call-overload, no-any-return]


def train(
    trial: VaeTrial, vae: VAE, images: ImageParts, checkpoint: Path, progress: Progress
) -> TrainingRecord:
    """Train a VAE in place, or go on from its checkpoint."""
    batch = trial.variant.training["batch"]
    source = training_source(trial.images, images.train, batch=batch, seed=trial.seed)
    batches = source.batch_count()
    assert batches is not None
    settings = trial.training(batches)
    training = fit(
        vae,
        source,
        valid=evaluation_source(images.valid),
        objective=NegativeELBO(vae, warm_up=trial.warm_up * batches),
        optimiser=partial(make_optimiser, vae, settings.rate, trial.variant),
        settings=settings,
        checkpoint=checkpoint,
        checkpoint_every=CHECKPOINT_SECONDS,
        progress=progress,
    )
    if training.reason == "interrupted":
        raise KeyboardInterrupt
    if training.epochs > trial.epochs:
        raise SettingsError(
            f"{trial.label}: the run of {checkpoint.name} was carried on to {training.epochs} "
            "epochs before; ask for more, or remove that file."
        )
    return training


def make_optimiser(
    vae: VAE, rate: float, variant: Variant, parameters: Sequence[nn.Parameter]
) -> Adamax:
    """Return the published optimiser, with rates of their own for parts of the flow.

    Args:
        vae: What is trained.
        rate: Rate of encoder and decoder.
        variant: Says how many times that rate its flow gets, and how many times its context
            network.
        parameters: All that is trained.
    """
    parts = variant.rates_of(vae.posterior.flow)
    own = {weight for _, weights in parts.values() for weight in weights}
    groups: list[dict[str, Any]] = [
        {"params": [weight for weight in parameters if weight not in own], "of": "networks"}
    ]
    for name, (share, weights) in parts.items():
        trained = [weight for weight in parameters if weight in set(weights)]
        groups.append({"params": trained, "lr": share * rate, "of": name})
    return Adamax(groups, lr=rate, eps=EPSILON)


@torch.no_grad()
def measure(trial: VaeTrial, vae: VAE, test: Tensor, kept: Path, tell: Tell) -> dict[str, Any]:
    r"""Return the negative bound and log-likelihood of test images, in nats.

    The bound is taken on all of them. The likelihood costs thousands of draws an image, so what
    is estimated on some is how far it lies above the bound, which varies far less from image to
    image than either:

    .. math:: \widehat{\mathrm{NLL}} = -\overline{\mathrm{ELBO}}_{\text{all}}
              - \overline{(\log \hat p - \mathrm{ELBO})}_{\text{some}}

    Errors of both are standard errors over images: how far the means over these may lie from
    those over all images there might be. That of the likelihood also has a part that comes from
    finitely many draws, which ``sampling_error`` tells apart.

    Args:
        trial: Whose VAE it is.
        vae: The VAE.
        test: All test images.
        kept: File that holds what is estimated so far.
        tell: Called with lines on how far it is.
    """
    with private_draws(TEST_SEED):
        parts = test.split(ELBO_IMAGES)
        elbos = torch.cat([vae.elbo(part, draws=ELBO_DRAWS) for part in parts]).double()
    order = torch.randperm(len(test), generator=Generator().manual_seed(0))
    chosen = order[: trial.test_images]
    found = _estimate(trial, vae, test[chosen], kept, tell)
    values = torch.tensor([value for value, _ in found], dtype=torch.float64)
    gaps = values - elbos[chosen]
    return {
        "rows": len(chosen),
        "samples": trial.samples,
        "test_images": len(test),
        "elbo": elbos.mean().item(),
        "elbo_error": standard_error(elbos),
        "nll": -(elbos.mean() + gaps.mean()).item(),
        "nll_error": combined_error(elbos, gaps, chosen),
        "sampling_error": math.sqrt(sum(error**2 for _, error in found)) / len(found),
        "blocks": block_means(elbos),
        "elbos": [round(value, 3) for value in elbos[chosen].tolist()],
        "log_likelihoods": [round(value, 3) for value in values.tolist()],
    }


def combined_error(
    elbos: Float64[Tensor, " images"], gaps: Float64[Tensor, " some"], chosen: Int[Tensor, " some"]
) -> float:
    r"""Return the standard error over images of a mean bound on all plus a mean gap on some.

    With a share :math:`s` of the images chosen, the sum of means is one over chosen images of
    :math:`s \, \mathrm{ELBO} + \mathrm{gap}`, and one over the others of
    :math:`(1 - s) \, \mathrm{ELBO}`, whose variances add up. Where all are chosen it is the
    standard error of the log-likelihoods.

    Args:
        elbos: Bounds of all images.
        gaps: What the log-likelihoods of some have above them.
        chosen: Which these are.
    """
    share = len(chosen) / len(elbos)
    here = standard_error(share * elbos[chosen] + gaps)
    return math.hypot(here, math.sqrt(1 - share) * standard_error(elbos))


def _estimate(
    trial: VaeTrial, vae: VAE, images: Tensor, kept: Path, tell: Tell
) -> list[tuple[float, float]]:
    """Return the log-likelihood of each image and its error, going on from what is kept."""
    done = json.loads(kept.read_text()) if kept.exists() else []
    found: list[tuple[float, float]] = [(value, error) for value, error in done]
    for first in range(len(found), len(images), EVIDENCE_IMAGES):
        part = images[first : first + EVIDENCE_IMAGES]
        seed = mix_seed(TEST_SEED, first)
        evidence = estimate_evidence(vae, part, samples=trial.samples, chunk=DECODED, seed=seed)
        values, errors = evidence.log_likelihoods.tolist(), evidence.errors.tolist()
        found += list(zip(values, errors, strict=True))
        with atomic_file(kept) as file:
            file.write(json.dumps(found).encode())
        tell(f"{trial.label}: likelihood of {len(found)} of {len(images)} images")
    return found


def make_record(
    trial: VaeTrial, vae: VAE, training: TrainingRecord, measures: dict[str, Any]
) -> Record:
    """Return all there is to know of a finished run, ready for JSON."""
    entries, interval = training.shortened(CURVE).history, training.settings["evaluate_every"]
    flow = vae.posterior.flow
    return {
        "run": trial.key,
        "stem": trial.stem,
        "study": STUDY,
        "name": trial.images.name,
        "flow": trial.variant.name,
        "seed": trial.seed,
        "epochs": trial.epochs,
        "trained_epochs": training.epochs,
        "steps": training.steps,
        "reason": training.reason,
        "best_step": training.best_step,
        "command": trial.command,
        "measures": measures,
        "amortised": count_amortised(flow),
        "weights": count_weights(flow),
        "settings": {} if flow is None else flow.settings,
        "training": training.settings
        | {"optimiser": "Adamax", "eps": EPSILON}
        | {"flow_rate": trial.variant.flow_rate, "context_rate": trial.variant.context_rate},
        "objective": {"warm_up_epochs": trial.warm_up},
        "skipped_steps": training.skipped,
        "seconds": training.seconds,
        "curve": [[one.step // interval, round(one.valid or 0.0, 3)] for one in entries],
        **describe_machine(),
    }


def count_weights(flow: nn.Module | None) -> int:
    """Return the number of weights of a flow as the paper counts them, masked ones included."""
    return 0 if flow is None else sum(parameter.numel() for parameter in flow.parameters())


def count_amortised(flow: nn.Module | None) -> int:
    """Return how many numbers a flow takes from each image: outputs of its context network."""
    if flow is None:
        return 0
    network = flow.get_submodule("conditioner")
    layers = [layer for layer in network.modules() if isinstance(layer, nn.Linear)]
    return layers[-1].out_features
