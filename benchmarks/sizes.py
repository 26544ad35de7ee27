"""Which sizes suit our recipe: log-likelihood of validation rows by sizes, rows and budget.

B-NAF is fitted with every pair of transforms and units per feature to made-up laws, of 6 and of
20 columns, that are no table of any study, with as many rows to train on as asked for. Every run
has a process of its own and two threads. Numbers are nats per validation row, by which the
weights of a run are chosen, too. A budget of 0 leaves the length of the run to the recipe.

    python benchmarks/sizes.py --out results/sizes.json
"""

import argparse
import json
import sys
import time
from itertools import product
from pathlib import Path

import numpy as np
from rates import LAWS, VALID_ROWS
from shared import Record, measure_missing, use_two_threads

SIZES = ("3x20", "5x20", "3x40", "5x40")


def run_case(law: str, rows: int, sizes: str, seconds: float, seed: int) -> None:
    """Fit once, and print the record as JSON."""
    import torch

    from bnaf import Model, TrainingSettings

    use_two_threads()
    drawn = LAWS[law](rows + VALID_ROWS, np.random.default_rng(seed))
    train, valid = torch.from_numpy(drawn).split([rows, VALID_ROWS])
    transforms, width = map(int, sizes.split("x"))
    began = time.perf_counter()
    model = Model.fit(
        train,
        flow="bnaf",
        valid=valid,
        settings=TrainingSettings(seconds=seconds or None, seed=seed),
        flow_settings={"transforms": transforms, "width": width},
        progress=False,
    )
    record: Record = {"seconds": time.perf_counter() - began, "failure": None}
    record |= {"valid": model.log_prob(valid).mean().item()}
    record |= {"steps": model.record["steps"], "weights": model.flow.parameter_count}
    print(json.dumps(record), flush=True)


def read_arguments() -> argparse.Namespace:
    """Return what the command line asks for."""
    parser = argparse.ArgumentParser(description="Sizes of B-NAF, by validation rows.")
    parser.add_argument("--laws", nargs="+", choices=[*LAWS], default=[*LAWS])
    parser.add_argument("--rows", nargs="+", type=int, default=[2_000, 50_000])
    parser.add_argument("--sizes", nargs="+", default=[*SIZES], help="transforms x width")
    parser.add_argument("--seconds", type=float, default=60, help="of training, each run")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--out", type=Path, required=True, help="JSON; what it has is not run again"
    )
    return parser.parse_args()


def main() -> None:
    """Run every case that the report does not hold yet, and print as they come."""
    if sys.argv[1:2] == ["--case"]:
        law, rows, sizes, seconds, seed = sys.argv[2:]
        return run_case(law, int(rows), sizes, float(seconds), int(seed))
    options = read_arguments()
    use_two_threads()
    told = {"budget": options.seconds, "seed": options.seed}
    cases = product(options.laws, options.rows, options.sizes)
    measure_missing(
        __file__,
        options.out,
        [{"law": law, "rows": rows, "sizes": sizes} | told for law, rows, sizes in cases],
    )


if __name__ == "__main__":
    main()
