"""The paths of the znodes of one job, and of the servers in all jobs.  No other module spells a path.

The names are a value, so that a second dialect (those of Apache ElasticJob 3) can stand beside this one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from aioelasticjob.ground.values import value

SWITCHES: Final = "/~servers"
"""Parent of what operators have said about servers in all jobs.  No job has such a name."""
DECLARED: Final = b'{"declared": true}'
"""The data of the flag of a server that has started disabled because the job's setting ``disabled`` says so."""
PROCESSES: Final = "/~processes"
"""Parent of what processes say that they cannot do.  No job has such a name."""
CALENDARS: Final = "/~calendars"
"""Parent of the calendars.  No job has such a name."""
COMMON: Final = (SWITCHES, CALENDARS)
"""The nodes that every process follows, since they matter to all jobs."""
ALERTS: Final = "/~alerts"
"""Parent of the states of alerts.  No job has such a name."""
HANDLERS: Final = "/~handlers"
"""Parent of the handlers that created jobs name.  No job has such a name."""


def server_switch(ip: str, flag: str = "") -> str:
    """The flag ``paused`` or ``disabled`` of a server in all jobs; without a flag, the server's node there."""
    return f"{SWITCHES}/{ip}/{flag}" if flag else f"{SWITCHES}/{ip}"


def calendar_path(name: str) -> str:
    """The node of a calendar; its data is the calendar as text."""
    return f"{CALENDARS}/{name}"


def child(parent: str, name: object) -> str:
    """Return the path of a node below another one, which may be a node that somebody has made by hand."""
    return f"{parent}/{name}"


@value
class HandlerPaths:
    """The nodes of one handler that created jobs name."""

    handler: str

    @property
    def root(self) -> str:
        """The handler's own node."""
        return f"{HANDLERS}/{self.handler}"

    @property
    def jobs(self) -> str:
        """Parent of the index: the jobs that name this handler."""
        return f"{HANDLERS}/{self.handler}/jobs"

    def job(self, name: str) -> str:
        """The node of a job in the index."""
        return f"{HANDLERS}/{self.handler}/jobs/{name}"

    @property
    def processes(self) -> str:
        """Parent of the processes that have this handler."""
        return f"{HANDLERS}/{self.handler}/processes"

    def process(self, id: str) -> str:
        """A process that has this handler, ephemeral."""
        return f"{HANDLERS}/{self.handler}/processes/{id}"

    @property
    def parents(self) -> tuple[str, ...]:
        """The persistent nodes that jobs and processes need, outermost first."""
        return (HANDLERS, self.root, self.jobs, self.processes)


@value
class ItemPaths:
    """The nodes of one sharding item.  Paths are made when they are asked for: thousands of jobs would keep many."""

    job: str
    item: int

    @property
    def sharding(self) -> str:
        """The item itself."""
        return f"/{self.job}/sharding/{self.item}"

    @property
    def instance(self) -> str:
        """The instance that holds the item."""
        return f"/{self.job}/sharding/{self.item}/instance"

    @property
    def disabled(self) -> str:
        """Flag: the item is not run."""
        return f"/{self.job}/sharding/{self.item}/disabled"

    @property
    def failover(self) -> str:
        """The instance that rescues the item, ephemeral."""
        return f"/{self.job}/sharding/{self.item}/failover"

    @property
    def execution(self) -> str:
        """The item's record."""
        return f"/{self.job}/execution/{self.item}"

    @property
    def running(self) -> str:
        """The item's lock, ephemeral."""
        return f"/{self.job}/execution/{self.item}/running"

    @property
    def offset(self) -> str:
        """The handler's checkpoint."""
        return f"/{self.job}/offset/{self.item}"

    @property
    def followed(self) -> str:
        """How the item has ended its newest moments, for jobs that follow this one."""
        return f"/{self.job}/followed/{self.item}"

    @property
    def orphan(self) -> str:
        """The mark of an item that waits for a rescuer."""
        return f"/{self.job}/leader/failover/items/{self.item}"


