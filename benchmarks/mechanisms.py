r"""Which context mechanism suits conditional densities, and whether an old fault is cured.

Mechanisms, by a tenth of the rows held out of those that train: what a context says to every layer
is a bias ("biases", the default), or a bias and two scales ("amortised", the paper's), each by the
network of the recipe or by one linear map ("linear"); and what the weights of context networks
cost at the rate of the others ("one rate"). Of one column given others, by one flow for all.

The fault: monthly charges of customers given their contract, as `bnaf fit` reads it and as a code,
by rows held out, beside the charges alone: what is given once cost a quarter of a nat.

    python benchmarks/mechanisms.py --data data --out results/mechanisms.json

Every case has a process of its own and one thread.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from conditional import cut, load
from shared import Record, measure_missing

MECHANISMS: dict[str, dict[str, Any]] = {
    "biases": {},
    "biases, linear": {"context_layers": 0},
    "amortised": {"context": "amortised"},
    "amortised, linear": {"context": "amortised", "context_layers": 0},
    "biases, one rate": {},
}
TABLES = ("protein", "diamonds")
CHARGES = ("charges alone", "charges given contract", "charges given its code")


def fit_mechanism(name: str, table: str, seconds: float, seed: int, data: Path) -> Record:
    """Fit one flow of one mechanism, and judge it by rows held out of those that train."""
    import torch

    from bnaf import Model, TrainingSettings

    known, _ = cut(load(data, table), seed)  # test rows stay unseen
    train, held = (
        torch.from_numpy(np.column_stack([part.y, part.x])) for part in cut(known, seed + 100)
    )
    given = [f"x{column}" for column in range(1, train.shape[1])]
    flow_settings = MECHANISMS[name]
    settings = TrainingSettings(seconds=seconds, seed=seed)
    if name.endswith("one rate"):
        from bnaf import BNAF

        BNAF.rates = lambda flow: {}  # type: ignore[method-assign]
    model = Model.fit(
        train,
        given=given,
        members=1,
        flow_settings=flow_settings,
        settings=settings,
        progress=False,
    )
    score = float(model.log_prob(held[:, :1], held[:, 1:], warn=False).mean())
    return {"valid": score, "steps": model.record["steps"], "weights": model.flow.parameter_count}


def fit_charges(name: str, seed: int, data: Path) -> Record:
    """Fit monthly charges to most rows, and judge them by the others."""
    import pandas as pd

    from bnaf import Model, TrainingSettings

    (path,) = (data / "tables").glob("wa_churn.csv*")
    frame = pd.read_csv(path)[["monthly_charges", "contract"]]
    given, kinds = ["contract"], {"monthly_charges": "number"}
    if name == "charges alone":
        frame, given = frame[["monthly_charges"]], []
    if name == "charges given its code":
        frame["contract"] = frame["contract"].astype("category").cat.codes
        kinds["contract"] = "number"
    order = np.random.default_rng(seed).permutation(len(frame))
    held, train = (frame.iloc[part] for part in np.split(order, [len(order) // 10]))
    settings = TrainingSettings(seed=seed)
    model = Model.fit(train, given=given, kinds=kinds, settings=settings, progress=False)
    score = float(model.log_prob(held, warn=False).mean())
    return {"valid": score, "steps": model.record["steps"]}


def run_case(words: list[str]) -> None:
    """Fit once, and print the record as JSON."""
    import torch

    torch.set_num_threads(1)
    name, table, seconds, seed, data = words
    if name in CHARGES:
        record = fit_charges(name, int(seed), Path(data))
    else:
        record = fit_mechanism(name, table, float(seconds), int(seed), Path(data))
    print(json.dumps({"failure": None} | record), flush=True)


def main() -> None:
    """Run every case that the report does not hold yet, and print as they come."""
    if sys.argv[1:2] == ["--case"]:
        return run_case(sys.argv[2:])
    parser = argparse.ArgumentParser(description="Context mechanisms, and an old fault.")
    parser.add_argument("--data", type=Path, required=True, help="folder of the data sets")
    parser.add_argument("--seconds", type=float, default=60, help="of each fit (default 60)")
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=[*TABLES])
    parser.add_argument("--seeds", type=int, default=4, help="of charges (default 4)")
    parser.add_argument("--out", type=Path, required=True, help="JSON; what it has stays")
    options = parser.parse_args()
    charges = [
        {"case": name, "table": "wa_churn", "budget": 0, "seed": seed}
        for seed in range(options.seeds)
        for name in CHARGES
    ]
    mechanisms = [
        {"case": name, "table": table, "budget": options.seconds, "seed": 0}
        for table in options.tables
        for name in MECHANISMS
    ]
    measure_missing(__file__, options.out, charges + mechanisms, options.data)


if __name__ == "__main__":
    main()
