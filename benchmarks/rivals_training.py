"""Time a training step of other libraries' B-NAFs beside ours and a dense MLP.

All use tanh. Each library evaluates in its closed-form direction and stacks flows as its own users
do.

    python benchmarks/rivals_training.py --out results/rivals_training.json
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from sampling import make_flowjax_law
from shared import Network, draw_rows
from steps import CLIP_NORM, LEARNING_RATE, Build, Step, build_bnaf, build_mlp, run, torch_step


def negative_log_likelihood(z: Any, log_det: Any) -> Any:
    """Return the mean of -log p(x) for a standard normal base, of torch or JAX arrays."""
    return (0.5 * (z * z).sum(-1) - log_det).mean() + 0.5 * z.shape[-1] * math.log(2 * math.pi)


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

    law = make_flowjax_law(network, Tanh())
    parameters, rest = equinox.partition(law, equinox.is_inexact_array)

    def loss(parameters: Any, x: Any) -> Any:
        return -equinox.combine(parameters, rest).log_prob(x).mean()

    return jax_step(loss, parameters, draw_rows(batch, network.features))


CONTESTANTS: dict[str, Build] = {
    "mlp": build_mlp,
    "bnaf": partial(build_bnaf, mode="native"),
    "bnaf plain": build_bnaf,
    "numpyro": build_numpyro,
    "pyro": build_pyro,
    "flowjax": build_flowjax,
}

if __name__ == "__main__":
    run(CONTESTANTS)
