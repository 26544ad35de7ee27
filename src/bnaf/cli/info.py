"""``bnaf info``: what is in a model file."""

from typing import Any

from bnaf._text import number
from bnaf.cli import options

EXAMPLES = """Examples:

bnaf info sales.safetensors

bnaf info sales.safetensors --json
"""
COLUMN_KEYS = ("name", "type", "mean", "deviation", "read_as")


def info(model: options.ModelFile, as_json: options.Json = False) -> None:
    """Show what is in a model file: the flow, its columns and how it was trained."""
    from bnaf.cli.files import load_any
    from bnaf.cli.screen import show_json, show_lines, show_table
    from bnaf.model.description import describe

    facts = describe(load_any(model))
    if as_json:
        show_json(facts)
        return
    settings = ", ".join(f"{name}={value}" for name, value in facts["settings"].items())
    show_lines(
        f"{facts['kind']}: {facts['flow']} with {facts['weights']:,} weights in {facts['dtype']}",
        f"settings: {settings}",
        *_training(facts.get("training", {})),
    )
    if "columns" in facts:
        given = [column | {"type": "given"} for column in facts["given_columns"]]
        keys = [key for key in COLUMN_KEYS if any(key in column for column in facts["columns"])]
        columns = [*facts["columns"], *given]
        columns += [
            dict.fromkeys(keys, "")
            | {"name": column["name"], "read_as": f"left out: {column['reason']}"}
            for column in facts["left_out"]
        ]
        show_table(keys, [[column[key] for key in keys] for column in columns])


def _training(training: dict[str, Any]) -> list[str]:
    """Return lines on how a model was trained, none where it was not."""
    if not {"steps", "seconds", "reason"} <= training.keys():
        return []
    lines = [
        f"trained: {training['steps']} steps in {training['seconds']:.1f} s, ended by "
        f"{training['reason']}"
    ]
    for name, what in (("log_likelihood", "training"), ("valid_log_likelihood", "validation")):
        if name in training:
            lines.append(f"log-likelihood ({what}): {number(training[name])} nats per row")
    return lines
