"""Runs a module as a process that ends when the process that started it has ended, for whatever reason.

    python -m aioelasticjob.demo.child_process MODULE ARGUMENTS…

The starter holds the other end of our standard input and never writes.  When that closes, the starter has ended.
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
    """Run the module that the first argument names, with the other arguments."""
    threading.Thread(target=_hold, name="tether", daemon=True).start()
    module = sys.argv[1]
    sys.argv = sys.argv[1:]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
