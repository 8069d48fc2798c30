"""A job on the bare tree, whose instances do what the rules say, and all that can happen to it."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, field, replace

from hypothesis import strategies as st

from aioelasticjob.config.job import JobConfig
from aioelasticjob.core import records
from aioelasticjob.core.effects import to_transactions
from aioelasticjob.core.ends import BEGINS
from aioelasticjob.core.instances import address_of
from aioelasticjob.core.layout import CALENDARS, Layout, calendar_path
from aioelasticjob.core.requests import Request, encode
from aioelasticjob.core.rules import RuleInput, decide, wanted_assignment
from aioelasticjob.core.schedules import scheduling
from aioelasticjob.core.view import JobView, read
from aioelasticjob.errors import Conflict, InvalidSetting
from aioelasticjob.model import End, FireSource, Record, VersionedRecord
from aioelasticjob.registry.transaction import Create, Delete, Op, Set, put
from tests.simulation.bare.registry import BareRegistry

LAYOUT = Layout("job")
UPSTREAM = Layout("extract")
"""A job that the job may follow; nobody runs it."""

LACKED, LACKING = "Asia/Tokyo", ("10.0.0.2", "10.0.0.5")
"""A time zone, and the servers that lack it."""
WEEK = 7 * 24 * 3600.0


@dataclass
class World:
    """A job on the bare tree, and instances that do what the rules say."""

    config: JobConfig
    registry: BareRegistry = field(default_factory=BareRegistry)
    joined: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.registry.commit([Create(path) for path in LAYOUT.skeleton])
        self.registry.commit([Create(LAYOUT.config, self.config.to_json())])

    def join(self, number: int) -> str:
        name = f"10.0.0.{number}@-@1"
        self.joined.append(name)
        torn = [Create(path) for path in LAYOUT.skeleton if path not in self.registry.nodes]
        if torn:  # whoever joins makes the missing parents
            self.registry.commit(torn)
        if LAYOUT.server(f"10.0.0.{number}") not in self.registry.nodes:
            self.registry.commit([Create(LAYOUT.server(f"10.0.0.{number}"))])
        self.registry.commit([Create(LAYOUT.instance(name), b"", ephemeral=True)], incarnation=number)
        return name

    def view(self) -> JobView:
        return read(self.registry.tree(), LAYOUT, self.config)

    def rule_input(self, name: str, view: JobView | None = None, *, tick: bool = True) -> RuleInput:
        """Return what an instance would decide on: the busy nodes are looked up as the coordinator does."""
        nodes, cut_off, unwanted = self.registry.nodes, dict[int, VersionedRecord](), list[Delete]()
        for item in range(13):
            record, running = nodes.get(LAYOUT.item(item).execution), LAYOUT.item(item).running in nodes
            if record is not None and not running:
                unwanted.append(Delete(LAYOUT.item(item).execution, record.stat.version))
                decoded = records.decode(record.data)
                if decoded is not None and not decoded.completed:
                    cut_off[item] = VersionedRecord(decoded, record.stat.version, record.stat.mzxid)
        idle = [] if self.running() else unwanted
        marks = self.registry.tree().children(LAYOUT.followers)
        gone = [follower for follower in marks if Layout(follower).config not in nodes]
        seen = self.seen_by(name, view)
        return RuleInput(seen, name, True, tick, self.registry.now, idle, cut_off, gone_followers=gone)

    def seen_by(self, name: str, view: JobView | None = None) -> JobView:
        """Return the view of an instance: on some hosts a time zone is lacking."""
        view = view or self.view()
        is_lacking = address_of(name) in LACKING and view.config.time_zone == LACKED
        return replace(view, unusable="there is no such time zone") if is_lacking else view

    def running(self) -> dict[str, object]:
        """Return the marks of runs."""
        return {path: node for path, node in self.registry.nodes.items() if path.endswith("/running")}

    def round(self, name: str, view: JobView | None = None, *, backwards: bool = False) -> int:
        """Let one instance write what it wants; return how many transactions took."""
        view = view or self.view()
        number, written, running = int(name.partition("@")[0].rpartition(".")[2]), 0, self.running()
        effects = decide(self.rule_input(name, view))
        for effect in reversed(effects) if backwards else effects:
            try:
                for transaction in to_transactions(effect, view):
                    self.registry.commit(transaction, number)
                    written += 1
            except Conflict:
                pass
        assert self.running() == running
        return written

    def settle(self, rounds: int = 50, *, backwards: bool = False) -> JobView:
        for _ in range(rounds):
            names = sorted(self.view().instances, reverse=backwards)
            if not sum([self.round(name, backwards=backwards) for name in names]):
                return self.view()
        raise AssertionError("the rules never come to rest")


def world(instances: int = 3, **settings: object) -> World:
    made = World(JobConfig.build(job_name="job", **settings))
    for number in range(1, instances + 1):
        made.join(number)
    return made


def is_right(view: JobView) -> bool:
    if not view.staying:  # nobody may lead, so all waits for somebody who may
        return True
    return view.assignment == wanted_assignment(view) and view.assignment_stands and view.leader in view.staying


WHATS = (
    *(
        "join",
        "die",
        "drain",
        "disable",
        "enable",
        "pause",
        "pause the job",
        "count",
        "zone",
        "act",
        "act on an old view",
        "hands on",
        "tear",
        "begin",
        "follow",
        "upstream",
        "follower",
    ),
    *(
        "calendar",
        "end",
        "cut off",
        "rescue",
        "failover",
        "monitor",
        "ask",
        "request",
        "depose",
        "wait",
        "rest",
        "rest",
    ),
)


happenings = st.tuples(st.sampled_from(WHATS), st.integers(0, 12))


operations = st.lists(happenings, max_size=8) | st.lists(happenings, min_size=12, max_size=40)


PARENTS = (*LAYOUT.mirrored_parents, *(LAYOUT.server(f"10.0.0.{number}") for number in range(1, 8)))


def happen(here: World, what: str, number: int, old: JobView) -> None:
    nodes = here.registry.nodes
    host = number % 7 + 1
    name, ip = f"10.0.0.{host}@-@1", f"10.0.0.{host}"
    flags = {"disable": LAYOUT.server_disabled(ip), "pause": LAYOUT.server_paused(ip)}
    match what:
        case "join" if LAYOUT.instance(name) not in nodes:
            here.join(host)
        case "die":
            here.registry.expire(host)
        case "drain" if LAYOUT.instance(name) in nodes:
            seat = nodes.get(LAYOUT.host)
            given_up = [Delete(LAYOUT.host)] if seat and seat.stat.ephemeral_owner == host else []
            here.registry.commit([Set(LAYOUT.instance(name), b'{"leaving": true}', -1), *given_up], host)
        case "disable" | "pause" if LAYOUT.server(ip) in nodes and flags[what] not in nodes:
            here.registry.commit([Create(flags[what])])
        case "pause the job" if LAYOUT.leader in nodes:
            here.registry.commit([Delete(LAYOUT.paused) if LAYOUT.paused in nodes else Create(LAYOUT.paused)])
        case "enable":
            here.registry.commit([Delete(flag) for flag in flags.values() if flag in nodes])
        case "act":
            here.round(name)
        case "rest":
            here.settle()
        case "act on an old view":
            here.round(name, old)
        case "hands on" if LAYOUT.item(number).instance in nodes:
            here.registry.commit([Set(LAYOUT.item(number).instance, b"nobody", -1)])
        case "wait":
            here.registry.now += number * WEEK / 6
        case "upstream":
            change_upstream(here, number)
        case _:
            by_hand(here, what, number, name)


def by_hand(here: World, what: str, number: int, name: str) -> None:
    """Do what an operator does, or a run; what the tree refuses does not happen."""
    registry, paths, host = here.registry, LAYOUT.item(number), number % 7 + 1
    config = here.view().config
    begun = records.encode(Record(slot=1, instance=name, begun=1, completed=False, rescues=number % 5))
    done = records.encode(Record(slot=1, instance=name, begun=1))
    changes = {
        "zone": {"time_zone": LACKED if number % 3 else "UTC"},
        "count": {"sharding_total_count": number or 1},
        "failover": {"failover": number % 3 > 0, "monitor_execution": True},
        "monitor": {"failover": False, "monitor_execution": number % 3 == 0},
        "calendar": {"calendar": "closed"},
        "follow": {"after": (UPSTREAM.job,) if number % 3 else (), "cron": None},
    }
    record = Set(paths.execution, begun, -1) if paths.execution in registry.nodes else Create(paths.execution, begun)
    transactions = {
        "tear": [Delete(PARENTS[number % len(PARENTS)])],
        "begin": [record, Create(paths.running, name.encode(), ephemeral=True)],
        "cut off": [record],
        "end": [Set(paths.execution, done, -1), Delete(paths.running)],
        "rescue": [Delete(paths.orphan), Create(paths.failover, name.encode(), ephemeral=True)],
        "ask": [Create(LAYOUT.shutdown(name))],
        "request": _requesting(here, number),
        "depose": [Delete(LAYOUT.host)],
        "follower": [Create(LAYOUT.followers), Create(LAYOUT.follower("gone"))],
    }
    if what in changes:
        with suppress(InvalidSetting):  # only a job with records follows others
            transactions[what] = [Set(LAYOUT.config, config.changed(**changes[what]).to_json(), -1)]
    if what == "calendar" and what in transactions:
        transactions[what] += _closing_a_day(here, number)
    if what not in ("begin", "rescue") or LAYOUT.instance(name) in registry.nodes:
        with suppress(Conflict):
            registry.commit(transactions.get(what, []), host)


def _closing_a_day(here: World, number: int) -> list[Op]:
    """Return the operations that edit the calendar ``closed``, or remove it."""
    nodes = here.registry.nodes
    path = calendar_path("closed")
    if not number:
        return [Delete(path)]
    parents = [] if CALENDARS in nodes else [Create(CALENDARS)]
    return [*parents, put(path, f"2026-12-{number:02}".encode(), nodes.get(path))]


def change_upstream(here: World, number: int) -> None:
    """Make the upstream, give it another schedule, or remove it; its items tell how they end, if they are to."""
    registry = here.registry
    if number % 4 == 0:
        below = registry.tree().below(UPSTREAM.root)
        registry.commit([Delete(path) for path in sorted(below, key=lambda path: -path.count("/"))])
        return
    if UPSTREAM.config not in registry.nodes:
        registry.commit([Create(path) for path in (UPSTREAM.root, UPSTREAM.leader)])
        registry.commit([Create(UPSTREAM.config), Create(UPSTREAM.schedule)])
    config = JobConfig.build(job_name=UPSTREAM.job, every=number, sharding_total_count=1 + number % 3)
    noted = json.dumps({**scheduling(config), "since": round(registry.now * 1000)}).encode()
    registry.commit([Set(UPSTREAM.config, config.to_json(), -1), Set(UPSTREAM.schedule, noted, -1)])
    for item in range(config.sharding_total_count if UPSTREAM.followed in registry.nodes else 0):
        path = UPSTREAM.item(item).followed
        ends = records.encode_ends([End(1, 1, BEGINS, 1)]).encode()
        registry.commit([Set(path, ends, -1) if path in registry.nodes else Create(path, ends)])


def _requesting(here: World, number: int) -> list[Op]:
    """Return the operations that ask for a run; every other request has expired at once."""
    asked = round(here.registry.now * 1000)
    request = Request(
        f"asked-{number}", FireSource.TRIGGER, 4, asked, expires=asked if number % 2 else 0, named=number % 3 == 0
    )
    return [Create(LAYOUT.request(request.id), encode(request))]


def leads(here: World) -> str:
    leader = here.view().leader
    assert leader is not None
    return leader


def knowing(number: int, *features: str) -> Create:
    data = json.dumps({"features": features}).encode()
    return Create(LAYOUT.instance(f"10.0.0.{number}@-@1"), data, ephemeral=True)


def requiring(there: World, data: bytes) -> JobView:
    there.registry.commit([Set(LAYOUT.config, data, -1)])
    return there.settle()
