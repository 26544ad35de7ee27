"""Time a step of the study's VAE: what its parts cost, and what each choice gains.

python benchmarks/vae.py --out results/vae_speed.json

Images have the shape of Caltech's, batches 100 of them. A step is loss, gradient and Adamax.
Seconds are those of the processor, on one thread; all cases take turns, so that a noisy moment of
the machine meets every one. The flow's part is its draw with gradient, context network included.
"""

import argparse
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

import shared
from shared import Record

BATCH = 100
POSTERIORS = ("gaussian", "bnaf", "bnaf-onto", "planar", "sylvester", "iaf")
CHOICES = ("plain torch", "channels first", "without oneDNN", "compiled", "bfloat16")


def make_step(vae: Any) -> Any:
    """Return a function that takes a step of a VAE."""
    import torch

    from bnaf.training import Batch
    from bnaf.vae import NegativeELBO

    objective = NegativeELBO(vae)
    optimiser = torch.optim.Adamax(vae.parameters(), lr=5e-4, eps=1e-7)
    rows = (torch.rand(BATCH, 784) < 0.5).float()

    def step() -> None:
        optimiser.zero_grad()
        objective(Batch(rows)).backward()
        optimiser.step()

    return step


def make_draw(flow: Any) -> Any:
    """Return a function that draws from a flow, and takes the gradient."""
    import torch

    context = torch.randn(BATCH, flow.context_features, requires_grad=True)

    def draw() -> None:
        z, log_prob = flow(context).rsample_and_log_prob()
        (z.sum() + log_prob.sum()).backward()

    return draw


def round_to_bfloat16(forward: Any) -> Any:
    """Return the forward of a network with its convolutions in bfloat16, by torch."""
    import torch

    def rounded(x: Any) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            return forward(x).float()

    return rounded


def make_case(name: str) -> list[Any]:
    """Return a function that takes a step, and one of the flow's part where there is a flow."""
    import torch

    from bnaf.block import kernels
    from bnaf.studies.vae.plans import VaeTrial, read_image_sets, read_variants

    posterior = name if name in POSTERIORS else "gaussian"
    vae = VaeTrial(read_image_sets()["caltech"], read_variants()[posterior]).build()
    networks = vae.encoder.convolutions, vae.decoder.convolutions
    if name == "channels first":
        for weight in vae.parameters():
            weight.data = weight.data.contiguous()
        for network in networks:
            network.register_forward_pre_hook(lambda _, x: (x[0].contiguous(),))
    if name == "compiled":
        for network in networks:
            network.compile()
    if name == "bfloat16":
        for network in networks:
            network.forward = round_to_bfloat16(network.forward)
    step = make_step(vae)
    if name in ("plain torch", "channels first", "without oneDNN"):

        def plain_step() -> None:
            faster = name != "without oneDNN"
            with kernels.disabled(), torch.backends.mkldnn.flags(enabled=faster):
                step()

        return [plain_step]
    return [step] if vae.posterior.flow is None else [step, make_draw(vae.posterior.flow)]


def seconds_of(function: Any) -> float:
    """Return the processor's seconds of a call."""
    start = process_time()
    function()
    return process_time() - start


def take_turns(cases: dict[str, list[Any]], turns: int) -> list[Record]:
    """Return the median of every case; all of them take turns, after one that does not count."""
    rounds = [
        {name: [seconds_of(function) for function in parts] for name, parts in cases.items()}
        for _ in range(1 + turns)
    ]
    records: list[Record] = []
    for name in cases:
        step, *flow = (
            median(times) for times in zip(*(one[name] for one in rounds[1:]), strict=True)
        )
        records.append({"case": name, "seconds": step, "turns": turns})
        if flow:
            records[-1]["flow_share"] = flow[0] / step
    return records


def as_markdown(records: list[Record]) -> str:
    """Return the records as a table, each beside a step with the Gaussian posterior."""
    plain = next((one["seconds"] for one in records if one["case"] == "gaussian"), None)
    lines = [
        "| step with | seconds | over the Gaussian's | the flow's part |",
        "|---|---|---|---|",
    ]
    for one in records:
        ratio = "" if plain is None else f"{one['seconds'] / plain:.2f}"
        share = f"{100 * one['flow_share']:.1f} %" if one.get("flow_share") else ""
        lines.append(f"| {one['case']} | {one['seconds']:.3f} | {ratio} | {share} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Time posteriors and choices, print their lines and write the report."""
    import torch

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", nargs="+", default=[*POSTERIORS, *CHOICES])
    parser.add_argument("--turns", type=int, default=7, help="steps of each case (default 7)")
    told = "JSON, and a table beside it"
    parser.add_argument("--out", type=Path, required=True, help=told)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    records = take_turns({name: make_case(name) for name in options.cases}, options.turns)
    table = as_markdown(records)
    print(table, end="")
    shared.write_report(options.out, records)
    options.out.with_suffix(".md").write_text(table)


if __name__ == "__main__":
    main()