@dataclass(frozen=True, slots=True)
class Layout:
    """Where everything of one job lives below the namespace."""

    job: str

    @property
    def root(self) -> str:
        """The job's own node."""
        return f"/{self.job}"

    @property
    def config(self) -> str:
        """The job's configuration, JSON."""
        return f"/{self.job}/config"

    @property
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

    def counted_by(self, ip: str) -> str:
        """The instance that has written these counts last."""
        return f"/{self.job}/servers/{ip}/countedBy"

    @property
    def instances(self) -> str:
        """Parent of the instances."""
        return f"/{self.job}/instances"

    def instance(self, instance: str) -> str:
        """An instance, ephemeral."""
        return f"/{self.job}/instances/{instance}"

    @property
    def shutdowns(self) -> str:
        """Parent of the requests to leave."""
        return f"/{self.job}/shutdown"

    def shutdown(self, instance: str) -> str:
        """Request: leave gracefully."""
        return f"/{self.job}/shutdown/{instance}"

    @property
    def requests(self) -> str:
        """Parent of the requests for runs."""
        return f"/{self.job}/requests"

    def request(self, name: str) -> str:
        """Request: run these items, now or later, for one moment or for several."""
        return f"/{self.job}/requests/{name}"

    def request_item(self, name: str, item: int) -> str:
        """How far an item has come with a request."""
        return f"/{self.job}/requests/{name}/{item}"

    @property
    def leader(self) -> str:
        """Parent of election, sharding and failover."""
        return f"/{self.job}/leader"

    @property
    def election(self) -> str:
        """Parent of the leader's node and of the epoch."""
        return f"/{self.job}/leader/election"

    @property
    def host(self) -> str:
        """The leader's node, ephemeral; its data is an instance id."""
        return f"/{self.job}/leader/election/host"

    @property
    def epoch(self) -> str:
        """Its data version rises with each election."""
        return f"/{self.job}/leader/election/epoch"

    @property
    def schedule(self) -> str:
        """The schedule in force, and since when it has been in force, as the leader has noted it."""
        return f"/{self.job}/leader/schedule"

    def contents(self, hash: str) -> str:
        """Contents of a calendar, by their hash, as long as a schedule that the leader has noted names them."""
        return f"/{self.job}/leader/schedule/{hash}"

    @property
    def followers(self) -> str:
        """Parent of the marks of the jobs that follow this one."""
        return f"/{self.job}/leader/followers"

    def follower(self, follower: str) -> str:
        """Mark: this job follows."""
        return f"/{self.job}/leader/followers/{follower}"

    @property
    def followed(self) -> str:
        """Parent of the nodes that say, for followers, how items have ended."""
        return f"/{self.job}/followed"

    @property
    def paused(self) -> str:
        """Flag: no claims at all."""
        return f"/{self.job}/leader/paused"

    @property
    def operator(self) -> str:
        """Who has acted last on the job; the operator's transaction writes it."""
        return f"/{self.job}/leader/operator"

    @property
    def leader_sharding(self) -> str:
        """Parent of the assignment's marks."""
        return f"/{self.job}/leader/sharding"

    @property
    def necessary(self) -> str:
        """Flag: assign again before the next claim."""
        return f"/{self.job}/leader/sharding/necessary"

    @property
    def processing(self) -> str:
        """Held while assigning, ephemeral."""
        return f"/{self.job}/leader/sharding/processing"

    @property
    def failover(self) -> str:
        """Parent of the orphans' parent."""
        return f"/{self.job}/leader/failover"

    @property
    def orphans(self) -> str:
        """Parent of the items that wait for a rescuer."""
        return f"/{self.job}/leader/failover/items"

    @property
    def sharding(self) -> str:
        """Parent of the items' assignments; its data version rises with every assignment."""
        return f"/{self.job}/sharding"

    @property
    def execution(self) -> str:
        """Parent of the items' records."""
        return f"/{self.job}/execution"

    def calling(self, run: str) -> str:
        """Held by the instance that calls the once-per-cluster listeners of a run, ephemeral."""
        return f"/{self.job}/guarantee/{run}"

    @property
    def started(self) -> str:
        """Parent of the runs that items have begun and not ended."""
        return f"/{self.job}/guarantee/started"

    @property
    def completed(self) -> str:
        """Parent of the last moments that items have ended."""
        return f"/{self.job}/guarantee/completed"

    @property
    def guarantee(self) -> str:
        """Says for each run whether its once-per-cluster listeners have been called."""
        return f"/{self.job}/guarantee"

    @property
    def offsets(self) -> str:
        """Parent of the handlers' checkpoints."""
        return f"/{self.job}/offset"

    @property
    def system_time(self) -> str:
        """A node that is written only to read the registry's clock from its mtime."""
        return f"/{self.job}/systemTime/current"

    def item(self, item: int) -> ItemPaths:
        """Return the nodes of one item."""
        return ItemPaths(self.job, item)

    @property
    def mirrored(self) -> tuple[str, ...]:
        """The roots that every instance mirrors, since they rarely change; execution and offset change often."""
        operators = (self.shutdowns, self.requests)
        return (self.config, self.servers, self.instances, *operators, self.leader, self.sharding)

    @property
    def seen_by_followers(self) -> tuple[str, ...]:
        """The roots that the instances of followers mirror."""
        return (self.config, self.schedule, self.followers, self.followed)

    @property
    def shallow(self) -> tuple[str, ...]:
        """Mirrored roots of which only the children's names are followed: below these, servers publish counts."""
        return (self.servers,)

    @property
    def skeleton(self) -> tuple[str, ...]:
        """Persistent parents that must exist before anything else, outermost first."""
        root, *others = self.unseen_parents
        return (root, *self.mirrored_parents, *others)

    @property
    def unseen_parents(self) -> tuple[str, ...]:
        """The nodes of the skeleton that no instance mirrors, outermost first."""
        return (self.root, self.execution, self.offsets, self.guarantee)

    @property
    def mirrored_parents(self) -> tuple[str, ...]:
        """The nodes of the skeleton that every instance mirrors, outermost first."""
        return (
            self.servers,
            self.instances,
            self.shutdowns,
            self.requests,
            self.leader,
            self.election,
            self.leader_sharding,
            self.failover,
            self.orphans,
            self.sharding,
        )
