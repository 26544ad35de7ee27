"""Time a training step of other libraries' B-NAFs beside a dense MLP of the same layer widths.

A step is the mean negative log-likelihood of a batch, its gradient, clipping and Adam, in float32
with tanh on two threads. Each library evaluates in its closed-form direction and stacks flows as
its own users do. They take turns, so that a noisy moment of the machine meets all of them.

    python benchmarks/rivals_training.py --out results/rivals_training.json
"""

import gc
import math
from collections.abc import Callable, Iterable
from functools import partial
from itertools import pairwise, product
from statistics import median
from time import perf_counter
from typing import Any

import rivals_sampling as shared
from rivals_sampling import NETWORKS, Network, Record, draw_rows

CLIP_NORM = 0.1
LEARNING_RATE = 1e-6  # too small to move the weights: every step times the same network
ROUNDS, LEAST_REPEATS = 5, 3

Step = Callable[[], float]  # takes one training step and returns its loss


def negative_log_likelihood(z: Any, log_det: Any) -> Any:
    """Return the mean of -log p(x) for a standard normal base, of torch or JAX arrays."""
    return (0.5 * (z * z).sum(-1) - log_det).mean() + 0.5 * z.shape[-1] * math.log(2 * math.pi)


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


def jax_step(loss: Callable[[Any, Any], Any], parameters: Any, rows: Any) -> Step:
    """Return the compiled training step for a loss of parameters and rows."""
    import jax
    import optax

    adam = optax.chain(optax.clip_by_global_norm(CLIP_NORM), optax.adam(LEARNING_RATE))
    state, x = (parameters, adam.init(parameters)), jax.numpy.asarray(rows)

    @partial(jax.jit, donate_argnums=0)
    def update(state: tuple[Any, Any], x: Any) -> tuple[tuple[Any, Any], Any]:
        value, gradient = jax.value_and_grad(loss)(state[0], x)
        updates, moments = adam.update(gradient, state[1])
        return (optax.apply_updates(state[0], updates), moments), value

    def step() -> float:
        nonlocal state
        state, value = jax.block_until_ready(update(state, x))
        return float(value)

    return step


def build_mlp(network: Network, batch: int) -> Step:
    """Build the floor: dense tanh MLPs of the same layer widths, one after another."""
    import torch
    from torch import nn

    units = [1, *[network.width] * network.hidden_layers, 1]
    layers: list[nn.Module] = []
    for _ in range(network.transforms):
        for pair in pairwise(network.features * per_feature for per_feature in units):
            layers += [nn.Linear(*pair), nn.Tanh()]
        layers.pop()
    mlp, x = nn.Sequential(*layers), torch.from_numpy(draw_rows(batch, network.features))
    return torch_step(lambda: 0.5 * mlp(x).square().sum(-1).mean(), mlp.parameters())


def build_numpyro(network: Network, batch: int) -> Step:
    """Build NumPyro's, stacked as in its AutoBNAFNormal: reversed, gated but for the last."""
    import jax
    from numpyro.nn.block_neural_arn import BlockNeuralAutoregressiveNN, Tanh

    features, widths = network.features, [network.width] * network.hidden_layers
    flows = [
        BlockNeuralAutoregressiveNN(features, widths, residual, Tanh())
        for residual in ["gated"] * (network.transforms - 1) + [None]
    ]
    parameters = [init(jax.random.key(i), (features,))[1] for i, (init, _) in enumerate(flows)]

    def loss(parameters: Any, x: Any) -> Any:
        log_det = 0.0
        for index, ((_, flow), values) in enumerate(zip(flows, parameters, strict=True)):
            x, log_slope = flow(values, x[:, ::-1] if index else x)
            log_det = log_det + log_slope.sum(-1)
        return negative_log_likelihood(x, log_det)

    return jax_step(loss, parameters, draw_rows(batch, features))


