"""Read the pages of the documentation: text, and Python blocks that are one program.

The blocks of a page that begin with ``python`` run one after the other in one namespace, in an
empty folder. A block that cannot run there, because it needs another package or a file of the
reader, has a comment right above it that says why::

    <!-- not run: needs sbi -->
"""

import re
from pathlib import Path
from typing import Any, NamedTuple

FENCE = re.compile(
    r"(?:^<!-- not run: (?P<reason>.+?) -->\n)?^```python\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


class Cell(NamedTuple):
    """A piece of a page: text, or a block of code.

    Args:
        source: What it holds, without the fence of a block.
        line: Line of the page that it begins on, counted from 1.
        code: Whether it is code.
        reason: Why the code is not run; ``None`` for code that is.
    """

    source: str
    line: int
    code: bool = False
    reason: str | None = None


def read_cells(page: str) -> list[Cell]:
    """Return the pieces of a page in order, without empty ones."""
    cells, end = [], 0
    for block in FENCE.finditer(page):
        cells += [Cell(page[end : block.start()], _line(page, end))]
        line = _line(page, block.start("code"))
        cells += [Cell(block["code"], line, code=True, reason=block["reason"])]
        end = block.end()
    cells += [Cell(page[end:], _line(page, end))]
    return [cell for cell in cells if cell.source.strip()]


def run_page(path: Path) -> None:
    """Run the code of a page as one program; its errors point at lines of the page."""
    namespace: dict[str, Any] = {"__name__": path.stem}
    for cell in read_cells(path.read_text(encoding="utf-8")):
        if cell.code and cell.reason is None:
            source = "\n" * (cell.line - 1) + cell.source
            exec(compile(source, str(path), "exec"), namespace)


def _line(page: str, position: int) -> int:
    return page.count("\n", 0, position) + 1
