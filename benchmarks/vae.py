"""Time a step of the study's VAE: what its parts cost, and what each choice gains.

python benchmarks/vae.py --out results/vae_speed.json

Images have the shape of Caltech's, batches 100 of them. A step is loss, gradient and Adamax.
Seconds are those of the processor, on one thread, the median of a few steps: other work on the
machine hardly touches them. The flow's part is its draw with gradient, context network included.
"""

import argparse
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

import shared
from shared import Record

BATCH, STEPS = 100, 3
POSTERIORS = ("gaussian", "bnaf", "planar", "sylvester", "iaf")


def seconds_of(function: Any) -> float:
    """Return the median of a few calls, after one that does not count."""
    times = []
    for _ in range(1 + STEPS):
        start = process_time()
        function()
        times.append(process_time() - start)
    return median(times[1:])


def make_step(vae: Any, *, compiled: bool = False) -> Any:
    """Return a function that takes a step of a VAE."""
    import torch

    from bnaf.training import Batch
    from bnaf.vae import NegativeELBO

    objective: Any = NegativeELBO(vae)
    objective = torch.compile(objective) if compiled else objective
    optimiser = torch.optim.Adamax(vae.parameters(), lr=5e-4, eps=1e-7)
    rows = (torch.rand(BATCH, 784) < 0.5).float()

    def step() -> None:
        optimiser.zero_grad()
        objective(Batch(rows)).backward()
        optimiser.step()

    return step


def time_flow(flow: Any) -> float:
    """Return the seconds of a draw of the flow with its gradient."""
    import torch

    context = torch.randn(BATCH, flow.context_features, requires_grad=True)

    def draw() -> None:
        z, log_prob = flow(context).rsample_and_log_prob()
        (z.sum() + log_prob.sum()).backward()

    return seconds_of(draw)


def time_posterior(name: str) -> Record:
    """Return the seconds of a step with some posterior, and the flow's part of them."""
    from bnaf.studies.vae.plans import VaeTrial, read_image_sets, read_variants

    vae = VaeTrial(read_image_sets()["caltech"], read_variants()[name]).build()
    whole = seconds_of(make_step(vae))
    flow = vae.posterior.flow
    part = 0.0 if flow is None else time_flow(flow)
    return {"case": name, "seconds": whole, "flow_seconds": part, "flow_share": part / whole}


def time_choice(name: str) -> Record:
    """Return the seconds of a step with the Gaussian posterior and one choice made otherwise."""
    import torch

    from bnaf.studies.vae.plans import VaeTrial, read_image_sets, read_variants

    vae = VaeTrial(read_image_sets()["caltech"], read_variants()["gaussian"]).build()
    if name == "channels first":
        for weight in vae.parameters():
            weight.data = weight.data.contiguous()
        for part in (vae.encoder, vae.decoder):
            part.convolutions.register_forward_pre_hook(lambda _, x: (x[0].contiguous(),))
    if name == "without oneDNN":
        with torch.backends.mkldnn.flags(enabled=False):
            return {"case": name, "seconds": seconds_of(make_step(vae))}
    step = make_step(vae, compiled=name == "compiled")
    return {"case": name, "seconds": seconds_of(step)}


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
    """Time posteriors and choices, printing a line and rewriting the report after each."""
    import torch

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    choices = ("channels first", "without oneDNN", "compiled")
    parser.add_argument("--cases", nargs="+", default=[*POSTERIORS, *choices])
    parser.add_argument(
        "--out",
        type=Path,
        required=True,
        help="JSON, and a table beside it, rewritten after each case",
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    records: list[Record] = []
    for name in options.cases:
        records.append(time_posterior(name) if name in POSTERIORS else time_choice(name))
        share = records[-1].get("flow_share")
        told = "" if share is None else f", the flow {100 * share:.1f} %"
        print(f"{name:15} {records[-1]['seconds']:.3f} s{told}", flush=True)
        shared.write_report(options.out, records)
        options.out.with_suffix(".md").write_text(as_markdown(records))


if __name__ == "__main__":
    main()
