"""``bnaf reproduce``: the studies of the paper, a command each."""

import typer

from bnaf.cli.groups import LazyGroup

EXAMPLES = """Examples:

bnaf reproduce toy

bnaf reproduce energy u1 --flow bnaf,planar --seeds 1

bnaf reproduce density --table

bnaf reproduce vae --dataset frey --flow bnaf --epochs 2
"""


class Studies(LazyGroup):
    """The studies, each of which is a function of the module of its name."""

    package = "bnaf.cli.reproduce"
    names = ("toy", "energy", "density", "vae")


reproduce = typer.Typer(cls=Studies, epilog=EXAMPLES, no_args_is_help=True, add_completion=False)


@reproduce.callback()
def describe_studies() -> None:
    """Run a study of the paper: train, measure, write results, table and figure.

    What is finished is not run again, and what was cut short goes on where it stood.
    """