def build_pyro(network: Network, batch: int) -> Step:
    """Build Pyro's, reversed between flows and gated but for the last."""
    import torch
    from pyro.distributions.transforms import BlockAutoregressive, Permute

    widths = [network.width] * network.hidden_layers
    flows = torch.nn.ModuleList(
        BlockAutoregressive(network.features, widths, "tanh", residual)
        for residual in ["gated"] * (network.transforms - 1) + [None]
    )
    reverse = Permute(torch.arange(network.features).flip(0))
    rows = torch.from_numpy(draw_rows(batch, network.features))

    def loss() -> Any:
        x, log_det = rows.clone(), 0.0  # a new tensor: Pyro caches by the identity of its input
        for index, flow in enumerate(flows):
            x = reverse(x) if index else x
            y = flow(x)
            log_det, x = log_det + flow.log_abs_det_jacobian(x, y), y
        return negative_log_likelihood(x, log_det)

    return torch_step(loss, flows.parameters())


def build_flowjax(network: Network, batch: int) -> Step:
    """Build FlowJAX's, which permutes at random between flows and has no residuals."""
    import equinox
    from flowjax.bijections import Tanh

    law = shared.make_flowjax_law(network, Tanh())
    parameters, rest = equinox.partition(law, equinox.is_inexact_array)

    def loss(parameters: Any, x: Any) -> Any:
        return -equinox.combine(parameters, rest).log_prob(x).mean()

    return jax_step(loss, parameters, draw_rows(batch, network.features))


# Ours goes here too: a name and a function of network and batch that imports inside itself.
CONTESTANTS: dict[str, Callable[[Network, int], Step]] = {
    "mlp": build_mlp,
    "numpyro": build_numpyro,
    "pyro": build_pyro,
    "flowjax": build_flowjax,
}


def warm_up(library: str, network: Network, batch: int) -> tuple[Step | None, str | None]:
    """Return a contestant that has taken two steps, or the reason why there is none."""
    from torch.distributions import Distribution

    checked = Distribution._validate_args
    try:
        step = CONTESTANTS[library](network, batch)
        losses = [step(), step()]
    except ImportError as error:
        return None, f"not installed ({error})"
    except Exception as error:
        return None, shared.explain(error)
    finally:
        Distribution.set_default_validate_args(checked)  # importing a library may switch it
    return (step, None) if all(map(math.isfinite, losses)) else (None, f"losses {losses}")


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


def run_case(libraries: list[str], network: str, batch: int, seconds: float) -> list[Record]:
    """Return a record for each library, with the reason of those that failed."""
    built = {library: warm_up(library, NETWORKS[network], batch) for library in libraries}
    steps = {library: step for library, (step, _) in built.items() if step}
    times = time_in_turns(steps, seconds)
    floor = median(times["mlp"]) if "mlp" in times else None
    records: list[Record] = []
    for library, (_, failure) in built.items():
        record: Record = {"library": library, "version": shared.installed_version(library)}
        record |= {"network": network, "batch": batch, "failure": failure}
        if library in times:
            middle = median(times[library])
            record |= {
                "milliseconds": 1e3 * middle,
                "milliseconds_min": 1e3 * min(times[library]),
                "ratio_to_mlp": middle / floor if floor else None,
                "repeats": len(times[library]),
            }
        records.append(record)
    return records


def main() -> None:
    """Time every case, printing its lines and rewriting the report after each."""
    parser = shared.make_parser(CONTESTANTS, NETWORKS, 3.0)
    parser.add_argument("--batches", nargs="+", type=int, default=[200, 2000])
    options = parser.parse_args()
    shared.use_two_threads()
    libraries = [*dict.fromkeys(["mlp", *options.libraries])]  # the floor is always timed
    records: list[Record] = []
    print("network    batch library    milliseconds  smallest  ratio to MLP")
    for batch, network in product(options.batches, options.networks):
        case = run_case(libraries, network, batch, options.seconds)
        records += case
        for record in case:
            print("{network:10} {batch:5} {library:10}".format_map(record), end="")
            numbers = "{milliseconds:13.2f} {milliseconds_min:9.2f} {ratio_to_mlp:13.2f}"
            values = record | {"ratio_to_mlp": record.get("ratio_to_mlp") or math.nan}
            print(record["failure"] or numbers.format_map(values), flush=True)
        shared.write_report(options.out, records)


if __name__ == "__main__":
    main()
