"""The application: its commands, and how they end."""

from typing import Annotated, Any

import typer

from bnaf.cli import options
from bnaf.cli.groups import LazyGroup
from bnaf.cli.machine import share_cores
from bnaf.cli.messages import plain_errors, plain_warnings

EXAMPLES = """Examples:

bnaf fit sales.csv --out sales.safetensors

bnaf score sales.safetensors new.csv --least 10

bnaf sample sales.safetensors -n 1000 --out drawn.csv

bnaf report sales.safetensors sales.csv

Exit codes: 0 done, 1 refused or failed, 2 wrong usage, 70 a fault of bnaf, 130 interrupted.
"""


class Commands(LazyGroup):
    """Commands that end with a line and an exit code, not with a traceback."""

    package = "bnaf.cli"
    names = (
        *("fit", "score", "sample", "report", "plot", "info", "compare", "export", "import"),
        *("data", "reproduce"),
    )

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Take ``--debug`` wherever it stands, and ``--dequantise`` without names."""
        for flag in self.get_params(ctx):  # help, completion: Typer loads pydantic to check None
            if getattr(flag, "is_flag", False) and flag.default is None:
                flag.default = False
        args = options.name_ties(args)
        if "--debug" in args:
            args = ["--debug", *(word for word in args if word != "--debug")]
        with plain_errors(debug="--debug" in args):
            return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        with plain_warnings(), plain_errors(debug=bool(ctx.params.get("debug"))):
            return super().invoke(ctx)


app = typer.Typer(
    cls=Commands,
    epilog=EXAMPLES,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> bool:
    if wanted:
        from bnaf import __version__

        print(f"bnaf {__version__}")
        raise typer.Exit
    return wanted


@app.callback()
def describe_bnaf(
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks of errors.")] = False,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Densities of tables by block neural autoregressive flows: fit, score, sample, report."""


def main() -> None:
    """Run the command line."""
    share_cores()
    app(prog_name="bnaf")
