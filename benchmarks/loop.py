"""Time the training loop beside the bare step it is made of.

python benchmarks/loop.py --out results/loop.json

Both take the same steps on the same rows with the same flow: the bare one computes the loss, its
gradient, clips and lets Adam step, batch after batch of rows that lie in order; the loop also
shuffles, averages the weights, follows its schedule, watches for losses that are not finite, and
evaluates. They take turns, so that a noisy moment of the machine meets both. The target is a
ratio of at most 1.05.
"""

from statistics import median
from time import perf_counter
from typing import Any

import shared
from shared import NETWORKS, Record

BATCH, STEPS = 512, 200


def make_flow(name: str) -> Any:
    """Return the default flow with the sizes of one of the paper's networks."""
    import torch

    from bnaf import BNAF

    network = NETWORKS[name]
    torch.manual_seed(0)
    return BNAF(
        network.features,
        transforms=network.transforms,
        hidden_layers=network.hidden_layers,
        width=network.width,
    )


def time_bare(flow: Any, rows: Any, steps: int) -> float:
    """Return the seconds of a bare step."""
    import torch

    parameters = list(flow.parameters())
    adam = torch.optim.Adam(parameters, lr=1e-6, fused=True)
    batches = rows.split(BATCH)
    start = perf_counter()
    for step in range(steps):
        adam.zero_grad()
        loss = -flow().log_prob(batches[step % len(batches)]).mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 5.0)
        adam.step()
    return (perf_counter() - start) / steps


def time_loop(flow: Any, rows: Any, steps: int) -> float:
    """Return the seconds of a step of the loop, its start and end included."""
    from bnaf import TrainingSettings, fit

    settings = TrainingSettings(steps=steps, batch=BATCH, learning_rate=1e-6)
    start = perf_counter()
    fit(flow, rows, settings=settings, progress=False)
    return (perf_counter() - start) / steps


def run_case(name: str, seconds: float) -> Record:
    """Return the medians of both, over as many turns as the time allows."""
    import torch

    flow = make_flow(name)
    rows = torch.from_numpy(shared.draw_rows(20 * BATCH, flow.features))
    time_loop(flow, rows, 3)
    pilot = time_bare(flow, rows, 3)
    steps = max(20, min(STEPS, int(seconds / 10 / pilot)))
    turns = []
    start = perf_counter()
    while len(turns) < 5 or perf_counter() - start < seconds:
        turns.append((time_bare(flow, rows, steps), time_loop(flow, rows, steps)))
    bare, loop = (1e3 * median(times) for times in zip(*turns, strict=True))
    ratio = median(loop / bare for bare, loop in turns)
    record: Record = {"network": name, "batch": BATCH, "steps": steps, "turns": len(turns)}
    return record | {"bare_milliseconds": bare, "loop_milliseconds": loop, "ratio": ratio}


def main() -> None:
    """Time every network, printing its line and rewriting the report after each."""
    parser = shared.make_parser(["bnaf"], ["toy", "POWER", "MINIBOONE"], 20.0)
    options = parser.parse_args()
    shared.use_two_threads()
    records: list[Record] = []
    print("network     bare (ms)  loop (ms)  ratio  turns")
    for name in options.networks:
        records.append(run_case(name, options.seconds))
        line = "{network:10} {bare_milliseconds:10.2f} {loop_milliseconds:10.2f} {ratio:6.3f}"
        print((line + " {turns:6}").format_map(records[-1]), flush=True)
        shared.write_report(options.out, records)


if __name__ == "__main__":
    main()
