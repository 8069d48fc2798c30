"""Whole clusters under faults, in simulated time and from a seed: ``python -m tests.simulation``.

A seed decides on everything: hosts, clocks, jobs, how long handlers take, what breaks and when.  The run is judged by
``tests.simulation.judges.invariants``, and repeats itself exactly when it is asked for again.
"""

from __future__ import annotations

import argparse
import logging
import os
import secrets
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from random import Random
from unittest import mock

from anyio import create_task_group, sleep

from aioelasticjob import Retry
from aioelasticjob.core import effects
from aioelasticjob.testing.loop import START, run
from tests.simulation import asking, creating, scheduling, streaming
from tests.simulation import hostile as surroundings
from tests.simulation.chains import KINDS as CHAIN_KINDS
from tests.simulation.chains import chained
from tests.simulation.chaos import AT_RUN_TIME, KINDS, WILD, mend, rage
from tests.simulation.cluster import Cluster, JobPlan, Plan
from tests.simulation.facts import Violation
from tests.simulation.judges.invariants import check
from tests.simulation.trace import describe
from tests.simulation.users import registered
from tests.support.history import Entry, Phase

JOINING = 8.0
"""Seconds until everybody is there and has work."""
STRATEGIES = ("average", "average-by-name", "odevity", "round-robin", "single-balance", "sticky")


@dataclass(frozen=True, slots=True)
class SimulationVerdict:
    """What came of a seed; ``cost`` in seconds of CPU, ``simulated`` in seconds of the cluster's life."""

    plan: Plan
    entries: Sequence[Entry]
    violations: tuple[Violation, ...]
    fingerprint: int
    cost: float
    simulated: float
    created_runs: int = 0
    """How many runs of created jobs there were."""

    def report(self) -> str:
        """Return what went wrong, and how to see it again."""
        lines = [f"seed {self.plan.seed} violates {len(self.violations)} promises:"]
        lines += [f"  {violation.line(START)}" for violation in self.violations[:20]]
        return "\n".join([*lines, f"replay: {replay(self.plan)}"])

    def trace(self) -> Iterator[str]:
        """Yield the merged history and, where they were seen, the violations."""
        events = [(entry.at, 0, describe(entry, START)) for entry in self.entries]
        events += [(found.at, 1, f"{'':9}  !!! {found.line(START)}") for found in self.violations]
        return (line for _, _, line in sorted(events, key=lambda event: event[:2]))


def replay(plan: Plan) -> str:
    """Return the command that lives this seed again and tells all about it."""
    kinds = f" --kinds {','.join(plan.kinds)}" if plan.kinds else ""
    minutes = "" if plan.chaos == 60 else f" --minutes {plan.chaos / 60:g}"
    failover = " --failover" if any(("failover", True) in job.settings for job in plan.jobs) else ""
    failover += " --wild" if plan.wild else ""
    failover += " --hostile" if plan.hostile else ""
    failover += " --retries" if any(job.attempts for job in plan.jobs) else ""
    failover += " --requests" if plan.requests and not plan.streams else ""
    failover += " --streams" if plan.streams else ""
    failover += " --schedules" if plan.schedules else ""
    failover += " --at-run-time" if plan.at_run_time else ""
    failover += " --created" if plan.created else ""
    failover += " --independent" if any(("independent_items", True) in job.settings for job in plan.jobs) else ""
    failover += " --chains" if plan.chains else ""
    return f"python -m tests.simulation --seeds {plan.seed}{minutes}{kinds}{failover} --trace"


