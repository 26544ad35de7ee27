"""Time conditional flows beside unconditional ones and the dense MLP, with 8 context columns.

python benchmarks/contexts.py --out results/contexts.json

For each network of the paper, with our activation and gates: a training step without a context,
with one (the default mechanism, its context network included), with the larger context network
that the recipe takes for a table, and amortised as the paper does it; `flow(context).log_prob` and
`.sample` without a context and with one for each row, context network included. All take turns.
Of larger batches 500 rows are drawn. The ratio of a step is to that without a context; that of the
amortised one to the step plus its own context network, forward and backward. Targets: 1.5 at most,
each.
"""

from itertools import product
from statistics import median
from typing import Any

import shared
from shared import NETWORKS, Network, Record, draw_rows
from steps import build_mlp, time_in_turns, torch_step

CONTEXT_COLUMNS = 8
MOST_DRAWS = 500


def build_flow(network: Network, context: str | None, *, recipe: bool = False) -> Any:
    """Return the flow, without a context or with one of a kind, by the recipe or by default."""
    import torch

    from bnaf import BNAF

    torch.manual_seed(0)
    given = {} if context is None else {"context": context, "context_features": CONTEXT_COLUMNS}
    if recipe:
        sizes = BNAF.sizes_for(network.features, small=False, given=CONTEXT_COLUMNS)
        given |= {name: size for name, size in sizes.items() if name.startswith("context")}
    return BNAF(
        network.features,
        transforms=network.transforms,
        hidden_layers=network.hidden_layers,
        width=network.width,
        **given,
    )


def build_step(flow: Any, rows: Any, given: list[Any]) -> Any:
    """Return a training step."""
    return torch_step(lambda: -flow(*given).log_prob(rows).mean(), flow.parameters())


def build_network_step(flow: Any, given: list[Any]) -> Any:
    """Return the amortised context network alone, forward and backward."""

    def loss() -> Any:
        return sum(part.sum() for part in flow.conditioner(*given))

    return torch_step(loss, flow.conditioner.parameters())


def run_case(name: str, batch: int, seconds: float) -> Record:
    """Return all times of a network and a batch."""
    import torch

    network = NETWORKS[name]
    rows = torch.from_numpy(draw_rows(batch, network.features))
    given = [torch.from_numpy(draw_rows(batch, CONTEXT_COLUMNS))]
    alone, conditional = build_flow(network, None), build_flow(network, "biases")
    amortised = build_flow(network, "amortised")
    calls = {
        "mlp": build_mlp(network, batch),
        "step": build_step(alone, rows, []),
        "step given": build_step(conditional, rows, given),
        "step of the recipe": build_step(build_flow(network, "biases", recipe=True), rows, given),
        "step amortised": build_step(amortised, rows, given),
        "amortised network": build_network_step(amortised, given),
    }
    times = {key: median(spent) for key, spent in time_in_turns(calls, seconds).items()}
    draws = min(batch, MOST_DRAWS)
    with torch.no_grad():
        calls = {
            "log_prob": lambda: alone().log_prob(rows),
            "log_prob given": lambda: conditional(*given).log_prob(rows),
            "sample": lambda: alone().sample((draws,)),
            "sample given": lambda: conditional(given[0][:draws]).sample(),
        }
        times |= {key: median(spent) for key, spent in time_in_turns(calls, seconds).items()}
    both = times["step"] + times["amortised network"]
    return {
        "network": name,
        "batch": batch,
        "milliseconds": {key: 1e3 * spent for key, spent in times.items()},
        "step": times["step given"] / times["step"],
        "recipe": times["step of the recipe"] / times["step"],
        "amortised": times["step amortised"] / both,
        "log_prob": times["log_prob given"] / times["log_prob"],
        "sample": times["sample given"] / times["sample"],
        "to_mlp": times["step given"] / times["mlp"],
    }


def main() -> None:
    """Time every case, and rewrite the report after each."""
    from bnaf.block import kernels

    parser = shared.make_parser([], NETWORKS, 1.0)
    parser.add_argument("--batches", nargs="+", type=int, default=[200, 2000])
    options = parser.parse_args()
    shared.use_two_threads()
    kernels.build()
    records: list[Record] = []
    print("network    batch  step (ms)  given  recipe  amortised  log_prob  sample  given to MLP")
    for batch, name in product(options.batches, options.networks):
        record = run_case(name, batch, options.seconds)
        records.append(record)
        line = "{network:10} {batch:5}".format_map(record)
        line += f" {record['milliseconds']['step']:10.2f}"
        line += " {step:6.2f} {recipe:7.2f} {amortised:10.2f} {log_prob:9.2f} {sample:7.2f}"
        line += " {to_mlp:13.2f}"
        print(line.format_map(record), flush=True)
        shared.write_report(options.out, records)


if __name__ == "__main__":
    main()
