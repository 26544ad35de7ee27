"""Tables 1 and 2 of the paper beside ours, made of the runs that were stored."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import mean, mode, stdev

import numpy as np

from bnaf.datasets.suite import SUITE
from bnaf.evaluation.scores import paired_error
from bnaf.studies.density.contestants import OURS, contestants, is_long
from bnaf.studies.density.published import (
    model_names,
    model_note,
    model_source,
    model_title,
    published_naf,
    published_score,
    set_titles,
)
from bnaf.studies.density.trials import NO_LIMITS, Limits
from bnaf.studies.ledger import Record
from bnaf.studies.sheets import Sheet

NAF = {5: "naf-ddsf", 10: "naf-ddsf-10"}  # contestants that are counted beside the published ones
NOTHING = "–"


@dataclass(frozen=True)
class Standing:
    """All seeds of one contestant on one table; numbers are nats per test row.

    Args:
        name: Name of the table.
        flow: Name of the contestant.
        title: What it is called.
        records: Its runs that came to a number.
        failures: Why others did not.
    """

    name: str
    flow: str
    title: str
    records: tuple[Record, ...]
    failures: tuple[str, ...] = ()

    @property
    def mean(self) -> float:
        """Mean over test rows and seeds."""
        return float(mean(record["measures"]["mean"] for record in self.records))

    @property
    def deviation(self) -> float | None:
        """Deviation over seeds; none for a single one."""
        means = [record["measures"]["mean"] for record in self.records]
        return stdev(means) if len(means) > 1 else None

    @property
    def blocks(self) -> list[float]:
        """Means over blocks of test rows, each over the seeds."""
        stacked = [record["measures"]["blocks"] for record in self.records]
        return [float(value) for value in np.mean(stacked, 0)]

    def behind(self, other: "Standing") -> tuple[float, float]:
        """Return by how much another is better, and the standard error of that over test rows."""
        return other.mean - self.mean, paired_error(other.blocks, self.blocks)

    def error_over_seeds(self, other: "Standing") -> float | None:
        """Return the standard error of how much another is better, over seeds that both have."""
        ours, theirs = (
            {record["seed"]: record["measures"]["mean"] for record in one.records}
            for one in (self, other)
        )
        gaps = [theirs[seed] - mean for seed, mean in ours.items() if seed in theirs]
        return stdev(gaps) / math.sqrt(len(gaps)) if len(gaps) > 1 else None

    @property
    def cell(self) -> str:
        """The mean, the deviation over seeds where there are several, and how many failed."""
        spread = "" if self.deviation is None else f" ± {self.deviation:.2f}"
        return f"{self.mean:.2f}{spread}{self.failed}"

    @property
    def failed(self) -> str:
        """How many of its runs failed, in brackets; empty if none did."""
        runs = len(self.records) + len(self.failures)
        return f" ({len(self.failures)} of {runs} runs failed)" if self.failures else ""


Standings = dict[str, dict[str, Standing]]


def stand(records: Mapping[str, Record], limits: Limits = NO_LIMITS) -> Standings:
    """Return what the stored runs come to, by table and contestant.

    Args:
        records: Runs by their stems.
        limits: Those under which they were run; by default those of the file.
    """
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in records.values():
        if record["limits"] == list(limits):
            groups.setdefault((record["name"], record["flow"]), []).append(record)
    standings: Standings = {}
    for (name, flow), group in groups.items():
        group.sort(key=_seed)
        done = tuple(record for record in group if not record["failure"])
        failures = tuple(str(record["failure"]) for record in group if record["failure"])
        one = Standing(name, flow, group[0]["title"], done, failures)
        standings.setdefault(name, {})[flow] = one
    return {name: standings[name] for name in SUITE if name in standings}


def _seed(record: Record) -> int:
    return int(record["seed"])


def density_sheet(standings: Standings) -> Sheet:
    """Return Table 1: what was published on each table, and ours beside it where there is some."""
    titles = set_titles()
    headers = ["test log-likelihood, nats"]
    for name, title in titles.items():
        headers += [f"{title}, published", *([f"{title}, here"] if name in standings else [])]
    flows = [*model_names(), *(flow for found in standings.values() for flow in found)]
    rows = []
    for flow in dict.fromkeys(flows):
        cells = [_title(flow, standings)]
        for name in titles:
            score = published_score(flow, name)
            cells.append(NOTHING if score is None else str(score))
            if name in standings:
                cells.append(_show(standings[name].get(flow)))
        if any(cell != NOTHING for cell in cells[1:]):
            rows.append(cells)
    notes = [*_describe_sources(), *_describe_runs(standings)]
    return Sheet("Table 1", headers, rows, notes)


def _title(flow: str, standings: Standings) -> str:
    found = [one[flow].title for one in standings.values() if flow in one]
    return found[0] if found else model_title(flow)


def _show(standing: Standing | None) -> str:
    if standing is None:
        return NOTHING
    return standing.cell if standing.records else "failed"


def _describe_sources() -> list[str]:
    others: dict[str, list[str]] = {}
    for model in model_names():
        source = model_source(model)
        if source not in (None, "paper"):
            others.setdefault(str(source), []).append(model_title(model))
    listed = "; ".join(f"{', '.join(models)}: {source}" for source, models in others.items())
    notes = {model: model_note(model) for model in model_names()}
    return [
        f"Published: Table 1 of De Cao et al. (2019), ± over three runs, and {listed}. "
        "Here: ± is the deviation over seeds where there are several.",
        *(f"{model_title(model)}: {note}" for model, note in notes.items() if note),
    ]


def _describe_runs(standings: Standings) -> list[str]:
    """Return what there is to know of the runs: data, budget, seeds and machine."""
    if not standings:
        return ["Nothing was run here yet: `bnaf reproduce density --data DIR` does."]
    records = [r for found in standings.values() for one in found.values() for r in one.records]
    titles = set_titles()
    data = "; ".join(
        f"{titles[name]}: {text}"
        for name, found in standings.items()
        for text in dict.fromkeys(
            record["data"] for one in found.values() for record in one.records
        )
    )
    absent = ", ".join(title for name, title in titles.items() if name not in standings)
    budgets = {r["budget"] for r in records if not is_long(r["flow"], r["name"])} - {None}
    machines = dict.fromkeys(f"{r['machine']}, {r['threads']} threads" for r in records)
    limits = " or ".join(f"{one:g}" for one in sorted(budgets))
    dates = sorted(record["date"][:10] for record in records)
    notes = [f"Data here: {data}." + (f" Not run: {absent}." if absent else "")]
    if budgets:
        early = sum(record.get("reason") == "early stopping" for record in records)
        notes.append(
            f"Each run was trained for {limits} s at most, evaluations included, a long one for "
            f"as long as it says; {early} ended before, as validation no longer improved. "
            f"{len(records)} runs, {' and '.join(machines)}, {dates[0]} to {dates[-1]}."
        )
    return notes


def detail_sheet(name: str, found: Mapping[str, Standing]) -> Sheet:
    """Return the runs on one table: the best first, with what they are behind ours.

    Args:
        name: Name of the table.
        found: What its contestants come to.
    """
    done = sorted((one for one in found.values() if one.records), key=lambda one: -one.mean)
    ours, gaussian = found.get(OURS), found.get("gaussian")
    rows = [_detail(one, ours, gaussian) for one in done]
    rows += [[one.title, "failed", *[""] * 8] for one in found.values() if not one.records]
    headers = ["flow", "test, nats", "its error", "behind B-NAF", "above a Gaussian"]
    headers += ["published above one", "weights", "steps", "seconds", "seeds"]
    note = "Nothing was finished."
    if done:
        note = (
            f"{_describe_test_rows(done)}; {done[0].records[0]['data']}. *Behind B-NAF* is the "
            "mean of the differences row by row to our recipe, ± its standard error over test "
            "rows; in brackets that over seeds which both have."
        )
    whys = [
        f"{one.title}{one.failed}: {'; '.join(dict.fromkeys(one.failures))}."
        for one in found.values()
        if one.failures
    ]
    return Sheet(set_titles()[name], headers, rows, [note, *whys])


def _describe_test_rows(done: Sequence[Standing]) -> str:
    """Return how many rows tested: those of most, and which were tested with others."""
    counts = {one.title: int(one.records[0]["measures"]["rows"]) for one in done}
    usual = mode(counts.values())
    others = [f"{title}: {rows:,}" for title, rows in counts.items() if rows != usual]
    return f"{usual:,} test rows" + (f" ({'; '.join(others)})" if others else "")


def _detail(one: Standing, ours: Standing | None, gaussian: Standing | None) -> list[str]:
    record = one.records[0]
    behind = ""
    if ours is not None and ours.records and one.flow != OURS and _comparable(one, ours):
        gap, error = one.behind(ours)
        behind = f"{gap:.3f} ± {error:.3f}"
        over_seeds = one.error_over_seeds(ours)
        behind += "" if over_seeds is None else f" (seeds: ± {over_seeds:.3f})"
    above = ""
    if gaussian is not None and gaussian.records and _comparable(one, gaussian):
        above = f"{one.mean - gaussian.mean:.2f}"
    score, base = published_score(one.flow, one.name), published_score("gaussian", one.name)
    claimed = f"{score.mean - base.mean:.2f}" if score and base else ""
    steps = [r["steps"] for r in one.records if r.get("steps") is not None]
    seconds = [r["seconds"] for r in one.records if r.get("seconds") is not None]
    return [
        one.title,
        one.cell,
        f"{max(r['measures']['error'] for r in one.records):.2f}",
        behind,
        above,
        claimed,
        f"{record['weights']:,}",
        f"{mean(steps):,.0f}" if steps else "",
        f"{mean(seconds):,.0f}" if seconds else "",
        ", ".join(str(r["seed"]) for r in one.records),
    ]


def _comparable(one: Standing, other: Standing) -> bool:
    """Tell whether two were measured on the same test rows."""
    places = {(r["measures"]["rows"], r["data"]) for r in (*one.records, *other.records)}
    return len(places) == 1


@cache
def weights_sheet() -> Sheet:
    """Return Table 2: weights of NAF-DDSF over those of B-NAF, counted by building the flows."""
    headers = ["", "columns", "B-NAF, weights"]
    for flows in NAF:
        headers += [f"NAF ({flows}), published", "quotient", "in the paper", "NAF as run here"]
    rows = []
    for name, title in set_titles().items():
        features, listed = SUITE[name].columns, contestants(name)
        weights = listed["bnaf-paper"].count_weights(features)
        cells = [title, f"{features}", f"{weights:,}"]
        for naf in published_naf(name):
            quotient = naf.weights / weights
            cells += [f"{naf.weights:,}", f"{quotient:.2f}", f"{naf.quotient:.2f}"]
            ours = listed.get(NAF[naf.flows])
            cells.append(f"{ours.count_weights(features):,}" if ours else NOTHING)
        rows.append(cells)
    note = (
        "B-NAF is the network of the paper's Table 1, five flows of two hidden layers. Quotients "
        "are of published weights of NAF-DDSF by ours of B-NAF."
    )
    return Sheet("Table 2", headers, rows, [note])


def all_sheets(standings: Standings) -> list[Sheet]:
    """Return Table 1, what stands behind each of its columns, and Table 2."""
    details = [detail_sheet(name, found) for name, found in standings.items()]
    return [density_sheet(standings), *details, weights_sheet()]