def plan(
    seed: int,
    *,
    minutes: float = 1.0,
    kinds: tuple[str, ...] = (),
    failover: bool = False,
    wild: bool = False,
    hostile: bool = False,
    retries: bool = False,
    requests: bool = False,
    streams: bool = False,
    schedules: bool = False,
    at_run_time: bool = False,
    independent: bool = False,
    chains: bool = False,
    created: bool = False,
) -> Plan:
    """Return what a seed decides on; ``kinds`` are the only faults wanted, all if empty.

    In a ``wild`` plan handlers save checkpoints, and operators switch more than what any seed has.  In a ``hostile``
    one, or where ``kinds`` names one of its faults, jobs have listeners and limits, and the surroundings fail, too.
    With ``retries`` handlers fail some attempts of a run, and are called again.  With ``requests`` programs ask for
    runs, besides everything else that happens.  With ``streams`` they ask streaming jobs for them.  With ``schedules``
    jobs have schedules of every kind, and operators edit and remove a calendar.  With ``at_run_time`` programs leave
    jobs, and add them again, while they run.
    With ``created`` operators create, change and remove jobs of a handler, which only some processes have.
    With ``independent`` the items of a job do not wait for each other, and some run much longer than others.
    With ``chains`` jobs follow each other, and nobody changes their settings.
    """
    dice = Random(f"plan {seed}")
    hosts = dice.randint(3, 7)
    skews = tuple(dice.choice([0.0, dice.uniform(-0.5, 0.5), dice.uniform(-2, 2)]) for _ in range(hosts))
    if dice.random() < 0.15:
        skews = (dice.uniform(-3600, 3600), *skews[1:])
    jobs = tuple(_job(f"job{number}", dice) for number in range(dice.choice([1, 1, 2, 2, 3])))
    if failover:
        jobs = tuple(replace(job, settings=(*job.settings, ("failover", True))) for job in jobs)
    if wild:
        whims = Random(f"wild {seed}")  # dice of its own, so that the rest of the plan is the seed's
        jobs = tuple(replace(job, saving=whims.choice([0.0, 0.5, 1.0])) for job in jobs)
    timeout, transaction = dice.choice([4.0, 6.0, 10.0]), dice.choice([1000, 1000, 1000, 5])
    hostile = hostile or any(kind in surroundings.KINDS for kind in kinds)
    if hostile:
        jobs = surroundings.jobs(seed, jobs, kinds)
    if retries:
        jobs = tuple(_with_attempts(job, Random(f"retries {seed} {job.name}")) for job in jobs)
    if independent:
        jobs = tuple(map(_independent, jobs))
    if streams:
        jobs, requests = tuple(map(streaming.streaming, jobs)), True
    if schedules:
        jobs = scheduling.of_every_kind(seed, jobs)
    if chains:
        jobs = chained(seed, jobs)
        kinds = kinds or CHAIN_KINDS
    at_run_time = at_run_time or any(kind in AT_RUN_TIME for kind in kinds)
    created = created or any(kind in creating.KINDS for kind in kinds)
    switches = (wild, hostile, requests, streams, schedules, at_run_time, chains, created)
    return Plan(seed, skews, jobs, timeout, 60 * minutes, 12.0, transaction, kinds, *switches)


def live(wanted: Plan) -> SimulationVerdict:
    """Let a cluster live and judge its history."""
    began = time.process_time()

    clusters: list[Cluster] = []

    async def main() -> None:
        clusters.append(Cluster(wanted))
        await _life(clusters[0], Random(f"script {wanted.seed}"))
        clusters[0].history.seal()

    fallen = ""
    with (
        _quiet(),
        mock.patch.object(os, "getpid", return_value=1),  # as in containers, and the same in every replay
        mock.patch.object(effects, "MAX_OPERATIONS", wanted.transaction),
        registered(clusters),
    ):
        try:
            run(main, seed=wanted.seed)
        except Exception:
            fallen = traceback.format_exc()
    (cluster,) = clusters
    entries, loop = cluster.history.entries, cluster.faults.loop
    violations = check(entries)
    if wanted.created:
        violations += cluster.creations.check(entries)
    if fallen:
        violations.append(Violation("the world goes on", loop.start + loop.boot_time(), fallen))
    cost = time.process_time() - began
    fingerprint = cluster.faults.network.fingerprint
    created_runs = len(cluster.creations.runs)
    return SimulationVerdict(wanted, entries, tuple(violations), fingerprint, cost, loop.time(), created_runs)


