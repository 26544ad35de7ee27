"""What the study runs, read from ``settings/vae``: image sets, posteriors, and the queue."""

import hashlib
import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

from torch import nn

from bnaf._random import mix_seed, private_draws
from bnaf.errors import SettingsError
from bnaf.flows.flow import Flow
from bnaf.flows.registry import flow_named
from bnaf.studies.plans import without_none
from bnaf.studies.vae.networks import ENCODED, LATENTS, Decoder, Encoder, ImageKind
from bnaf.training import TrainingSettings
from bnaf.vae import VAE, Posterior

STUDY = "vae"
SAMPLES = 5000
WARM_UP_SHARE = 3  # a warm-up takes no more than a third of the epochs


@dataclass(frozen=True)
class ImageSet:
    """One image set.

    Args:
        name: What ``--dataset`` calls it.
        title: What tables call it.
        data: Its name in :mod:`bnaf.datasets`.
        kind: What its images are.
        epochs: The equal number that all posteriors are trained for.
        warm_up: Epochs over which the divergence grows.
        test_images: Number of images that the likelihood is estimated on.
        paper: -ELBO, its deviation, NLL and its deviation in the paper, by posterior.
        variance_bounds: Of the Gaussian that posteriors start from.
        rebinarised: Whether grey images are binarised anew in every epoch.
        splits: How many splits were published; seeds take them in turn.
    """

    name: str
    title: str
    data: str
    kind: ImageKind
    epochs: int
    warm_up: int
    test_images: int
    paper: Mapping[str, Sequence[float]]
    variance_bounds: tuple[float, float] | None = None
    rebinarised: bool = False
    splits: int = 1

    def split(self, seed: int) -> int:
        """Return which of the published splits a seed takes."""
        return seed % self.splits


@dataclass(frozen=True)
class Variant:
    """One posterior.

    Args:
        name: What ``--flow`` calls it.
        title: What tables call it.
        training: Arguments of the training settings.
        flow: Name of its flow in the registry; none for the Gaussian alone.
        settings: Arguments of the flow.
        flow_rate: How many times the rate of encoder and decoder the flow's own weights get.
        context_rate: How many times the rate of encoder and decoder its context network gets.
        weights_ratio: Its weights over those of B-NAF, in the paper.
        amortised: Thousands of numbers that are predicted for each image, in the paper.
        reasons: Why it departs from the paper, by setting.
    """

    name: str
    title: str
    training: Mapping[str, Any]
    flow: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    flow_rate: float = 1.0
    context_rate: float = 1.0
    weights_ratio: float | None = None
    amortised: float | None = None
    reasons: Mapping[str, str] = field(default_factory=dict)

    def build_flow(self) -> Flow | None:
        """Return the flow of the posterior, or none."""
        if self.flow is None:
            return None
        settings = {"direction": "sampling", **self.settings}
        return flow_named(self.flow)(LATENTS, ENCODED, **settings)

    def rates_of(self, flow: nn.Module | None) -> dict[str, tuple[float, list[nn.Parameter]]]:
        """Return the parts of a flow that have a rate of their own: its share, and what it is of.

        Args:
            flow: The flow of a posterior, if there is one.
        """
        if flow is None:
            return {}
        context = [*flow.get_submodule("conditioner").parameters()]
        rest = [weight for weight in flow.parameters() if weight not in {*context}]
        parts = {"flow": (self.flow_rate, rest), "context": (self.context_rate, context)}
        return {name: part for name, part in parts.items() if part[0] != 1 and part[1]}


