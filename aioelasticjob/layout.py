"""The paths of the znodes of one job, and of the servers in all jobs.  No other module spells a path.

The names are a value, so that a second dialect (those of Apache ElasticJob 3) can stand beside this one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

SWITCHES: Final = "/~servers"
"""Parent of what operators have said about servers in all jobs.  No job has such a name."""


def server_switch(ip: str, flag: str = "") -> str:
    """The flag ``paused`` or ``disabled`` of a server in all jobs; without a flag, the server's node there."""
    return f"{SWITCHES}/{ip}/{flag}" if flag else f"{SWITCHES}/{ip}"


def child(parent: str, name: object) -> str:
    """Return the path of a node below another one, which may be a node that somebody has made by hand."""
    return f"{parent}/{name}"


@dataclass(frozen=True, slots=True)
class ItemPaths:
    """The nodes of one sharding item."""

    sharding: str
    instance: str
    disabled: str
    failover: str
    execution: str
    running: str
    misfire: str
    offset: str
    orphan: str


@dataclass(frozen=True)
class Layout:
    """Where everything of one job lives below the namespace."""

    job: str
    _items: dict[int, ItemPaths] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def root(self) -> str:
        """The job's own node."""
        return f"/{self.job}"

    @cached_property
    def config(self) -> str:
        """The job's configuration, JSON."""
        return f"/{self.job}/config"

    @cached_property
    def servers(self) -> str:
        """Parent of the servers."""
        return f"/{self.job}/servers"

    def server(self, ip: str) -> str:
        """The node of a server; its data is the host's name."""
        return f"/{self.job}/servers/{ip}"

    def server_disabled(self, ip: str) -> str:
        """Flag: no claims on this host, and no items."""
        return f"/{self.job}/servers/{ip}/disabled"

    def server_paused(self, ip: str) -> str:
        """Flag: no claims on this host, which keeps its items."""
        return f"/{self.job}/servers/{ip}/paused"

    def success_count(self, ip: str) -> str:
        """Runs that succeeded on a host in the last interval."""
        return f"/{self.job}/servers/{ip}/processSuccessCount"

    def failure_count(self, ip: str) -> str:
        """Runs that failed on a host in the last interval."""
        return f"/{self.job}/servers/{ip}/processFailureCount"

    @cached_property
    def instances(self) -> str:
        """Parent of the instances."""
        return f"/{self.job}/instances"

    def instance(self, instance: str) -> str:
        """An instance, ephemeral."""
        return f"/{self.job}/instances/{instance}"

    @cached_property
    def shutdowns(self) -> str:
        """Parent of the requests to leave."""
        return f"/{self.job}/shutdown"

    def shutdown(self, instance: str) -> str:
        """Request: leave gracefully."""
        return f"/{self.job}/shutdown/{instance}"

    @cached_property
    def triggers(self) -> str:
        """Parent of the requests to run now."""
        return f"/{self.job}/trigger"

    def trigger(self, instance: str) -> str:
        """Request: run now, once."""
        return f"/{self.job}/trigger/{instance}"

    @cached_property
    def leader(self) -> str:
        """Parent of election, sharding and failover."""
        return f"/{self.job}/leader"

    @cached_property
    def election(self) -> str:
        """Parent of the seat and its epoch."""
        return f"/{self.job}/leader/election"

    @cached_property
    def host(self) -> str:
        """The leader's seat, ephemeral; its data is an instance id."""
        return f"/{self.job}/leader/election/host"

    @cached_property
    def epoch(self) -> str:
        """Its data version rises with each election."""
        return f"/{self.job}/leader/election/epoch"

    @cached_property
    def schedule(self) -> str:
        """The schedule in force, and since when it has been in force, as the leader has noted it."""
        return f"/{self.job}/leader/schedule"

    @cached_property
    def paused(self) -> str:
        """Flag: no claims at all."""
        return f"/{self.job}/leader/paused"

    @cached_property
    def leader_sharding(self) -> str:
        """Parent of the assignment's marks."""
        return f"/{self.job}/leader/sharding"

    @cached_property
    def necessary(self) -> str:
        """Flag: assign again before the next claim."""
        return f"/{self.job}/leader/sharding/necessary"

    @cached_property
    def processing(self) -> str:
        """Held while assigning, ephemeral."""
        return f"/{self.job}/leader/sharding/processing"

    @cached_property
    def failover(self) -> str:
        """Parent of the orphans' parent."""
        return f"/{self.job}/leader/failover"

    @cached_property
    def orphans(self) -> str:
        """Parent of the items that wait for a rescuer."""
        return f"/{self.job}/leader/failover/items"

    @cached_property
    def sharding(self) -> str:
        """Parent of the items' assignments; its data version rises with every assignment."""
        return f"/{self.job}/sharding"

    @cached_property
    def execution(self) -> str:
        """Parent of the items' records."""
        return f"/{self.job}/execution"

    def calling(self, run: str) -> str:
        """Held by the instance that calls the once-per-cluster listeners of a run, ephemeral."""
        return f"/{self.job}/guarantee/{run}"

    @cached_property
    def started(self) -> str:
        """Parent of the runs that items have begun and not ended."""
        return f"/{self.job}/guarantee/started"

    @cached_property
    def completed(self) -> str:
        """Parent of the last moments that items have ended."""
        return f"/{self.job}/guarantee/completed"

    @cached_property
    def guarantee(self) -> str:
        """Says for each run whether its once-per-cluster listeners have been called."""
        return f"/{self.job}/guarantee"

    @cached_property
    def offsets(self) -> str:
        """Parent of the handlers' checkpoints."""
        return f"/{self.job}/offset"

    @cached_property
    def system_time(self) -> str:
        """A node that is written only to read the registry's clock from its mtime."""
        return f"/{self.job}/systemTime/current"

    def item(self, item: int) -> ItemPaths:
        """Return the nodes of one item; the result is kept, since every fire needs it."""
        paths = self._items.get(item)
        if paths is None:
            sharding, execution = f"{self.sharding}/{item}", f"{self.execution}/{item}"
            paths = self._items[item] = ItemPaths(
                sharding=sharding,
                instance=f"{sharding}/instance",
                disabled=f"{sharding}/disabled",
                failover=f"{sharding}/failover",
                execution=execution,
                running=f"{execution}/running",
                misfire=f"{execution}/misfire",
                offset=f"{self.offsets}/{item}",
                orphan=f"{self.orphans}/{item}",
            )
        return paths

    @cached_property
    def mirrored(self) -> tuple[str, ...]:
        """The roots that every instance mirrors, since they rarely change; execution and offset change often."""
        return (self.config, self.servers, self.instances, self.shutdowns, self.triggers, self.leader, self.sharding)

    @cached_property
    def shallow(self) -> tuple[str, ...]:
        """Mirrored roots of which only the children's names are followed: below these, servers publish counts."""
        return (self.servers,)

    @cached_property
    def skeleton(self) -> tuple[str, ...]:
        """Persistent parents that must exist before anything else, outermost first."""
        return (
            self.root,
            self.servers,
            self.instances,
            self.shutdowns,
            self.triggers,
            self.leader,
            self.election,
            self.leader_sharding,
            self.failover,
            self.orphans,
            self.sharding,
            self.execution,
            self.offsets,
            self.guarantee,
        )

    @cached_property
    def mirrored_parents(self) -> tuple[str, ...]:
        """The nodes of the skeleton that every instance mirrors, outermost first."""
        return tuple(
            path for path in self.skeleton if any(path == root or path.startswith(f"{root}/") for root in self.mirrored)
        )
