"""The results of a study: a JSON file that holds every run that was finished."""

import json
import os
import platform
import re
from collections.abc import Mapping
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


class Ledger:
    """Records of the runs of one study, written to a file as soon as each is there.

    Args:
        path: The file; what it holds is read first.

    Raises:
        StorageError: If it exists and is none.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
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

    def find(self, run: Trial) -> Record | None:
        """Return the record of a run, or none where it was not finished with these settings."""
        return self.records.get(run.stem)

    def add(self, record: Record) -> None:
        """Add a record, in place of one of the same run under older settings, and write all."""
        outdated = [
            key
            for key, other in self.records.items()
            if all(other[part] == record[part] for part in ("name", "flow", "seed", "steps"))
            and other["measures"]["rows"] == record["measures"]["rows"]
        ]
        for key in outdated:
            del self.records[key]
        self.records[record["run"]] = record
        ordered = sorted(self.records.values(), key=lambda one: one["run"])
        text = json.dumps({"records": ordered}, indent=1, allow_nan=False)
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
        "threads": torch.get_num_threads(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": f"{_processor()}, {os.cpu_count()} cores, torch {torch.__version__}",
    }


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    model = re.search(r"model name\s*: (.+)", info.read_text() if info.exists() else "")
    return model[1] if model else platform.processor() or platform.machine()
