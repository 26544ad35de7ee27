"""Run the commands of pages anew, and write what they print into them.

Blocks of a page that begin with ``console`` hold commands after ``$``, and below each what it
printed. This program runs those of a page one after the other in a folder of its own, which holds
the tables of ``--data`` and nothing else. Of a command that fails it writes what went to standard
error, of others what went to standard output.

Run it from the root of the repository::

    python docs/session.py --data DIR docs/tables.md docs/real_tables.md
"""

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from bnaf._files import atomic_file

BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def read_arguments() -> argparse.Namespace:
    """Return what the command line asks for."""
    parser = argparse.ArgumentParser(description="Run the commands of pages anew.")
    parser.add_argument("pages", nargs="+", type=Path, help="pages in Markdown")
    parser.add_argument("--data", required=True, type=Path, help="folder of wa_churn.csv.gz, ...")
    return parser.parse_args()


def run(command: str, folder: Path) -> str:
    """Run a command in a folder, and return it with what it printed."""
    print(f"$ {command}", flush=True)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
    )
    said = done.stderr if done.returncode else done.stdout
    return "".join(f"{line.rstrip()}\n" for line in [f"$ {command}", *said.splitlines()])


def replay(page: str, folder: Path) -> str:
    """Return a page with the commands in its blocks run anew."""

    def block(match: re.Match[str]) -> str:
        commands = re.findall(r"^\$ (.*)$", match[1], re.MULTILINE)
        return f"```console\n{''.join(run(command, folder) for command in commands)}```"

    return BLOCK.sub(block, page)


def main() -> None:
    """Run all commands, and write the pages."""
    options = read_arguments()
    for page in options.pages:
        with TemporaryDirectory() as folder:
            for table in options.data.resolve().glob("*.csv.gz"):
                (Path(folder) / table.name).symlink_to(table)
            content = replay(page.read_text(encoding="utf-8"), Path(folder))
        with atomic_file(page) as file:
            file.write(content.encode())


if __name__ == "__main__":
    main()
