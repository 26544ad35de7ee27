"""The results of a study: a JSON file that holds every run that was finished."""

import json
import os
import platform
import re
from collections.abc import Callable, Hashable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from bnaf._files import atomic_file
from bnaf.errors import StorageError
from bnaf.flows.flow import Flow
from bnaf.studies.plans import Trial
from bnaf.training import TrainingRecord

Record = dict[str, Any]


NUMBERS = re.compile(r"\[\s+([-+.\deE,\s]+?)\s+\]")  # a list of numbers, one on each line


def _occasion(record: Record) -> Hashable:
    parts = tuple(record[part] for part in ("name", "flow", "seed", "steps"))
    return (*parts, record["measures"]["rows"])


class Ledger:
    """Records of the runs of one study, written to a file as soon as each is there.

    Args:
        path: The file; what it holds is read first.
        occasion: What tells apart records that may stand beside each other; of others the newer is
            kept.

    Raises:
        StorageError: If it exists and is none.
    """

    def __init__(self, path: Path, occasion: Callable[[Record], Hashable] = _occasion) -> None:
        self.path, self.occasion = path, occasion
        self.records: dict[str, Record] = {}
        if path.exists():
            try:
                facts = json.loads(path.read_text(encoding="utf-8"))
                self.records = {record["run"]: record for record in facts["records"]}
            except (ValueError, KeyError, TypeError) as error:
                raise StorageError(
                    f"{path} must hold the results of a study, and cannot be read ({error}); "
                    "give another folder, or remove it."
                ) from None

    def find(self, stem: str) -> Record | None:
        """Return the record of a run, or none where it was not finished with these settings."""
        return self.records.get(stem)

    def add(self, record: Record) -> None:
        """Add a record, in place of one of the same run under older settings, and write all."""
        occasion = self.occasion(record)
        outdated = [k for k, other in self.records.items() if self.occasion(other) == occasion]
        for key in outdated:
            del self.records[key]
        self.records[record["run"]] = record
        ordered = sorted(self.records.values(), key=lambda one: one["run"])
        text = json.dumps({"records": ordered}, indent=1, allow_nan=False)
        text = NUMBERS.sub(lambda found: f"[{' '.join(found[1].split())}]", text)
        with atomic_file(self.path) as file:
            file.write(f"{text}\n".encode())


def make_record(
    run: Trial, flow: Flow, training: TrainingRecord, measures: Mapping[str, Any]
) -> Record:
    """Return all there is to know of a finished run, ready for JSON."""
    return {
        "run": run.stem,
        "study": run.experiment.study,
        "name": run.experiment.name,
        "flow": run.variant.name,
        "seed": run.seed,
        "steps": training.steps,
        "command": run.command,
        "measures": dict(measures),
        "weights": flow.parameter_count,
        "settings": flow.settings,
        "training": training.settings,
        "objective": run.objective,
        "skipped_steps": training.skipped,
        "seconds": training.seconds,
        **describe_machine(),
    }


def describe_machine() -> Record:
    """Return when and where this is run."""
    return {
        "threads": torch.get_num_threads(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": f"{_processor()}, {os.cpu_count()} cores, torch {torch.__version__}",
    }


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    model = re.search(r"model name\s*: (.+)", info.read_text() if info.exists() else "")
    return model[1] if model else platform.processor() or platform.machine()
