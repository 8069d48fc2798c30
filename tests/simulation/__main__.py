"""The command line of ``tests.simulation.simulation``."""

import sys

from tests.simulation.simulation import main

if __name__ == "__main__":
    sys.exit(main())