async def _life(cluster: Cluster, dice: Random) -> None:
    history = cluster.history

    def enter(name: str) -> None:
        history.note(Phase(history.now(), name))

    if cluster.plan.hostile:
        surroundings.prepare(cluster)
    enter("joining")
    cluster.registry.start()
    if cluster.plan.schedules:
        await scheduling.make_calendar(cluster)
    for host in cluster.hosts:
        host.start()
        await sleep(dice.uniform(0, 0.3))
    await sleep(JOINING)
    enter("calm")
    await sleep(cluster.plan.calm)
    cluster.peaceful = False
    enter("chaos")
    async with create_task_group() as tasks:
        if cluster.plan.hostile:
            chance = Random(f"hostile {cluster.plan.seed}")
            tasks.start_soon(rage, cluster, chance, cluster.plan.chaos, surroundings.KINDS, surroundings.OFTEN)
        if cluster.plan.schedules:
            days = Random(f"edits of calendars {cluster.plan.seed}")
            tasks.start_soon(scheduling.edit_calendar, cluster, days, cluster.plan.chaos)
        if cluster.plan.requests:
            wishes = asking.STREAM_WISHES if cluster.plan.streams else asking.WISHES
            tasks.start_soon(asking.rage, cluster, Random(f"asks {cluster.plan.seed}"), cluster.plan.chaos, wishes)
        if cluster.plan.created:
            chance = Random(f"creates {cluster.plan.seed}")
            tasks.start_soon(rage, cluster, chance, cluster.plan.chaos, creating.KINDS, creating.OFTEN)
        await rage(cluster, dice, cluster.plan.chaos)
    cluster.peaceful = True
    enter("recovery")
    if cluster.plan.hostile:
        surroundings.mend(cluster)
    await mend(cluster, dice)
    if cluster.plan.schedules:
        await scheduling.make_calendar(cluster, scheduling.OPEN_AGAIN)
    await surroundings.tidy(cluster)
    if cluster.plan.created:
        await cluster.creations.end()
    await sleep(max(JOINING + cluster.plan.session_timeout, cluster.registry.caught_up - history.now()))
    enter("calm")
    await sleep(cluster.plan.calm)
    enter("end")


def _job(name: str, dice: Random) -> JobPlan:
    period = dice.choice([1, 2, 3, 5, 10])
    settings: list[tuple[str, object]] = [
        ("sharding_strategy", dice.choice(STRATEGIES)),
        ("reconcile_interval", 6),
        ("sharding_quiet", dice.choice([0, 0.5, 0.5, 1])),
        ("shutdown_timeout", dice.choice([1, 5])),
        ("misfire", dice.random() < 0.7),
        ("per", "instance" if dice.random() < 0.2 else "item"),
    ]
    if dice.random() < 0.2:
        settings.append(("timeout", period * 1.5))
    return JobPlan(
        name,
        "* * * * * ?" if period == 1 else f"0/{period} * * * * ?",
        period,
        dice.randint(1, 8),
        tuple(settings),
        longest=dice.choice([0.5, 0.9, 1.5, 4]),
        failing=dice.choice([0, 0.1, 0.5]),
        dragging=dice.choice([0, 0.1, 0.3]),
    )


def _with_attempts(job: JobPlan, dice: Random) -> JobPlan:
    """Return a job whose handlers fail often, and whose runs have several attempts."""
    attempts = dice.randint(2, 4)
    settings = dict(job.settings)
    settings["retry"] = Retry(attempts, dice.choice([0, 0.3, 2.0]), longest=dice.choice([0.5, 4.0]))
    if dice.random() < 0.3:
        settings["attempt_timeout"] = max(0.5, job.period * 0.4)
    if settings["per"] == "item" and dice.random() < 0.3:
        settings["items_at_once"] = dice.randint(4, 8)
    return replace(job, settings=tuple(settings.items()), failing=dice.choice([0.3, 0.6]), attempts=attempts)


