"""What a study runs, read from its files: ``settings/<study>/<name>.toml``.

A file holds the paper's ``claim`` and one table for every flow that is compared: its settings,
those of its training and of its objective, its seeds, the target where there is one, and under
``reasons`` why a setting is not the paper's. ``"none"`` stands for Python's None, which TOML has
no word for.
"""

import hashlib
import json
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Any

from bnaf._random import private_draws
from bnaf.errors import SettingsError
from bnaf.flows.flow import Flow
from bnaf.flows.registry import flow_named
from bnaf.training import TrainingSettings

FEATURES = 2
TEST_ROWS = 100_000


@dataclass(frozen=True)
class Variant:
    """A flow, its sizes and its training.

    Args:
        name: What ``--flow`` calls it.
        title: What tables and figures call it.
        flow: Its name in the registry.
        seeds: One run for each.
        target: Excess loss that its mean over seeds is to stay below, in nats; if there is one.
        settings: Arguments of the flow.
        training: Arguments of the training settings.
        objective: Arguments of the objective: numbers of steps.
        reasons: Why it departs from the paper, by setting.
    """

    name: str
    title: str
    flow: str
    seeds: tuple[int, ...]
    target: float | None
    settings: dict[str, Any]
    training: dict[str, Any]
    objective: dict[str, int]
    reasons: dict[str, str]


@dataclass(frozen=True)
class Experiment:
    """One data set or energy of a study.

    Args:
        study: Name of the study.
        name: Name of the data set or energy.
        claim: What the paper says of it.
        variants: Flows to compare, by name.
    """

    study: str
    name: str
    claim: str
    variants: dict[str, Variant]


@dataclass(frozen=True)
class Trial:
    """One flow to train, with one seed.

    Args:
        experiment: What it is trained on.
        variant: How.
        seed: Seed of its initial weights and of all draws.
        steps: Steps, in place of those of the file.
        test_rows: Number of fresh rows it is measured on.
    """

    experiment: Experiment
    variant: Variant
    seed: int
    steps: int | None = None
    test_rows: int = TEST_ROWS

    @property
    def training(self) -> TrainingSettings:
        """Settings of the training, seed included."""
        settings = TrainingSettings(**self.variant.training, seed=self.seed)
        return replace(settings, steps=self.steps) if self.steps else settings

    @property
    def objective(self) -> dict[str, int]:
        """Arguments of the objective; what is annealed takes at most a tenth of the steps."""
        most = (self.training.steps or 0) // 10
        settings = self.variant.objective
        return {name: min(value, most) for name, value in settings.items()}

    def build(self) -> Flow:
        """Return the flow, with initial weights that follow from the seed."""
        with private_draws(self.seed):
            return flow_named(self.variant.flow)(FEATURES, **self.variant.settings)

    @property
    def label(self) -> str:
        """The run in a few words."""
        return f"{self.experiment.name}, {self.variant.name}, seed {self.seed}"

    @property
    def command(self) -> str:
        """What reproduces this run alone."""
        words = ["bnaf reproduce", self.experiment.study, self.experiment.name]
        words += ["--flow", self.variant.name, "--seeds", f"{self.seed},"]
        words += ["--steps", str(self.steps)] if self.steps else []
        words += ["--test-rows", str(self.test_rows)] if self.test_rows != TEST_ROWS else []
        return " ".join(words)

    @property
    def stem(self) -> str:
        """Name of its files, with a digest of all settings: others are another run."""
        variant = self.variant
        facts = [variant.flow, variant.settings, self.training.as_dict(), self.test_rows]
        facts += [self.objective] if self.objective else []
        digest = hashlib.blake2b(json.dumps(facts, sort_keys=True).encode(), digest_size=4)
        experiment = self.experiment
        names = (experiment.study, experiment.name, variant.name, str(self.seed))
        return "-".join((*names, digest.hexdigest()))


def experiment_names(study: str) -> list[str]:
    """Return the names that a study has files for."""
    folder = files("bnaf.studies") / "settings" / study
    return sorted(path.name.removesuffix(".toml") for path in folder.iterdir())


def read_experiment(study: str, name: str) -> Experiment:
    """Read the file of an experiment.

    Raises:
        SettingsError: If there is none.

    Example:
        >>> read_experiment("toy", "checkerboard").variants["bnaf"].seeds
        (0, 1, 2)
    """
    if name not in experiment_names(study):
        listed = ", ".join(experiment_names(study))
        raise SettingsError(f"name must be one of {listed} in the study {study}, got {name!r}.")
    path = files("bnaf.studies") / "settings" / study / f"{name}.toml"
    facts = tomllib.loads(path.read_text(encoding="utf-8"))
    variants = {key: _read_variant(key, table) for key, table in facts["flows"].items()}
    return Experiment(study, name, facts["claim"], variants)


def _read_variant(name: str, table: dict[str, Any]) -> Variant:
    return Variant(
        name=name,
        title=table["title"],
        flow=table["flow"],
        seeds=tuple(table["seeds"]),
        target=table.get("target"),
        settings=without_none(table.get("settings", {})),
        training=without_none(table["training"]),
        objective=table.get("objective", {}),
        reasons=table.get("reasons", {}),
    )


def without_none(table: dict[str, Any]) -> dict[str, Any]:
    """Return settings of a file with None where it says ``"none"``."""
    return {name: None if value == "none" else value for name, value in table.items()}


def plan_trials(
    experiments: Sequence[Experiment],
    *,
    flows: Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
    steps: int | None = None,
    test_rows: int = TEST_ROWS,
) -> list[Trial]:
    """Return the runs of experiments: the first seed of every flow, then the second, and so on.

    Args:
        experiments: What to train on.
        flows: Names of the variants; all by default.
        seeds: Seeds, in place of those of the files.
        steps: Steps, in place of those of the files.
        test_rows: Number of fresh rows each is measured on.

    Raises:
        SettingsError: If no experiment has a flow of some name.
    """
    known = list(dict.fromkeys(name for one in experiments for name in one.variants))
    for name in flows or ():
        if name not in known:
            raise SettingsError(f"flow must be one of {', '.join(known)}, got {name!r}.")
    ranked = [
        (rank, Trial(experiment, variant, seed, steps, test_rows))
        for experiment in experiments
        for variant in experiment.variants.values()
        if flows is None or variant.name in flows
        for rank, seed in enumerate(dict.fromkeys(variant.seeds if seeds is None else seeds))
    ]
    return [run for _, run in sorted(ranked, key=lambda pair: pair[0])]
