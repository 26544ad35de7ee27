"""``bnaf export``: a model as a program that runs without this library."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from bnaf.cli import options
from bnaf.cli.places import check_new

EXAMPLES = """Examples:

bnaf export sales.safetensors score.pt2

bnaf export sales.safetensors draw.pt2 --function sample

bnaf export sales.safetensors score.onnx
"""


def export(
    model: options.ModelFile,
    out: Annotated[Path, Argument(metavar="PROGRAM", help="Program to write: .pt2 or .onnx.")],
    function: Annotated[
        str, Option(help="What it computes: log_prob of rows, or sample, rows of normal noise.")
    ] = "log_prob",
    force: options.Force = False,
) -> None:
    """Write a model as a program for torch.export or ONNX, which needs no bnaf to run."""
    check_new(out, force=force)
    from bnaf.cli.files import load_model
    from bnaf.cli.screen import show_lines
    from bnaf.integrations.export import export_file

    kept = load_model(model)
    export_file(kept, out, function, overwrite=force)
    names = ", ".join(kept.columns)
    inputs = (
        f"rows of {names}" if function == "log_prob" else f"noise of shape (n, {kept.features})"
    )
    given = f", then rows of {', '.join(kept.given_columns)}" if kept.given_columns else ""
    precision = "float32" if out.suffix == ".onnx" else "float64"
    show_lines(f"takes: {inputs}{given}, in {precision}", f"program: {out}")
