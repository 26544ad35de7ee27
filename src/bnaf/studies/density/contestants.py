"""Who is compared on the five tables, read from ``settings/density/contestants.toml``."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import product
from typing import Any, NamedTuple

from bnaf._random import private_draws
from bnaf.datasets.suite import SUITE
from bnaf.errors import SettingsError
from bnaf.evaluation.classical import CLASSICAL
from bnaf.flows.flow import Flow
from bnaf.flows.registry import flow_named, flow_names
from bnaf.studies.density.published import model_title
from bnaf.studies.plans import without_none

OURS = "bnaf"
"""Contestant that the others are compared with."""


class Plan(NamedTuple):
    """What all runs have in common.

    Args:
        seconds: Training of each run.
        evaluate_every: Steps between evaluations.
        valid_rows: Rows to choose by, at most.
        test_rows: Rows to test with, at most.
        best_rivals: Flows of each table that are trained with as many seeds as ours.
    """

    seconds: float
    evaluate_every: int
    valid_rows: int
    test_rows: int
    best_rivals: int


@dataclass(frozen=True)
class Contestant:
    """A density that is fitted to one of the tables.

    Args:
        name: What ``--flow`` calls it.
        title: What tables and figures call it.
        flow: Its name in the registry, or that of a classical density.
        seeds: One run for each.
        settings: Arguments of the flow; what is left out suits a large table.
        training: Arguments of the training settings; what is left out is that of the plan, or of
            our recipe.
        valid_rows: Rows to choose by, at most.
        test_rows: Rows to test with, at most.
        standardised: Whether it sees columns of mean 0 and deviation 1.
        fresh: Whether rows to train on are drawn anew for every step.
        planned: Whether it is run without being asked for.
        last: Whether it waits for all others.
        reasons: Why it is not as the paper has it, by setting.
    """

    name: str
    title: str
    flow: str
    seeds: tuple[int, ...]
    settings: dict[str, Any]
    training: dict[str, Any]
    valid_rows: int
    test_rows: int
    standardised: bool
    fresh: bool
    planned: bool
    last: bool
    reasons: dict[str, str]

    @property
    def classical(self) -> bool:
        """Whether it is no flow, and fitted at once."""
        return self.flow in CLASSICAL

    @property
    def rival(self) -> bool:
        """Whether it is a flow other than ours."""
        return self.flow != OURS and not self.classical

    def sizes(self, features: int) -> dict[str, Any]:
        """Return all settings of its flow that are not left to the constructor.

        Raises:
            SettingsError: If there is no such flow.
        """
        return flow_named(self.flow).sizes_for(features, small=False, many=True) | self.settings

    def count_weights(self, features: int) -> int:
        """Return how many weights of its flow act.

        Raises:
            SettingsError: If there is no such flow.
        """
        return self.build(features).parameter_count

    def build(self, features: int, seed: int = 0) -> Flow:
        """Return its flow, with initial weights that follow from a seed.

        Raises:
            SettingsError: If there is no such flow.
        """
        with private_draws(seed):
            return flow_named(self.flow)(features, **self.sizes(features))


@cache
def _facts() -> dict[str, Any]:
    path = files("bnaf.studies") / "settings" / "density" / "contestants.toml"
    return tomllib.loads(path.read_text(encoding="utf-8"))


def read_plan() -> Plan:
    """Return what all runs have in common.

    Example:
        >>> read_plan().seconds
        300
    """
    return Plan(**_facts()["plan"])


def contestants(name: str) -> dict[str, Contestant]:
    """Return the contestants on one of the tables, by name; those of the file first.

    Args:
        name: Name of the table.

    Raises:
        SettingsError: If there is no such table.

    Example:
        >>> contestants("power")["bnaf-paper"].settings["width"]
        40
    """
    if name not in SUITE:
        raise SettingsError(f"dataset must be one of {', '.join(SUITE)}, got {name!r}.")
    facts = _facts()
    tables: dict[str, Any] = {
        key: table for key, table in facts["flows"].items() if name in table.get("only", SUITE)
    }
    for flow in flow_names():
        if flow not in facts["left_out"]:
            tables.setdefault(flow, {"flow": flow, "seeds": [0]})
    known = {*flow_names(), *CLASSICAL}
    found: dict[str, Contestant] = {}
    for key, table in tables.items():
        if table["flow"] in known:
            found[key] = _read(key, table, name)
            found |= _read_grid(key, table, name)
    return found


def is_long(flow: str, name: str) -> bool:
    """Tell whether a contestant takes longer than the time that all others get."""
    found = contestants(name).get(flow)
    return found is not None and found.last


def _read(key: str, table: Mapping[str, Any], name: str) -> Contestant:
    here = table.get("sets", {}).get(name, {})
    plan = read_plan()
    return Contestant(
        name=key,
        title=table.get("title", model_title(key)),
        flow=table["flow"],
        seeds=tuple(table["seeds"]),
        settings=without_none(table.get("settings", {}) | here.get("settings", {})),
        training=without_none(table.get("training", {}) | here.get("training", {})),
        valid_rows=table.get("valid_rows", plan.valid_rows),
        test_rows=table.get("test_rows", plan.test_rows),
        standardised=table.get("standardised", True),
        fresh=table.get("fresh", False),
        planned=table.get("planned", True),
        last=table.get("last", False),
        reasons=table.get("reasons", {}),
    )


def _read_grid(key: str, table: Mapping[str, Any], name: str) -> dict[str, Contestant]:
    """Return a contestant for every point of a grid of settings, none of them planned."""
    grid: dict[str, list[Any]] = table.get("grid", {})
    found = {}
    for point in product(*grid.values()) if grid else ():
        settings = dict(zip(grid, point, strict=True))
        title = ", ".join(f"{setting} {value}" for setting, value in settings.items())
        here = table.get("sets", {}).get(name, {})
        settings = table.get("settings", {}) | here.get("settings", {}) | settings
        changed = {"title": f"{model_title(key)}: {title}", "settings": settings, "sets": {}}
        one = f"{key}-{'x'.join(map(str, point))}"
        found[one] = _read(one, {**table, **changed, "planned": False}, name)
    return found
