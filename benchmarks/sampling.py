"""Time `log_prob` and `sample` of fitted flows, beside a dense MLP's forward pass.

Ours, zuko's NAF and FlowJAX's B-NAF, after a short fit. Each case has its own process, so that
what zuko switches off in torch reaches no other. The rows drawn grow tenfold within a time limit;
the last number that worked and the failure are kept. The quotient is the time of
`sample` over that of `log_prob`.

    python benchmarks/sampling.py --libraries mlp bnaf --out results/sampling.json
"""

import json
import math
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import chain, product
from statistics import median
from time import perf_counter
from typing import Any

from shared import (
    NETWORKS,
    Network,
    Record,
    draw_rows,
    explain,
    installed_version,
    make_mlp,
    make_parser,
    use_two_threads,
    write_report,
)

FIT_BATCH, FIT_RATE = 200, 1e-2
COUNTS = (1, 10, 100, 1_000, 10_000)  # of rows
ROUND_TRIP_ATOL = 1e-4  # a draw whose image is further than this from its base draw is wrong

# A fitted law: log_prob and sample of so many rows, and |f(f^-1(z)) - z| of what sample returned.
Subject = tuple[Callable[[int], Any], Callable[[int], Any] | None, Callable[[Any], Any] | None]


def make_flowjax_law(network: Network, activation: Any = None) -> Any:
    """Return FlowJAX's B-NAF, closed-form in log_prob and by default with its leaky tanh."""
    import jax
    from flowjax.distributions import StandardNormal
    from flowjax.flows import block_neural_autoregressive_flow

    return block_neural_autoregressive_flow(
        jax.random.key(0),
        base_dist=StandardNormal((network.features,)),
        nn_depth=network.hidden_layers,
        nn_block_dim=network.width,
        flow_layers=network.transforms,
        activation=activation,
    )


def fit_mlp(network: Network, steps: int) -> Subject:
    """Return the forward pass of dense tanh MLPs of the same layer widths, in place of a law."""
    import torch

    mlp = make_mlp(network)
    table = torch.from_numpy(draw_rows(COUNTS[-1], network.features))
    return torch.no_grad()(lambda rows: mlp(table[:rows])), None, None


def fit_torch(flow: Any, network: Network, steps: int) -> Subject:
    """Fit a flow of torch, whose call returns a law."""
    import torch

    adam = torch.optim.Adam(flow.parameters(), lr=FIT_RATE)
    for x in torch.from_numpy(draw_rows(steps * FIT_BATCH, network.features)).split(FIT_BATCH):
        adam.zero_grad()
        (-flow().log_prob(x).mean()).backward()
        adam.step()
    law = flow.eval().requires_grad_(False)()
    table = torch.from_numpy(draw_rows(COUNTS[-1], network.features))

    def sample(rows: int) -> Any:
        torch.manual_seed(0)
        return law.sample((rows,))

    def round_trip(x: Any) -> Any:
        torch.manual_seed(0)
        return abs(law.transform(x) - law.base.sample(x.shape[:1])).numpy()

    return torch.no_grad()(lambda rows: law.log_prob(table[:rows])), sample, round_trip


def fit_bnaf(network: Network, steps: int) -> Subject:
    """Fit ours, with the default activation and gates, so that it is onto."""
    import torch

    from bnaf import BNAF
    from bnaf.block import kernels

    kernels.build()
    torch.manual_seed(0)
    flow = BNAF(
        network.features,
        transforms=network.transforms,
        hidden_layers=network.hidden_layers,
        width=network.width,
    )
    return fit_torch(flow, network, steps)


def fit_zuko(network: Network, steps: int) -> Subject:
    """Fit zuko's NAF: its default monotone network, two conditioner layers of 64."""
    import torch
    from zuko.flows import NAF

    torch.manual_seed(0)
    flow = NAF(network.features, transforms=network.transforms, hidden_features=(64, 64))
    return fit_torch(flow, network, steps)


def fit_flowjax(network: Network, steps: int) -> Subject:
    """Fit FlowJAX's B-NAF by its own loop; its draws come from its default inverter."""
    import equinox
    import jax
    from flowjax.train import fit_to_data

    key, wait = jax.random.key(1), jax.block_until_ready
    settings = {"learning_rate": FIT_RATE, "batch_size": FIT_BATCH, "show_progress": False}
    law, rows = make_flowjax_law(network), draw_rows((steps + 1) * FIT_BATCH, network.features)
    law, _ = fit_to_data(key, law, rows, max_epochs=1, val_prop=1 / (steps + 1), **settings)
    table = jax.numpy.asarray(draw_rows(COUNTS[-1], network.features))
    score = equinox.filter_jit(lambda law, x: law.log_prob(x))
    sample = equinox.filter_jit(lambda law, rows: law.sample(key, (rows,)))

    def round_trip(x: Any) -> Any:
        return abs(jax.vmap(law.bijection.inverse)(x) - law.base_dist.sample(key, x.shape[:1]))

    return lambda n: wait(score(law, table[:n])), lambda n: wait(sample(law, n)), round_trip


