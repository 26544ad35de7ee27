"""``bnaf import``: weights that the authors' scripts have trained."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from bnaf.cli import options
from bnaf.cli.places import check_new

EXAMPLES = """Examples:

bnaf import checkpoint/power/checkpoint.pt power.safetensors

bnaf import checkpoint.pt last.safetensors --raw

bnaf import energy.pt energy.safetensors --residual none --direction sampling
"""


def import_(
    checkpoint: Annotated[
        Path, Argument(metavar="CHECKPOINT", help="What the authors' scripts saved (.pt).")
    ],
    out: Annotated[Path, Argument(metavar="MODEL", help="Model file to write (.safetensors).")],
    residual: Annotated[
        str, Option(help="How it was trained: gated, normal or none; a file does not tell all.")
    ] = "gated",
    direction: Annotated[
        str, Option(help="Which side is closed-form: density, or sampling for energies.")
    ] = "density",
    raw: Annotated[
        bool, Option("--raw", help="Take the weights of the last step, not their averages.")
    ] = False,
    force: options.Force = False,
) -> None:
    """Make a model file of a checkpoint of the authors' scripts, without running what is in it."""
    check_new(out, force=force)
    from bnaf.block.published import read_checkpoint
    from bnaf.cli.screen import show_lines
    from bnaf.flows.bnaf import BNAF
    from bnaf.model.files import save

    weights = read_checkpoint(checkpoint, averaged=not raw)
    kind = None if residual == "none" else residual
    flow = BNAF.from_published(weights, residual=kind, direction=direction)
    save(flow, out, overwrite=force)
    show_lines(
        f"flow: {flow.features} features, {flow.parameter_count:,} weights", f"model: {out}"
    )
