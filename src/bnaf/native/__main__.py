"""Compile the kernels: ``python -m bnaf.native``."""

import sys

from bnaf.native import BuildError, build

if __name__ == "__main__":
    try:
        print(f"compiled kernels: {build()}")
    except BuildError as error:
        sys.exit(f"{error}")