def _independent(job: JobPlan) -> JobPlan:
    """Return a job whose items are independent: most runs are short, and some outlast several moments."""
    settings = {**dict(job.settings), "per": "item", "independent_items": True}
    return replace(job, items=max(3, job.items), settings=tuple(settings.items()), longest=0.9, dragging=0.2)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep logs from being made: a cluster under faults has much to say, and the history says it better."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run seeds as the command line asks and return the exit code."""
    given = _parser().parse_args(arguments)
    if os.environ.get("PYTHONHASHSEED") != "0":  # sets of strings are ordered by it, and a replay has to be exact
        os.execve(
            sys.executable,
            [sys.executable, "-m", "tests.simulation", *(arguments or sys.argv[1:])],
            os.environ | {"PYTHONHASHSEED": "0"},
        )
    plans = list(_plans(given))
    began, costs, failed, simulated = time.perf_counter(), [], 0, 0.0
    with ProcessPoolExecutor(given.jobs) as pool:
        results = map(live, plans) if given.jobs == 1 else pool.map(_without_history, plans, chunksize=2)
        for verdict in results:
            costs.append(verdict.cost)
            simulated += verdict.simulated
            if given.trace:
                sys.stdout.writelines(f"{line}\n" for line in verdict.trace())
            if verdict.violations:
                failed += 1
                print(verdict.report(), flush=True)
    print(
        f"{len(plans)} seeds, {failed} failed; {simulated / 3600:.2f} simulated hours in"
        f" {time.perf_counter() - began:.1f} s; CPU seconds per seed:"
        f" {sum(costs) / len(costs):.2f} on average, {max(costs):.2f} at most"
    )
    return 1 if failed else 0


def _plans(given: argparse.Namespace) -> Iterator[Plan]:
    first, _, last = given.seeds.partition(":")
    if given.seeds == "random":
        start = secrets.randbelow(10**9)
        print(f"seeds {start}:{start + given.count}")
        seeds = range(start, start + given.count)
    else:
        seeds = range(int(first), int(last) if last else int(first) + 1)
    kinds = tuple(filter(None, given.kinds.split(",")))
    wanted = {"minutes": given.minutes, "kinds": kinds, "failover": given.failover, "wild": given.wild}
    wanted |= {"hostile": given.hostile, "retries": given.retries, "requests": given.requests}
    wanted |= {"streams": given.streams, "schedules": given.schedules, "at_run_time": given.at_run_time}
    wanted |= {"independent": given.independent, "chains": given.chains, "created": given.created}
    return (plan(seed, **wanted) for seed in seeds)


def _without_history(wanted: Plan) -> SimulationVerdict:
    """Live a seed in a worker process, whose history would be long to hand over."""
    return replace(live(wanted), entries=())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", default="0:20", metavar="A[:B]", help="the seeds A to B-1, or 'random'")
    parser.add_argument("--count", type=int, default=20, help="how many random seeds")
    parser.add_argument("--minutes", type=float, default=1.0, help="simulated minutes of faults")
    known = ",".join((*KINDS, *WILD, *AT_RUN_TIME, *creating.KINDS, *surroundings.KINDS))
    parser.add_argument("--kinds", default="", help=f"only these faults, of {known}")
    parser.add_argument("--failover", action="store_true", help="let all jobs rescue orphans")
    parser.add_argument("--wild", action="store_true", help="save checkpoints, and let operators switch settings")
    parser.add_argument("--hostile", action="store_true", help="let the registry refuse, users' code raise anything, …")
    parser.add_argument("--retries", action="store_true", help="let attempts of runs fail, and be tried again")
    parser.add_argument("--requests", action="store_true", help="let programs ask for runs, and cancel some")
    either = parser.add_mutually_exclusive_group()  # a stream is one run of all items
    either.add_argument("--streams", action="store_true", help="the same, and all jobs are streaming ones")
    parser.add_argument(
        "--schedules", action="store_true", help="let jobs have schedules of every kind, jitter and calendars"
    )
    parser.add_argument("--at-run-time", action="store_true", help="let programs leave jobs, and add them again")
    parser.add_argument("--created", action="store_true", help="let operators create jobs, change and remove them")
    either.add_argument("--independent", action="store_true", help="let the items of jobs not wait for each other")
    parser.add_argument("--chains", action="store_true", help="let jobs follow each other, under faults of processes")
    parser.add_argument("-j", "--jobs", type=int, default=1, help="processes to use")
    parser.add_argument("--trace", action="store_true", help="print the whole history")
    return parser
