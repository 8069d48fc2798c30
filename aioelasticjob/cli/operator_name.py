"""Who gives a command: the user's name and the host's, as workers log it."""

from __future__ import annotations

import getpass
import socket


def operator_name() -> str:
    """Return the user and the host; a user without a name, as in some containers, is the host alone."""
    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"
    except (KeyError, OSError):
        return socket.gethostname()
