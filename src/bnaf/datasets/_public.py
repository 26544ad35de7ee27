"""Public files of known data sets: where they must be, and what is said where they are not."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bnaf.errors import BnafError, TableError
from bnaf.tables.sources import check_file


@contextmanager
def public_files(name: str, folder: str | Path, files: Sequence[str]) -> Iterator[list[Path]]:
    """Give the paths of the files of a data set, and tell what is wrong with them.

    Args:
        name: What the data set is called.
        folder: Folder of data.
        files: Where its files are within it.

    Raises:
        TableError: If a file is missing, or is not what it should be.
    """
    paths = [Path(folder) / file for file in files]
    for path in paths:
        if not path.exists():
            raise TableError(
                f"{name} expects a file at {path}, got nothing; fetch it from the source that "
                "bnaf data lists."
            )
        if not path.is_dir():
            check_file(path)
    try:
        yield paths
    except BnafError:
        raise
    except (ValueError, KeyError, IndexError, OSError, EOFError) as error:
        raise TableError(
            f"{paths[0]} is not the public file of {name}: {str(error)[:200]}. Fetch it again."
        ) from None