LIBRARIES = {"mlp": fit_mlp, "bnaf": fit_bnaf, "zuko": fit_zuko, "flowjax": fit_flowjax}


def time_calls(call: Callable[[int], Any], rows: int) -> Iterator[tuple[Any, Record]]:
    """Yield the result and what is known after each call, the first of which warms up."""
    times: list[float] = []
    while len(times) < 2 or (len(times) < 6 and sum(times) < 2.0):
        start = perf_counter()
        result = call(rows)
        times.append(perf_counter() - start)
        speed = rows / median(times[1:] or times)
        yield result, {"rows": rows, "rows_per_second": speed, "repeats": len(times) - 1}


def run_case(library: str, network: str, steps: int, seconds: int) -> None:
    """Print a line of JSON after each call, so that a case that is killed keeps what it did."""
    use_two_threads()
    signal.alarm(5 * seconds)  # ends the process, even inside compiled code; compiling is slow
    score, sample, round_trip = LIBRARIES[library](NETWORKS[network], steps)
    operations = [("log_prob", score, COUNTS[-1:])]
    if sample is not None:
        operations.append(("sample", sample, COUNTS))
    for operation, call, counts in operations:
        signal.alarm(seconds)
        line: Record = {"operation": operation}
        failure = None
        try:
            for result, known in chain.from_iterable(time_calls(call, rows) for rows in counts):
                if operation == "sample" and known["repeats"] == 0:
                    errors = round_trip(result)
                    known["round_trip_error"] = min(1e9, float(errors.max()))  # NaN as well
                    known["wrong_share"] = 1 - float((errors < ROUND_TRIP_ATOL).all(-1).mean())
                line |= known
                if operation == "sample" and known["rows"] == 1:
                    line["latency_milliseconds"] = 1e3 / known["rows_per_second"]
                print(json.dumps(line), flush=True)
        except Exception as error:
            failure = explain(error)
        print(json.dumps(line | {"failure": failure}), flush=True)


def measure(library: str, network: str, steps: int, seconds: float) -> Iterator[Record]:
    """Run a case in a process of its own and yield a record for each operation."""
    output, failure = "", "not installed"
    if installed_version(library):
        case = ["--case", library, network, str(steps), str(math.ceil(seconds))]
        done = subprocess.run([sys.executable, __file__, *case], capture_output=True, text=True)
        output, failure = done.stdout, f"exit {done.returncode} {done.stderr.strip()[-200:]}"
        if done.returncode == -signal.SIGALRM:
            failure = f"over the limit of {seconds:g} s"
    lines = [json.loads(line) for line in output.splitlines() if re.fullmatch(r"{.*}", line)]
    for operation in ("log_prob",) if library == "mlp" else ("log_prob", "sample"):
        record: Record = {"library": library, "version": installed_version(library)}
        record |= {"network": network, "operation": operation, "rows": 0, "failure": failure}
        for line in lines:
            record |= line if line["operation"] == operation else {}
        yield record


def main() -> None:
    """Measure every case, printing its lines and rewriting the report after each."""
    if sys.argv[1:2] == ["--case"]:
        return run_case(sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
    parser = make_parser(LIBRARIES, ["POWER", "HEPMASS", "MINIBOONE", "BSDS300"], 120.0)
    parser.add_argument("--steps", type=int, default=100, help="of the fit, at least 1")
    options = parser.parse_args()
    records: list[Record] = []
    print("network   library operation   rows      rows/s  round trip  to log_prob  failure")
    for network, library in product(options.networks, options.libraries):
        scored = math.nan
        for record in measure(library, network, options.steps, options.seconds):
            records.append(record)
            known = ["rows_per_second", "round_trip_error", "time_over_log_prob"]
            values = dict.fromkeys(known, math.nan) | record
            if record["operation"] == "log_prob":
                scored = values["rows_per_second"]
            quotient = values["time_over_log_prob"] = scored / values["rows_per_second"]
            record["time_over_log_prob"] = quotient
            line = "{network:10}{library:8}{operation:9}{rows:7}{rows_per_second:12,.1f}"
            line += "{round_trip_error:12.1e}{time_over_log_prob:13.2f}  {failure}"
            print(line.format_map(values), flush=True)
        write_report(options.out, records)


if __name__ == "__main__":
    main()
