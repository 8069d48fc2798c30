"""Runs a module as a process that ends when the one that started it is gone, however that went.

    python -m aioelasticjob.demo.tether MODULE ARGUMENTS…

The starter holds the other end of our standard input and never writes: when it closes, nobody is left to stop us.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import threading


def _hold() -> None:
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def main() -> None:
    """Run the module named first, with the arguments after it."""
    threading.Thread(target=_hold, name="tether", daemon=True).start()
    module, sys.argv = sys.argv[1], sys.argv[1:]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
