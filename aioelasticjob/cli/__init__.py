"""The command line: `aioelasticjob`."""

from __future__ import annotations

import os
import sys
from errno import EBADF
from typing import TextIO

from aioelasticjob.host.signals import end_process_1_on_signals

INTERRUPTED = 130
"""The exit code after Ctrl-C, as shells have it."""
FAILED = 1
"""The exit code if something could not be done."""


def main() -> None:
    """Run the command line and exit."""
    end_process_1_on_signals()  # first: a command may import for seconds before it can stop gracefully
    for stream in (sys.stdout, sys.stderr):
        if (reconfigure := getattr(stream, "reconfigure", None)) is not None:
            reconfigure(errors="backslashreplace")  # what the terminal's encoding lacks is shown as \\u2192
    try:
        from aioelasticjob.cli.application import application  # here, so that Ctrl-C meanwhile leaves no traceback

        try:
            application()
        finally:
            if sys.stdout is not None:  # None if it was closed before this process was started
                sys.stdout.flush()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except OSError as error:
        is_closed = sys.stdout is None and error.errno == EBADF
        if not is_closed and _output_error() != error.errno:  # then the error is another one, and a defect
            raise
        if not isinstance(error, BrokenPipeError):  # a reader that ends early, as ``head`` does, wants no more
            from aioelasticjob.cli.terminal import print_error

            print_error(f"the output could not be written: {error.strerror}")
        sys.exit(FAILED)


def stdout() -> TextIO:
    """Return stdout, which a result is written to.

    Raises: OSError if it is closed; ``print`` would write nothing and say nothing.
    """
    if sys.stdout is None:
        raise OSError(EBADF, "stdout is closed")
    return sys.stdout


def _output_error() -> int | None:
    """Return with what error number stdout cannot be written, if so.  Then what it has buffered is thrown away."""
    try:
        print(flush=True)
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes it again when it ends
        return error.errno
    return None
