"""The command line as a module: ``python -m bnaf.cli``."""

from bnaf.cli.app import main

if __name__ == "__main__":
    main()