@dataclass(frozen=True)
class VaeTrial:
    """One VAE to train, with one seed.

    Args:
        images: What it is trained on.
        variant: Its posterior.
        seed: Seed of its initial weights and of all draws.
        epochs: Passes over the images, at most; those of the image set by default.
        test_images: Number of images its likelihood is estimated on; likewise.
        samples: Draws for each of them.
    """

    images: ImageSet
    variant: Variant
    seed: int = 0
    epochs: int = 0
    test_images: int = 0
    samples: int = SAMPLES

    def __post_init__(self) -> None:
        object.__setattr__(self, "epochs", self.epochs or self.images.epochs)
        object.__setattr__(self, "test_images", self.test_images or self.images.test_images)

    @property
    def warm_up(self) -> int:
        """Epochs over which the divergence grows."""
        return min(self.images.warm_up, max(1, self.epochs // WARM_UP_SHARE))

    @property
    def split(self) -> int:
        """Which of the published splits of its images it takes."""
        return self.images.split(self.seed)

    def training(self, epoch_batches: int) -> TrainingSettings:
        """Return the settings of the training; it is evaluated after every epoch.

        Args:
            epoch_batches: Number of batches of an epoch; the size of each is that of the source.
        """
        chosen = {name: value for name, value in self.variant.training.items() if name != "batch"}
        return TrainingSettings(
            **chosen,
            epochs=self.epochs,
            evaluate_every=epoch_batches,
            seed=self.seed,
        )

    def build(self) -> VAE:
        """Return the VAE, with initial weights that follow from the seed.

        Flows draw apart, so that one seed gives all posteriors the same networks to begin with.
        """
        with private_draws(mix_seed(self.seed, 0)):
            flow = self.variant.build_flow()
        kind, bounds = self.images.kind, self.images.variance_bounds
        with private_draws(self.seed):
            posterior = Posterior(LATENTS, ENCODED, flow=flow, variance_bounds=bounds)
            return VAE(Encoder(kind), posterior, Decoder(kind))

    @property
    def label(self) -> str:
        """The run in a few words."""
        return f"{self.images.name}, {self.variant.name}, seed {self.seed}, {self.epochs} epochs"

    @property
    def command(self) -> str:
        """What reproduces this run alone."""
        words = ["bnaf reproduce vae --dataset", self.images.name, "--flow", self.variant.name]
        words += ["--seeds", f"{self.seed},", "--epochs", str(self.epochs)]
        words += ["--test-rows", str(self.test_images)]
        words += ["--samples", str(self.samples)] if self.samples != SAMPLES else []
        return " ".join(words)

    @property
    def stem(self) -> str:
        """Name of its files, with a digest of all settings but the epochs: more carry it on."""
        variant, images = self.variant, self.images
        facts: list[Any] = [variant.flow, dict(variant.settings), dict(variant.training)]
        facts += [variant.context_rate, self.warm_up, images.kind, images.variance_bounds]
        facts += [variant.flow_rate] if variant.flow_rate != 1 else []
        digest = hashlib.blake2b(json.dumps(facts, sort_keys=True).encode(), digest_size=4)
        return "-".join((STUDY, images.name, variant.name, str(self.seed), digest.hexdigest()))

    @property
    def key(self) -> str:
        """Name of its record: epochs, images and draws tell those of one run apart."""
        return f"{self.stem}-{self.epochs}-{self.test_images}-{self.samples}"


def read_image_sets() -> dict[str, ImageSet]:
    """Return the image sets by name.

    Example:
        >>> read_image_sets()["frey"].kind.pixels
        560
    """
    return {name: _read_image_set(name, facts) for name, facts in _read("images").items()}


def _read_image_set(name: str, facts: dict[str, Any]) -> ImageSet:
    kind = ImageKind(facts.pop("height"), facts.pop("width"), facts.pop("levels", 2))
    bounds = facts.pop("variance_bounds", None)
    bounds = None if bounds is None else (bounds[0], bounds[1])
    return ImageSet(name=name, kind=kind, variance_bounds=bounds, **facts)


def read_variants() -> dict[str, Variant]:
    """Return the posteriors by name.

    Example:
        >>> read_variants()["bnaf"].settings["transforms"]
        8
    """
    facts = _read("posteriors")
    shared = without_none(facts["training"])
    variants = {}
    for name, table in facts["posteriors"].items():
        training = shared | without_none(table.pop("training", {}))
        reasons = facts["reasons"] | table.pop("reasons", {})
        variants[name] = Variant(name=name, training=training, reasons=reasons, **table)
    return variants


def _read(name: str) -> dict[str, Any]:
    path = files("bnaf.studies") / "settings" / STUDY / f"{name}.toml"
    return tomllib.loads(path.read_text(encoding="utf-8"))


def plan_queue(
    *,
    seeds: Sequence[int] | None = None,
    test_images: int | None = None,
    samples: int = SAMPLES,
) -> list[VaeTrial]:
    """Return all runs of the queue, in its order.

    Args:
        seeds: Seeds; 0 by default.
        test_images: Number of images the likelihood is estimated on; that of the image set by
            default.
        samples: Draws for each of them.
    """
    sets, variants = read_image_sets(), read_variants()
    return [
        VaeTrial(sets[name], variants[variant], seed, epochs, test_images or 0, samples)
        for stage in _read("queue")["stages"]
        for epochs in stage.get("epochs", [0])
        for seed in seeds or (0,)
        for name in stage["images"]
        for variant in stage["posteriors"]
    ]


def plan_trials(
    *,
    datasets: Sequence[str] | None = None,
    flows: Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
    epochs: int | None = None,
    test_images: int | None = None,
    samples: int = SAMPLES,
) -> list[VaeTrial]:
    """Return the runs of some image sets and posteriors.

    Args:
        datasets: Names of image sets; all by default.
        flows: Names of posteriors; all by default.
        seeds: Seeds; 0 by default.
        epochs: Passes over the images; those of the image set by default.
        test_images: Number of images the likelihood is estimated on; likewise.
        samples: Draws for each of them.

    Raises:
        SettingsError: If there is no image set or posterior of some name.
    """
    sets, variants = read_image_sets(), read_variants()
    for label, known, names in (("dataset", sets, datasets), ("flow", variants, flows)):
        for name in names or ():
            if name not in known:
                raise SettingsError(f"{label} must be one of {', '.join(known)}, got {name!r}.")
    return [
        VaeTrial(sets[name], variants[flow], seed, epochs or 0, test_images or 0, samples)
        for seed in dict.fromkeys(seeds or (0,))
        for name in datasets or sets
        for flow in flows or variants
    ]
