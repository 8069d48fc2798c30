"""The command line: `aioelasticjob`."""

from __future__ import annotations

import sys

INTERRUPTED = 130
"""The exit code after Ctrl-C, as shells have it."""


def main() -> None:
    """Run the command line and exit."""
    for stream in (sys.stdout, sys.stderr):
        if (reconfigure := getattr(stream, "reconfigure", None)) is not None:
            reconfigure(errors="backslashreplace")  # what the terminal's encoding lacks is shown as \\u2192
    try:
        from aioelasticjob.cli.application import application  # here, so that Ctrl-C meanwhile leaves no traceback

        application()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
