"""Fit tables of ever more columns, and score fresh rows beside the law they were drawn from.

The columns are normal, a few factors in common and noise of their own, so that the best score
there is, that of the law itself, is known. Tables are cut from one: each has the columns of the
narrower ones and some more. What a fit loses should grow smoothly with their number.

    python benchmarks/wide.py --columns 256 257 --steps 40 --out results/wide.json
"""

import argparse
import json
from pathlib import Path

import torch
from torch.distributions import LowRankMultivariateNormal

from bnaf import Model, TrainingSettings

FACTORS, NOISE, TEST_ROWS = 8, 0.5, 2_000


def make_law(columns: int) -> LowRankMultivariateNormal:
    """Return the law of the first columns of one and the same table."""
    generator = torch.Generator().manual_seed(0)
    factors = torch.randn(4096, FACTORS, generator=generator, dtype=torch.float64)[:columns]
    own = torch.full((columns,), NOISE**2, dtype=torch.float64)
    return LowRankMultivariateNormal(torch.zeros_like(own), factors, own, validate_args=False)


def measure(columns: int, rows: int, steps: int, seed: int) -> dict[str, float]:
    """Fit a table of so many columns, and score fresh rows in nats."""
    law = make_law(columns)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        table, fresh = law.sample((rows,)), law.sample((TEST_ROWS,))
    settings = TrainingSettings(steps=steps, seed=seed)
    model = Model.fit(table, settings=settings, progress=False)
    lost = law.log_prob(fresh) - model.log_prob(fresh)
    return {
        "columns": columns,
        "rows": rows,
        "steps": steps,
        "seed": seed,
        "truth": law.log_prob(fresh).mean().item(),
        "lost": lost.mean().item(),
        "standard_error": (lost.std() / TEST_ROWS**0.5).item(),
    }


def main() -> None:
    """Measure every number of columns, and print as they come."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--columns", type=int, nargs="+", default=[255, 256, 257, 258])
    parser.add_argument("--rows", type=int, default=1_000)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--out", type=Path, help="JSON")
    options = parser.parse_args()
    records = []
    for columns in options.columns:
        for seed in range(options.seeds):
            record = measure(columns, options.rows, options.steps, seed)
            records.append(record)
            print(
                f"{columns:5} columns: truth {record['truth']:9.2f}, "
                f"{record['lost']:6.2f} ± {record['standard_error']:.2f} nats below it",
                flush=True,
            )
    if options.out is not None:
        options.out.write_text(json.dumps({"records": records}, indent=1) + "\n")


if __name__ == "__main__":
    main()
