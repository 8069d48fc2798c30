"""The command line of ``tests.simulation.bare.simulation``."""

import sys

from tests.simulation.bare.simulation import main

if __name__ == "__main__":
    sys.exit(main())
