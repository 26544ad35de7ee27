"""The runs of the study, and which are still to be done."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from bnaf.datasets.suite import SUITE
from bnaf.errors import SettingsError
from bnaf.flows.flow import Flow
from bnaf.flows.registry import flow_named
from bnaf.studies.density.contestants import OURS, Contestant, contestants, read_plan
from bnaf.studies.ledger import Record
from bnaf.training import TrainingSettings

STUDY = "density"


class Limits(NamedTuple):
    """What is asked for in place of what the file says.

    Args:
        seconds: Budget of each run.
        steps: Further budget in steps.
        test_rows: Rows to test with, at most.
    """

    seconds: float | None = None
    steps: int | None = None
    test_rows: int | None = None


NO_LIMITS = Limits()


@dataclass(frozen=True)
class DensityTrial:
    """One contestant to fit to one table, with one seed.

    Args:
        name: Name of the table.
        contestant: What is fitted.
        seed: Seed of its initial weights and of all draws.
        edition: Files that the table is read from.
        limits: What is asked for in place of what the file says.
    """

    name: str
    contestant: Contestant
    seed: int
    edition: tuple[str, ...] = ()
    limits: Limits = NO_LIMITS

    @property
    def features(self) -> int:
        """Columns of the table."""
        return SUITE[self.name].columns

    @property
    def training(self) -> TrainingSettings:
        """Settings of the training, seed included."""
        plan = read_plan()
        chosen: dict[str, Any] = {"seconds": plan.seconds, "evaluate_every": plan.evaluate_every}
        chosen |= self.contestant.training
        given = {"seconds": self.limits.seconds, "steps": self.limits.steps}
        chosen |= {name: value for name, value in given.items() if value is not None}
        return TrainingSettings(**chosen, seed=self.seed)

    @property
    def budget(self) -> float | None:
        """Seconds of training, where they are limited."""
        return self.training.seconds

    @property
    def most_test_rows(self) -> int:
        """Rows to test with, at most."""
        return self.limits.test_rows or self.contestant.test_rows

    def build(self) -> Flow:
        """Return the flow, with initial weights that follow from the seed."""
        return self.contestant.build(self.features, self.seed)

    @property
    def label(self) -> str:
        """The run in a few words."""
        return f"{self.name}, {self.contestant.name}, seed {self.seed}"

    @property
    def command(self) -> str:
        """What reproduces this run alone, but for the folder of data."""
        words = [f"bnaf reproduce {STUDY} --dataset {self.name} --flow {self.contestant.name}"]
        words += [f"--seeds {self.seed},"]
        for option, value in zip(Limits._fields, self.limits, strict=True):
            words += [f"--{option.replace('_', '-')} {value:g}"] if value else []
        return " ".join([*words, "--data DIR"])

    @property
    def stem(self) -> str:
        """Name of its files, with a digest of all settings: others are another run.

        Raises:
            SettingsError: If there is no such flow.
        """
        contestant = self.contestant
        facts: list[Any] = [contestant.flow, self.edition, self.most_test_rows]
        if not contestant.classical:
            rate = flow_named(contestant.flow).learning_rate
            facts += [contestant.sizes(self.features), rate, self.training.as_dict()]
            facts += [contestant.valid_rows, contestant.standardised, contestant.fresh]
        digest = hashlib.blake2b(json.dumps(facts, sort_keys=True).encode(), digest_size=4)
        names = (STUDY, self.name, contestant.name, str(self.seed))
        return "-".join((*names, digest.hexdigest()))


def plan_runs(
    editions: dict[str, tuple[str, ...]],
    *,
    flows: Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
    limits: Limits = NO_LIMITS,
) -> list[DensityTrial]:
    """Return the runs on some tables: the first seed of every contestant, then the second, ....

    Args:
        editions: Files of each table, by its name.
        flows: Names of contestants; all that are planned by default.
        seeds: Seeds, in place of those of the file.
        limits: What is asked for in place of what the file says.

    Raises:
        SettingsError: If there is no contestant of some name.
    """
    listed = {name: contestants(name) for name in editions}
    known = list(dict.fromkeys(one for found in listed.values() for one in found))
    for flow in flows or ():
        if flow not in known:
            raise SettingsError(f"flow must be one of {', '.join(known)}, got {flow!r}.")
    ranked = [
        ((one.last, rank), DensityTrial(name, one, seed, files, limits))
        for name, files in editions.items()
        for one in listed[name].values()
        if (one.planned if flows is None else one.name in flows)
        for rank, seed in enumerate(one.seeds if seeds is None else dict.fromkeys(seeds))
    ]
    return [run for _, run in sorted(ranked, key=lambda pair: pair[0])]


def plan_best_rivals(
    runs: Sequence[DensityTrial], records: dict[str, Record]
) -> list[DensityTrial]:
    """Return what is to be run with further seeds: the best rivals of each table that is done.

    Args:
        runs: Runs that are planned.
        records: Those that are finished, by their stems.
    """
    more = []
    for name in dict.fromkeys(run.name for run in runs):
        here = [run for run in runs if run.name == name and not run.contestant.last]
        scores = [(run, _mean(records.get(run.stem))) for run in here if run.contestant.rival]
        if any(records.get(run.stem) is None for run in here):
            continue
        ranked = sorted(
            (-mean, run.contestant.name, run) for run, mean in scores if mean is not None
        )
        seeds = [run.seed for run in here if run.contestant.name == OURS]
        for *_, run in ranked[: read_plan().best_rivals]:
            more += [replace(run, seed=seed) for seed in seeds if seed != run.seed]
    return more


def _mean(record: Record | None) -> float | None:
    return None if record is None or record["failure"] else float(record["measures"]["mean"])
