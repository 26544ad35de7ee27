"""What intervals cost: a training step of numbers that are points, intervals, or some of each.

python benchmarks/intervals.py --out results/intervals.json

Forward and backward pass of the flow of rows of every kind, medians of rounds in which all cases
take turns, as multiples of the step whose numbers are all points.
"""

import argparse
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from shared import Record, use_two_threads, write_report

CASES = ("points", "intervals", "half of the columns", "half of the cells")
NUMBERS, ROUNDS, BATCH = (4, 8, 20), 60, 512


def make_rows(case: str, numbers: int) -> Any:
    """Return packed rows: middles, and how far the ends of intervals lie below and above."""
    import torch

    generator = torch.Generator().manual_seed(0)
    middle = torch.randn(BATCH, numbers, generator=generator)
    wide = torch.full_like(middle, 0.1)
    if case == "points":
        wide.zero_()
    elif case == "half of the columns":
        wide[:, ::2] = 0.0
    elif case == "half of the cells":
        wide[torch.rand(wide.shape, generator=generator) < 0.5] = 0.0
    return torch.cat([middle, wide, wide], 1)


def measure(numbers: int, levels: list[int]) -> list[Record]:
    """Return the seconds of a step in each case, with and without the point of reference."""
    import torch

    from bnaf.flows.mixed import Mixed

    torch.manual_seed(0)
    flow = Mixed(levels, numbers, transforms=3, hidden_layers=2, width=10)
    rows = {case: make_rows(case, numbers) for case in CASES}
    if levels:
        drawn = torch.stack([torch.randint(count, (BATCH,)) for count in levels], 1)
        rows = {case: torch.cat([drawn.float(), part], 1) for case, part in rows.items()}
    spent: dict[str, list[float]] = {case: [] for case in CASES}
    for _ in range(ROUNDS):
        for case, part in rows.items():
            start = perf_counter()
            flow.zero_grad()
            (-flow().log_prob(part).mean()).backward()
            spent[case].append(perf_counter() - start)
    points = median(spent["points"])
    return [
        {"numbers": numbers, "levels": len(levels), "case": case}
        | {"seconds": median(times), "ratio": median(times) / points, "failure": None}
        for case, times in spent.items()
    ]


def main() -> None:
    """Measure all cases, print them and write the report."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True, help="JSON")
    options = parser.parse_args()
    use_two_threads()
    records = [
        record
        for numbers in NUMBERS
        for levels in ([], [5, 3, 2])
        for record in measure(numbers, levels)
    ]
    for record in records:
        print("{numbers:3} numbers, {levels} levels, {case:20} {ratio:5.2f}".format_map(record))
    write_report(options.out, records)


if __name__ == "__main__":
    main()
