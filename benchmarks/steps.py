"""Training steps, timed in turns beside a dense MLP of the same layer widths.

A step is the mean negative log-likelihood of a batch, its gradient, clipping and Adam, in float32
on two threads. The contestants take turns, so that a noisy moment of the machine meets all of
them.
"""

import gc
import math
from collections.abc import Callable, Iterable
from itertools import product
from statistics import median
from time import perf_counter
from typing import Any

import shared
from shared import NETWORKS, Network, Record, draw_rows, make_mlp

CLIP_NORM = 0.1
LEARNING_RATE = 1e-6  # too small to move the weights: every step times the same network
ROUNDS, LEAST_REPEATS = 5, 3

Step = Callable[[], float]  # takes one training step and returns its loss
Build = Callable[[Network, int], Step]


def torch_step(loss: Callable[[], Any], parameters: Iterable[Any]) -> Step:
    """Return the training step of a torch model whose loss is computed by a function."""
    import torch

    parameters = list(parameters)
    adam = torch.optim.Adam(parameters, lr=LEARNING_RATE, fused=True)

    def step() -> float:
        adam.zero_grad()
        value = loss()
        value.backward()
        torch.nn.utils.clip_grad_norm_(parameters, CLIP_NORM)
        adam.step()
        return float(value.detach())

    return step


def build_mlp(network: Network, batch: int) -> Step:
    """Build the floor: dense tanh MLPs of the same layer widths, one after another."""
    import torch

    mlp, x = make_mlp(network), torch.from_numpy(draw_rows(batch, network.features))
    return torch_step(lambda: 0.5 * mlp(x).square().sum(-1).mean(), mlp.parameters())


def build_bnaf(network: Network, batch: int, *, mode: str = "plain") -> Step:
    """Build ours, the paper's network: plain torch, compiled by torch, or with the kernels."""
    import torch

    from bnaf import BNAF
    from bnaf.block import kernels

    flow = BNAF.paper(
        network.features,
        transforms=network.transforms,
        hidden_layers=network.hidden_layers,
        width=network.width,
    )
    rows = torch.from_numpy(draw_rows(batch, network.features))

    def loss() -> Any:
        return -flow().log_prob(rows).mean()

    if mode == "native":
        kernels.build()
        return torch_step(loss, flow.parameters())
    if mode == "compiled":
        options = {"cpp_wrapper": True, "cpp.use_decompose_tanh": True}
        compiled = torch.compile(loss, fullgraph=True, options=options)
        return torch_step(compiled, flow.parameters())

    def plain_loss() -> Any:
        with kernels.disabled():
            return loss()

    return torch_step(plain_loss, flow.parameters())


def warm_up(build: Build, network: Network, batch: int) -> tuple[Step | None, str | None, float]:
    """Return a contestant that has taken two steps, or the reason why there is none."""
    from torch.distributions import Distribution

    checked = Distribution._validate_args
    start = perf_counter()
    try:
        step = build(network, batch)
        losses = [step(), step()]
    except ImportError as error:
        return None, f"not installed ({error})", 0.0
    except Exception as error:
        return None, shared.explain(error), 0.0
    finally:
        Distribution.set_default_validate_args(checked)  # importing a library may switch it
    seconds = perf_counter() - start
    finite = all(map(math.isfinite, losses))
    return (step, None, seconds) if finite else (None, f"losses {losses}", seconds)


def time_in_turns(steps: dict[str, Step], seconds: float) -> dict[str, list[float]]:
    """Return the seconds of each timed step, every contestant having a slot in each round."""
    times: dict[str, list[float]] = {library: [] for library in steps}
    spent = dict.fromkeys(steps, 0.0)
    slot = seconds / ROUNDS
    while pending := [
        name for name in steps if spent[name] < seconds or len(times[name]) < LEAST_REPEATS
    ]:
        for name in pending:
            gc.collect()
            start = perf_counter()
            if not times[name] or times[name][-1] < slot:
                steps[name]()  # untimed: the threads and caches of the one before settle
            while True:
                before = perf_counter()
                steps[name]()
                after = perf_counter()
                times[name].append(after - before)
                if after - start > slot:
                    break
            spent[name] += after - start
    return times


def run_case(
    contestants: dict[str, Build], network: str, batch: int, seconds: float
) -> list[Record]:
    """Return a record for each library, with the reason of those that failed."""
    built = {
        library: warm_up(build, NETWORKS[network], batch) for library, build in contestants.items()
    }
    steps = {library: step for library, (step, _, _) in built.items() if step}
    times = time_in_turns(steps, seconds)
    floor = median(times["mlp"]) if "mlp" in times else None
    records: list[Record] = []
    for library, (_, failure, first) in built.items():
        record: Record = {"library": library, "version": shared.installed_version(library)}
        record |= {"network": network, "batch": batch, "failure": failure}
        if library in times:
            middle = median(times[library])
            record |= {
                "milliseconds": 1e3 * middle,
                "milliseconds_min": 1e3 * min(times[library]),
                "ratio_to_mlp": middle / floor if floor else None,
                "repeats": len(times[library]),
                "warm_up_seconds": first,
            }
        records.append(record)
    return records


def run(contestants: dict[str, Build], **notes: float) -> None:
    """Time every case, printing its lines and rewriting the report, notes included, after each."""
    parser = shared.make_parser(contestants, NETWORKS, 3.0)
    parser.add_argument("--batches", nargs="+", type=int, default=[200, 2000])
    options = parser.parse_args()
    shared.use_two_threads()
    names = dict.fromkeys(["mlp", *options.libraries])  # the floor is always timed
    chosen = {name: contestants[name] for name in names}
    records: list[Record] = []
    print("network    batch library        milliseconds  smallest  ratio to MLP  warm-up (s)")
    for batch, network in product(options.batches, options.networks):
        case = run_case(chosen, network, batch, options.seconds)
        records += case
        for record in case:
            print("{network:10} {batch:5} {library:14}".format_map(record), end="")
            numbers = "{milliseconds:13.2f} {milliseconds_min:9.2f} {ratio_to_mlp:13.2f}"
            numbers += " {warm_up_seconds:12.1f}"
            values = record | {"ratio_to_mlp": record.get("ratio_to_mlp") or math.nan}
            print(record["failure"] or numbers.format_map(values), flush=True)
        shared.write_report(options.out, records, **notes)
