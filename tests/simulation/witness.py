"""What the registry of a simulated cluster sees: what is written to it, what it refuses, and what it is asked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from aioelasticjob.zookeeper.codes import ErrorCode, EventType, RequestError
from aioelasticjob.zookeeper.connection import Connection
from aioelasticjob.zookeeper.datatree import AppliedOperation, Author, DataTree
from aioelasticjob.zookeeper.messages import Check, Delete, SetData, Write
from aioelasticjob.zookeeper.processor import Processor
from aioelasticjob.zookeeper.sessions import Sessions
from tests.simulation.creations import is_created
from tests.simulation.refusals import CONFLICTS, NO_ERROR, Refusals
from tests.support.history import Change, History, Nonsense, Refusal, Repeated, Written

NAMESPACE = "sim"
XID = 4
"""Bytes at the beginning of a request that number it."""
OFTEN = 200
"""How often a session may send the same request within a second: some writes are tried 50 times before a pause."""


class Witness(DataTree):
    """The registry's tree, with a history of what was written to it."""

    def __init__(self, history: History) -> None:
        super().__init__()
        self.history, self.refusals = history, Refusals()
        self.processor: Processor | None = None
        self.garbled: set[str] = set()
        self.configured: list[tuple[float, str]] = []
        """When processes have written configurations of created jobs, which only operators may."""
        self.is_nonsense: Callable[[str, bytes | None], bool] = lambda _path, _data: False
        """Says which changes are of no meaning to a judge, so that they are noted apart."""

    def apply_all(self, writes: Sequence[Write], author: Author) -> Sequence[AppliedOperation | ErrorCode]:
        """Carry out a transaction and note what it changed, unless something refuses it.

        Raises: RequestError for an error in the reply's header.
        """
        heard = len(self.events)
        refused = self.refusals.find(self, writes, self._host(author.session))
        if refused is None or refused[0].applied:
            results = super().apply_all(writes, author)
            self._witness_settlement(writes, results, author)
            self._witness(heard, author.session, author.zxid, ending=False)
            failed = next((one for one in results if isinstance(one, ErrorCode) and one not in NO_ERROR), None)
            if refused is None or failed is not None:
                if failed is not None and failed not in CONFLICTS:
                    self._note_refusal(writes, author, failed, applied=False)
                return results
        refusing, place = refused
        self._note_refusal(writes, author, refusing.code, applied=refusing.applied)
        if refusing.applied and self.processor is not None:
            self.processor.publish()
        if refusing.applied or refusing.whole:
            raise RequestError(refusing.code)
        return refusing.answer(len(writes), place)

    def _host(self, session: int) -> str:
        connection = self.processor.connections.get(session) if self.processor is not None else None
        return "" if connection is None else connection.host

    def _note_refusal(self, writes: Sequence[Write], author: Author, code: ErrorCode, *, applied: bool) -> None:
        paths = tuple((write.path or "").removeprefix(f"/{NAMESPACE}") for write in writes)
        now, host = self.history.now(), self._host(author.session)
        self.history.note(Refusal(now, host, author.session, int(code), applied, paths))

    def end_session(self, session: int, zxid: int) -> None:
        """Remove what a session owned and note it."""
        heard = len(self.events)
        super().end_session(session, zxid)
        self._witness(heard, session, zxid, ending=True)

    def _witness_settlement(
        self, writes: Sequence[Write], results: Sequence[AppliedOperation | ErrorCode], author: Author
    ) -> None:
        """Note what a transaction writes and writes over: it settles runs, and claims the same items again."""
        newest = {one.path: number for number, one in enumerate(writes) if not isinstance(one, Check)}
        changes = list[Change]()
        for number, one in enumerate(writes):
            path = (one.path or "").removeprefix(f"/{NAMESPACE}")
            if isinstance(one, Check) or newest[one.path] == number or is_created(path):
                continue
            if isinstance(one, SetData):
                changes.append(Change(path, one.data))
            elif isinstance(one, Delete):
                changes.append(Change(path, None))
        if changes and not any(isinstance(one, ErrorCode) for one in results):
            self.history.note(Written(self.history.now(), author.zxid, author.session, tuple(changes)))

    def _witness(self, heard: int, session: int, zxid: int, *, ending: bool) -> None:
        changes: dict[str, Change] = {}
        for event in self.events[heard:]:
            if event.kind is EventType.CHILDREN_CHANGED:
                continue
            path, node = event.path.removeprefix(f"/{NAMESPACE}"), self.nodes.get(event.path)
            if is_created(path):
                if path.endswith("/config") and node is not None and self._host(session).startswith("10.0.1."):
                    self.configured.append((self.history.now(), path))
                continue
            data = None if node is None else node.data or b""
            nonsense = self.is_nonsense(path, data)
            ours = node is None or self._host(session).startswith("10.0.1.")  # written over, or gone with what it was
            mended = path in self.garbled and not nonsense and not ours
            (self.garbled.add if nonsense else self.garbled.discard)(path)
            if nonsense or mended:
                self.history.note(Nonsense(self.history.now(), path, data or b"", mended or data is None))
            elif node is None:
                changes[path] = Change(path, None)
            else:
                changes[path] = Change(path, node.data or b"", event.kind is EventType.CREATED, node.owner)
        if changes or ending:
            self.history.note(Written(self.history.now(), zxid, session, tuple(changes.values()), ending))


class Hearing(Processor):
    """The server's processor, which notes a request that one session sends over and over."""

    __slots__ = ("_asked", "_history", "_second")

    def __init__(self, behind: Processor, sessions: Sessions, tree: Witness) -> None:
        super().__init__(behind.settings, sessions, behind.wall, tree, login_failed=behind.login_failed)
        self._history, self._second, self._asked = tree.history, 0, Counter[tuple[int, bytes]]()

    def receive(self, connection: Connection, frame: bytes, now: int) -> None:
        """Note the ``OFTEN``-th of the requests of this second that differ in nothing but their number."""
        if connection.connected:
            if self._second != (second := int(self._history.now())):
                self._second, self._asked = second, Counter()
            self._asked[asked := (connection.session, frame[XID:])] += 1
            if self._asked[asked] == OFTEN:
                op = int.from_bytes(frame[XID : 2 * XID])
                self._history.note(Repeated(self._history.now(), connection.host, connection.session, op, OFTEN))
        super().receive(connection, frame, now)
