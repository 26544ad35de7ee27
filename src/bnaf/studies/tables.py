"""What the runs of a study come to: means over seeds, the claims of the paper, our targets."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Any

from bnaf.studies.ledger import Record
from bnaf.studies.plans import Trial
from bnaf.studies.study import Study

HEADERS = ("", "flow", "nats above the least", "aim", "weights", "seconds", "command")


@dataclass(frozen=True)
class Summary:
    """All seeds of one flow in one experiment.

    Args:
        name: Data set or energy.
        flow: Name of the variant.
        title: What it is called in tables.
        seeds: Number of runs.
        excess: Mean excess of the loss over the least there is, in nats.
        deviation: Its standard deviation over seeds; ``None`` for a single one.
        error: Standard error of the excess within a run, the largest of all seeds.
        target: What the excess is to stay below, if there is a target.
        remark: What was measured beside the loss.
        weights: Numbers that were trained.
        seconds: Mean time of training.
        command: What reproduces it.
    """

    name: str
    flow: str
    title: str
    seeds: int
    excess: float
    deviation: float | None
    error: float
    target: float | None
    remark: str
    weights: int
    seconds: float
    command: str

    def as_dict(self) -> dict[str, Any]:
        """Return all of it by name."""
        return dataclasses.asdict(self)

    @property
    def cells(self) -> tuple[str, ...]:
        """The row of a table, under ``HEADERS``."""
        spread = "" if self.deviation is None else f" ± {self.deviation:.4f}"
        return (
            self.name,
            self.title,
            f"{self.excess:.4f}{spread}",
            "" if self.target is None else f"{self.target:g}",
            f"{self.weights:,}",
            f"{self.seconds:.0f}",
            self.command,
        )


def summarise(study: Study, finished: Sequence[tuple[Trial, Record]]) -> list[Summary]:
    """Return one summary for every flow of every experiment, in the order of the files."""
    groups: dict[tuple[str, str], list[tuple[Trial, Record]]] = {}
    for run, record in finished:
        groups.setdefault((run.experiment.name, run.variant.name), []).append((run, record))
    return [_summarise(study, group) for group in groups.values()]


def _summarise(study: Study, group: Sequence[tuple[Trial, Record]]) -> Summary:
    run, records = group[0][0], [record for _, record in group]
    measures = [record["measures"] for record in records]
    excesses = [one["excess"] for one in measures]
    return Summary(
        name=run.experiment.name,
        flow=run.variant.name,
        title=run.variant.title,
        seeds=len(records),
        excess=mean(excesses),
        deviation=stdev(excesses) if len(excesses) > 1 else None,
        error=max(one["loss_error"] for one in measures),
        target=run.variant.target,
        remark=study.remark(measures),
        weights=records[0]["weights"],
        seconds=mean(record["seconds"] for record in records),
        command=run.command.partition(" --seeds")[0],
    )


def write_markdown(study: Study, summaries: Sequence[Summary], claims: dict[str, str]) -> str:
    """Return the table of a study as Markdown, with what the paper says of each experiment.

    Args:
        study: Whose table it is.
        summaries: Its rows.
        claims: The paper's claims, by the name of the experiment.
    """
    headers = ("", "the paper", *HEADERS[1:-1], study.remark_title, HEADERS[-1])
    lines = ["| " + " | ".join(headers) + " |", "|" + "---|" * len(headers)]
    for summary in summaries:
        name, *cells, command = summary.cells
        cells = [name, claims[name], *cells, summary.remark, f"`{command}`"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"
