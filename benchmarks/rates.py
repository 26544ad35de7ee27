"""Which rate suits each rival: log-likelihood of validation rows after equal time, by rate.

Every flow of the registry but ours is fitted at each rate and at its own, with all else that it
brings, to two made-up laws, of 6 and of 20 columns, that are no table of the study and have
nothing of theirs; where it is asked for, to the patches of the study's widest table, too, whose
test rows are not looked at. Every run has a process of its own and two threads. Numbers are nats
per validation row, by which the weights of a run are chosen, too.

    python benchmarks/rates.py --out results/rates.json
    python benchmarks/rates.py --out results/rates.json --laws patches --data data --seconds 60
"""

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from shared import Record, measure_missing, use_two_threads

from bnaf import Model, TrainingSettings
from bnaf.datasets.suite import read_suite
from bnaf.flows.registry import flow_named, flow_names

RATES = (0.001, 0.002, 0.005, 0.01)
TRAIN_ROWS, VALID_ROWS = 50_000, 4_000
FACTORS = 4


def draw_chain(rows: int, draws: np.random.Generator) -> np.ndarray:
    """Draw 6 columns: two clusters, then each a curve of the last, with noise that varies."""
    columns = [draws.choice([-1.5, 1.5], rows) + 0.5 * draws.normal(size=rows)]
    for place in range(5):
        last, first = columns[-1], columns[0]
        spread = 0.1 + 0.3 / (1 + np.exp(-3 * last))
        curve = np.sin(2 * last) + 0.3 * first * (place % 2)
        columns.append(curve + spread * draws.normal(size=rows))
    return np.stack(columns, 1)


def draw_factors(rows: int, draws: np.random.Generator) -> np.ndarray:
    """Draw 20 columns: heavy-tailed factors in common, bent and skewed, and noise of their own."""
    loads = np.random.default_rng(0).normal(size=(FACTORS, 20))  # the same for all rows
    factors = draws.standard_t(5, size=(rows, FACTORS))
    shared = factors @ loads / FACTORS**0.5 + 0.3 * draws.normal(size=(rows, 20))
    return np.sinh(0.5 * np.arcsinh(shared) + 0.3) + 0.2 * np.roll(shared, 1, 1) ** 2


LAWS: dict[str, Callable[[int, np.random.Generator], np.ndarray]] = {
    "chain, 6 columns": draw_chain,
    "factors, 20 columns": draw_factors,
}


PATCHES = "patches"  # a table of the study


def read_rows(law: str, seed: int, data: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Return rows to train on and to validate on."""
    if law == PATCHES:
        parts = read_suite("bsds300", data).parts
        assert parts.valid is not None
        return parts.train.rows, parts.valid.rows[:VALID_ROWS]
    rows = LAWS[law](TRAIN_ROWS + VALID_ROWS, np.random.default_rng(seed))
    train, valid = torch.from_numpy(rows).split([TRAIN_ROWS, VALID_ROWS])
    return train, valid


def rival_names() -> list[str]:
    """Return the flows whose rate is asked for: all but ours."""
    return [name for name in flow_names() if name != "bnaf"]


def run_case(law: str, flow: str, rate: float, seconds: float, seed: int, data: str) -> None:
    """Fit once, and print the record as JSON."""
    use_two_threads()
    train, valid = read_rows(law, seed, data)
    settings = TrainingSettings(seconds=seconds, learning_rate=rate, seed=seed)
    model = Model.fit(train, flow=flow, valid=valid, settings=settings, progress=False)
    record: Record = {"valid": model.log_prob(valid).mean().item(), "failure": None}
    record |= {"steps": model.record["steps"], "weights": model.flow.parameter_count}
    print(json.dumps(record), flush=True)


def read_arguments() -> argparse.Namespace:
    """Return what the command line asks for."""
    rivals = rival_names()
    parser = argparse.ArgumentParser(description="Rates of the rivals, by validation rows.")
    parser.add_argument("--laws", nargs="+", choices=[*LAWS, PATCHES], default=[*LAWS])
    parser.add_argument("--data", default="", help="folder of the public files, for patches")
    parser.add_argument("--flows", nargs="+", choices=rivals, default=rivals)
    parser.add_argument("--rates", nargs="+", type=float, default=[*RATES])
    parser.add_argument("--seconds", type=float, default=10, help="of training, each run")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--out", type=Path, required=True, help="JSON; what it has is not run again"
    )
    return parser.parse_args()


def plan_cases(options: argparse.Namespace) -> list[tuple[str, str, float]]:
    """Return flow, law and rate of every run; the rate that a flow brings is always among them."""
    return [
        (flow, law, rate)
        for flow in options.flows
        for law in options.laws
        for rate in sorted({*options.rates, flow_named(flow).learning_rate})
    ]


def main() -> None:
    """Run every case that the report does not hold yet, and print as they come."""
    if sys.argv[1:2] == ["--case"]:
        law, flow, rate, seconds, seed, data = sys.argv[2:]
        return run_case(law, flow, float(rate), float(seconds), int(seed), data)
    options = read_arguments()
    use_two_threads()
    told = {"budget": options.seconds, "seed": options.seed}
    measure_missing(
        __file__,
        options.out,
        [
            {"law": law, "flow": flow, "rate": rate} | told
            for flow, law, rate in plan_cases(options)
        ],
        options.data,
    )


if __name__ == "__main__":
    main()
