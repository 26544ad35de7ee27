"""Rows of every kind: likelihood, samples and outliers beside rivals, on real tables.

python benchmarks/mixed.py --data DIR --out results/mixed.json

Three tables are printed at the end, means over seeds; the first two are of the same fits:

* likelihood: test nats per row, of all models as the mass of the same cells (`mixed_tables.py`
  says which).
* samples: AUC of boosted trees that tell them from test rows (0.5 is best), Column Shapes and
  Column Pair Trends of sdmetrics (1 is best), how well trees grown on them predict test rows (AUC,
  or R² of a number), and seconds to fit.
* outliers: AUC of detectors that were fitted with the outliers among the rows, and without.

Every run has a process of its own. Those that can be told end after the seconds that are given,
or earlier by themselves. What the file of results holds is not run again.
"""

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import mean
from time import perf_counter

from mixed_densities import DENSITIES
from mixed_outliers import DETECTORS, OUTLIER_TABLES, judge_detector, load_outliers
from mixed_samplers import SAMPLERS, judge
from mixed_tables import TARGETS, load
from shared import Record, measure_apart, read_records, use_two_threads, write_report

NAMES = ("question", "table", "library", "seed")
COLUMNS = {
    "likelihood": ("test", "standard_error", "seconds"),
    "samples": ("auc", "shapes", "trends", "usefulness", "seconds"),
    "outliers": ("auc_among", "auc_without", "seconds"),
}


def run_rows(folder: Path, table: str, library: str, seed: int, seconds: float) -> Record:
    """Return how good samples are, and test nats per row where there is a likelihood."""
    split = load(folder, table, seed)
    contestant = SAMPLERS[library](split.columns, seed)
    start = perf_counter()
    contestant.fit(split.train, seconds)
    record: Record = {"seconds": perf_counter() - start}
    if library in DENSITIES:
        nats = contestant.score(split.test)
        record["test"] = float(nats.mean())
        record["standard_error"] = float(nats.std() / len(nats) ** 0.5)
    return record | judge(contestant, split, table)


def run_outliers(folder: Path, table: str, library: str, seed: int, seconds: float) -> Record:
    """Return how well outliers are found."""
    rows, outlying = load_outliers(folder, table)
    start = perf_counter()
    record = judge_detector(library, rows, outlying, seed)
    return record | {"seconds": perf_counter() - start}


QUESTIONS: dict[str, Callable[[Path, str, str, int, float], Record]] = {
    "rows": run_rows,
    "outliers": run_outliers,
}
LIBRARIES = {"rows": SAMPLERS, "outliers": DETECTORS}
TABLES = {"rows": (*TARGETS,), "outliers": OUTLIER_TABLES}


def run_case(question: str, folder: Path, table: str, library: str, rest: list[str]) -> None:
    """Run once, and print the record as JSON."""
    use_two_threads()
    seed, seconds = int(rest[0]), float(rest[1])
    record = QUESTIONS[question](folder, table, library, seed, seconds)
    print(json.dumps(record | {"failure": None}), flush=True)


def plan_cases(options: argparse.Namespace) -> list[tuple[str, str, str, int]]:
    """Return question, table, contestant and seed of every run that is asked for."""
    return [
        (question, table, library, seed)
        for seed in range(options.seeds)
        for question in options.questions
        for table in TABLES[question]
        for library in LIBRARIES[question]
        if (table in options.tables or not options.tables)
        and (library in options.only or not options.only)
    ]


def show(records: list[Record], title: str) -> str:
    """Return a table of the means over seeds, or of what went wrong."""
    names = COLUMNS[title]
    lines = [f"{title:21} {'':16}" + "".join(f"{name:>15}" for name in names)]
    question = title if title in QUESTIONS else "rows"
    asked = [record for record in records if record["question"] == question]
    for table, library in dict.fromkeys((r["table"], r["library"]) for r in asked):
        runs = [r for r in asked if (r["table"], r["library"]) == (table, library)]
        done = [run for run in runs if names[0] in run]
        failures = [run["failure"][:80] for run in runs if run["failure"]]
        told = "".join(f"{mean(run[name] for run in done):15.3f}" for name in names if done)
        if told or failures:
            lines.append(f"{table:21} {library:16}{told or ' ' + failures[0]}")
    return "\n".join(lines)


def main() -> None:
    """Run every case that the report does not hold yet, and print the tables."""
    if sys.argv[1:2] == ["--case"]:
        question, folder, table, library, *rest = sys.argv[2:]
        return run_case(question, Path(folder), table, library, rest)
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True, help="folder of the tables, .csv.gz")
    parser.add_argument("--seconds", type=float, default=120, help="of training, where told")
    parser.add_argument("--questions", nargs="+", choices=[*QUESTIONS], default=[*QUESTIONS])
    parser.add_argument("--tables", nargs="+", choices=[*TARGETS, *OUTLIER_TABLES], default=[])
    everybody = [*dict.fromkeys([*SAMPLERS, *DETECTORS])]
    parser.add_argument("--only", nargs="+", choices=everybody, default=[], help="contestants")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, required=True, help="JSON; runs it holds stay")
    options = parser.parse_args()
    records = read_records(options.out)
    kept = {tuple(record[name] for name in NAMES) for record in records}
    for case in plan_cases(options):
        if case in kept:
            continue
        question, table, library, seed = case
        arguments = [question, options.data, table, library, seed, options.seconds]
        record = dict(zip(NAMES, case, strict=True)) | {"budget": options.seconds}
        record |= measure_apart(__file__, arguments)
        records.append(record)
        write_report(options.out, records)
        print(*case, record.get("failure") or f"{record['seconds']:.0f} s", flush=True)
    for title in COLUMNS:
        print("", show(records, title), sep="\n")


if __name__ == "__main__":
    main()
