"""Counts the runs that have ended, and adds them up in the nodes of servers."""

from __future__ import annotations

from dataclasses import dataclass

from aioelasticjob.core.view import JobView
from aioelasticjob.engine.commit import write
from aioelasticjob.engine.member import Member
from aioelasticjob.errors import RegistryError, SessionEnded, Suspended
from aioelasticjob.ground.whole_numbers import whole_number
from aioelasticjob.registry.transaction import Op, put

MAX_COUNT_DIGITS = 19
"""The most digits of a count; text with more was written by hand."""


@dataclass(slots=True)
class RunCounts:
    """Counts of the runs that have ended in this process since the counts were last published."""

    succeeded: int = 0
    failed: int = 0
    _published: bool = False

    async def publish(self, member: Member, view: JobView, now: float) -> None:
        """Write the counts to the server's node, and reset them.  ``now`` is in seconds since the epoch.

        Counts of several instances on one server in the same interval are added up.  Two instances may write the same
        sums, so the transaction names its writer: after a lost reply, neither takes the other's sums for its own.
        """
        if not (self.succeeded or self.failed or self._published):
            return
        succeeded = self.succeeded
        failed = self.failed
        counts = (succeeded, failed)
        paths = (member.layout.success_count(member.ip), member.layout.failure_count(member.ip))
        writer = member.layout.counted_by(member.ip)
        # not mirrored: else every instance would receive all counts
        *nodes, last_writer = await member.session.get_many([*paths, writer])
        interval = view.config.statistics_interval
        operations: list[Op] = [put(writer, member.id.encode(), last_writer)]
        for node, path, count in zip(nodes, paths, counts, strict=True):
            is_fresh = node is not None and node.stat.mtime // interval == now // interval
            present = 0
            if node is not None and is_fresh:
                present = whole_number(node.text, digits=MAX_COUNT_DIGITS) or 0
            operations.append(put(path, str(present + count).encode(), node))
        try:
            await write(member, operations, "to publish counts")
        except (Suspended, SessionEnded):
            raise
        except RegistryError:  # another instance of this server has written: publish with the next interval's
            return
        self._published = any(counts)
        self.succeeded -= succeeded  # keep runs that have ended meanwhile
        self.failed -= failed
