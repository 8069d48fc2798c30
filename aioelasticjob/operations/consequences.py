"""What an operator should know before an operation is carried out: the command line and the console ask with this."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

from aioelasticjob.operations.removal import remove_server
from aioelasticjob.operations.results import OperationResult
from aioelasticjob.operations.switches import disable_server, enable_server, pause_server, resume_server
from aioelasticjob.registry.session import Session

CANCEL_REQUEST: Final = "Nothing more of it is begun, and what runs goes on."
REMOVE: Final = (
    "Everything the registry holds of this job is deleted: settings, offsets, records. This cannot be undone."
)
SHUT_DOWN: Final = (
    "Its instances finish their items, hand them over and leave this job until their processes are started again."
)


@dataclass(frozen=True, slots=True)
class ServerAction:
    """Something that may be done to a server in all jobs."""

    label: str
    do: Callable[..., Awaitable[OperationResult]]
    """Takes a session, the server, and who does it (``by``)."""
    outcome: str
    """What becomes of the server and its items."""


async def _remove(session: Session, ip: str, *, by: str) -> OperationResult:
    """Remove a server.  Who does it is left out: no worker is left there that could log it."""
    return await remove_server(session, ip)


SERVER_ACTIONS: Final[Mapping[str, ServerAction]] = {
    "pause": ServerAction("Pause", pause_server, "Its items stay there and are not run."),
    "resume": ServerAction("Resume", resume_server, "Its items are run again where nothing else is off."),
    "disable": ServerAction("Disable", disable_server, "Its items move to other servers."),
    "enable": ServerAction("Enable", enable_server, "Items move there again where nothing else is off."),
    "remove": ServerAction("Remove", _remove, "All jobs forget this server and its flags."),
}
