"""Faults of the surroundings: a registry that refuses, clocks and machines that stop, users' code, careless operators.

They have dice of their own, so that the plans without them live as they did before.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

from anyio import sleep

from aioelasticjob.zookeeper.acl import OPEN_UNSAFE, Acl
from aioelasticjob.zookeeper.codes import ErrorCode, Perms
from tests.simulation.careless_operators import is_nonsense, mend_nonsense, nonsense, remove_job
from tests.simulation.chaos import Chaos, Kinds, operate, set_config, trigger
from tests.simulation.cluster import Cluster, JobPlan
from tests.simulation.refusals import CONFLICTS, DOUBTFUL, ERRORS, Refusing
from tests.simulation.users import ERRORS as ERRORS_OF_USERS
from tests.simulation.users import PLACES, UNRULY
from tests.simulation.witness import NAMESPACE

AHEAD = 55.0
"""Seconds by which the registry's clock is ahead at most, but for those steps of an hour."""
OFTEN = 0.25
"""How many of these faults there are in a second."""
PARTS = ("", "", "/execution/", "/execution/", "/running", "/instances/", "/sharding", "/leader/", "/guarantee")
"""What a refused write is about: everything more often than one part of a job."""


async def error_code(chaos: Chaos) -> None:
    """The registry answers writes with an error, once or for a while, and may carry them out all the same."""
    dice = chaos.dice
    applied = dice.random() < 0.25
    code = dice.choice(DOUBTFUL if applied else ERRORS)
    whole = applied or code is ErrorCode.RUNTIME_INCONSISTENCY or dice.random() < 0.5
    await _refuse(chaos, "error code", code, applied=applied, whole=whole)


async def false_conflict(chaos: Chaos) -> None:
    """The registry says that a condition of a write does not hold, although it does."""
    await _refuse(chaos, "false conflict", chaos.dice.choice(CONFLICTS))


async def quota(chaos: Chaos) -> None:
    """A quota is met: nothing that needs room is written below a job until it is lifted."""
    await _refuse(chaos, "quota", ErrorCode.QUOTA_EXCEEDED, growing=True)


async def write_permission(chaos: Chaos) -> None:
    """Somebody withdraws the permission to create, to change or to remove nodes below a job, and gives it back."""
    layout, dice = chaos.layout(), chaos.dice
    withdrawn = dice.choice((Perms.WRITE, Perms.CREATE, Perms.DELETE, Perms.WRITE | Perms.CREATE | Perms.DELETE))
    below = dice.choice((layout.root, layout.root, layout.execution, layout.instances, layout.sharding, layout.leader))
    chaos.cluster.break_("write permission", detail=f"{below} without {withdrawn!r}")
    _set_acl(chaos.cluster, below, Acl(Perms.ALL & ~withdrawn, "world", "anyone"))
    await sleep(dice.uniform(0.3, 8))
    _set_acl(chaos.cluster, below, *OPEN_UNSAFE)
    chaos.cluster.mend("write permission")


async def users_code(chaos: Chaos) -> None:
    """Code of the users' raises whatever Python lets it raise, for a while."""
    job, place = chaos.dice.choice(chaos.cluster.plan.jobs).name, chaos.dice.choice(PLACES)
    error = chaos.dice.choice(tuple(ERRORS_OF_USERS))
    chaos.cluster.break_("users code", detail=f"{place} of {job} raises {error}")
    chaos.cluster.unruly[job, place] = error
    await sleep(chaos.dice.uniform(1, 8))
    chaos.cluster.unruly.pop((job, place), None)
    chaos.cluster.mend("users code")


async def registry_clock(chaos: Chaos) -> None:
    """The registry's clock is set: by a little for good, or by much for a while."""
    registry, dice = chaos.cluster.registry, chaos.dice
    kind = dice.choice(("a little", "a little", "ahead", "ahead", "ahead", "an hour ahead", "an hour back"))
    hours = {"an hour ahead": 3600.0, "an hour back": -3600.0}
    by = hours.get(kind) or (dice.uniform(5, AHEAD - 10) if kind == "ahead" else dice.uniform(-1.5, 1.5))
    if abs(registry.skew) > 5:
        return  # one at a time, or nobody could say which moments it concerns
    chaos.cluster.break_("registry clock", detail=f"{by:+.3f} s")
    registry.turn_clock(by)
    await sleep(dice.uniform(2, 12 if kind == "ahead" else 5))
    if kind != "a little":
        registry.turn_clock(-by)
    chaos.cluster.mend("registry clock")


async def clock_limit(chaos: Chaos) -> None:
    """A host's clock is set by more than jobs tolerate, for a while."""
    host, by = chaos.host(), chaos.dice.choice((-1, 1)) * chaos.dice.uniform(3, 15)
    chaos.cluster.break_("clock limit", host.address, detail=f"{by:+.3f} s")
    host.turn_clock(by)
    await sleep(chaos.dice.uniform(4, 12))
    host.turn_clock(-by)
    chaos.cluster.mend("clock limit", host.address)


