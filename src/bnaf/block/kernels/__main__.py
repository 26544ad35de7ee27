"""Compile the kernels: ``python -m bnaf.block.kernels``."""

import sys

from bnaf.block.kernels import BuildError, build

if __name__ == "__main__":
    try:
        print(f"compiled kernels: {build()}")
    except BuildError as error:
        sys.exit(f"{error}")
