"""``bnaf data``: the data sets that are known by name."""

from bnaf.cli import options
from bnaf.cli.screen import show_json, show_table
from bnaf.data.known import known_data

EXAMPLES = """Examples:

bnaf data

bnaf data --json
"""


def data(as_json: options.Json = False) -> None:
    """List the known data sets, and where each comes from."""
    known = known_data()
    if as_json:
        show_json([entry._asdict() for entry in known])
        return
    rows = [
        [
            entry.name,
            entry.kind,
            "" if entry.rows is None else f"{entry.rows:,}",
            entry.columns,
            entry.source,
        ]
        for entry in known
    ]
    show_table(["name", "kind", "rows", "columns", "source"], rows)