async def unmonitored(chaos: Chaos) -> None:
    """An operator switches the monitoring of a job's execution off or on again, and with it what needs it."""
    job = chaos.dice.choice(chaos.cluster.plan.jobs)
    on, failover = chaos.dice.random() < 0.5, dict(job.settings).get("failover", False)
    settings = {"monitorExecution": on, "failover": on and failover, "catchUp": 0}
    layout = chaos.cluster.layouts[job.name]
    await operate(chaos, f"config of {job.name}: {settings}", lambda session: set_config(session, layout, settings))


async def suspend(chaos: Chaos) -> None:
    """A machine sleeps: its monotonic clock stands still while the true time goes on."""
    host = chaos.host()
    chaos.cluster.break_("suspend", host.address)
    host.suspend()
    await sleep(chaos.span())
    host.wake()
    chaos.cluster.mend("suspend", host.address)


async def listeners(chaos: Chaos) -> None:
    """An operator wants a job run now, whose listeners go with that run; with this kind alone, some jobs have some."""
    await trigger(chaos)


KINDS: Kinds = {
    "error-code": (6, error_code),
    "false-conflict": (2, false_conflict),
    "quota": (2, quota),
    "write-permission": (3, write_permission),
    "users-code": (6, users_code),
    "suspend": (4, suspend),
    "nonsense": (4, nonsense),
    "remove-job": (1, remove_job),
    "listeners": (1, listeners),
    "registry-clock": (3, registry_clock),
    "clock-limit": (2, clock_limit),
    "unmonitored": (2, unmonitored),
}
"""What can happen, and how often compared to the rest."""


def jobs(seed: int, given: tuple[JobPlan, ...], kinds: tuple[str, ...]) -> tuple[JobPlan, ...]:
    """Return the jobs of a seed with what these faults, or those of ``kinds``, need of them."""
    dice = Random(f"hostile jobs {seed}")
    jobs = []
    for job in given:
        settings, chances = dict(job.settings), [dice.random() for _ in range(6)]
        listened, provided = chances[0] < 0.6, chances[1] < 0.5
        if not kinds or "users-code" in kinds:
            if chances[2] < 0.5:
                settings["error_handler"] = UNRULY
            if chances[3] < 0.3:
                settings["sharding_strategy"] = UNRULY
        else:
            provided = False
            listened = listened and "listeners" in kinds
        if (not kinds or "clock-limit" in kinds) and chances[4] < 0.5:
            settings["max_time_diff_seconds"] = 1 + int(chances[4] * 8)
        if (not kinds or "unmonitored" in kinds) and chances[5] < 0.3:
            settings |= {"monitor_execution": False, "failover": False}
        jobs.append(replace(job, settings=tuple(settings.items()), listened=listened, provided=provided))
    return tuple(jobs)


def prepare(cluster: Cluster) -> None:
    """Let the witness of a cluster know what these faults do."""
    cluster.registry.tree.is_nonsense = is_nonsense


async def tidy(cluster: Cluster) -> None:
    """Mend what is left of nonsense, once everything else is mended."""
    for path in list(cluster.garbled):
        await mend_nonsense(cluster, path)


def mend(cluster: Cluster) -> None:
    """End all that goes on of this, at once."""
    cluster.registry.tree.refusals.active.clear()
    cluster.unruly.clear()
    for host in cluster.hosts:
        host.wake()
    if cluster.registry.skew:
        cluster.registry.turn_clock(-cluster.registry.skew)
    for layout in cluster.layouts.values():
        _set_acl(cluster, layout.root, *OPEN_UNSAFE)


async def _refuse(
    chaos: Chaos, kind: str, code: ErrorCode, *, applied: bool = False, whole: bool = False, growing: bool = False
) -> None:
    dice, cluster, job = chaos.dice, chaos.cluster, chaos.layout().root
    everybody = [host.address for host in cluster.hosts]
    hosts = everybody if dice.random() < 0.5 else [dice.choice(everybody)]
    part = f"/{NAMESPACE}{job}{'' if growing else dice.choice(PARTS)}"
    once = not growing and dice.random() < 0.4
    refusing = Refusing(code, frozenset(hosts), part, applied, whole, once, growing)
    detail = f"{code.name}{' once' if once else ''}{' but applied' if applied else ''} at {part} for {' '.join(hosts)}"
    cluster.break_(kind, detail=detail)
    cluster.registry.tree.refusals.active.append(refusing)
    await sleep(dice.uniform(0.2, 8))
    cluster.registry.tree.refusals.end(refusing)
    cluster.mend(kind)


def _set_acl(cluster: Cluster, below: str, *acl: Acl) -> None:
    """Do what ``setAcl -R`` does, at once, whoever made the nodes."""
    tree, root = cluster.registry.tree, f"/{NAMESPACE}{below}"
    for path in [path for path in tree.nodes if path == root or path.startswith(f"{root}/")]:
        tree.nodes[path].acl = OPEN_UNSAFE if acl == OPEN_UNSAFE else acl
        tree.nodes[path].aversion += 1
