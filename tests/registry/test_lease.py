"""Work that ends before its session can, in simulated time."""

from __future__ import annotations

import asyncio

import anyio
import pytest

from aioelasticjob.registry.lease import Lease, SessionRunLease
from aioelasticjob.testing import run
from tests.support.deadlines import deadline


def lease_of(timeout: float) -> Lease:
    lease = Lease()
    lease.begin(1, timeout, asyncio.get_running_loop().time())
    return lease


async def lasts(lease: Lease, incarnation: int = 1) -> float | None:
    """Return after how long work under the lease is cancelled; None if it is not within 1,000 s."""
    loop = asyncio.get_running_loop()
    start = loop.time()
    with deadline(lease, incarnation) as scope:
        await asyncio.sleep(1000)
    return loop.time() - start if scope.cancelled_caught else None


@pytest.mark.parametrize(("timeout", "margin"), [(2, 0.6), (4, 1.2), (6, 1.8), (10, 3), (30, 8), (60, 15.5)])
def test_work_is_cancelled_a_margin_before_the_proven_end(timeout: float, margin: float) -> None:
    async def main() -> None:
        assert await lasts(lease_of(timeout)) == pytest.approx(timeout - margin)
        assert margin <= timeout / 3

    run(main)


def test_every_proof_of_life_moves_the_end() -> None:
    async def main() -> None:
        lease, loop = lease_of(4), asyncio.get_running_loop()

        async def prove() -> None:
            for _ in range(10):
                await asyncio.sleep(1)
                lease.prove(loop.time())

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(prove())
            assert await lasts(lease) == pytest.approx(10 + 2.8)

    run(main)


def test_the_registry_counts_as_heard_until_the_answer_to_a_heartbeat_is_overdue() -> None:
    async def main() -> None:
        lease, loop = lease_of(6), asyncio.get_running_loop()
        assert Lease().unheard == 0
        await asyncio.sleep(1.4)
        assert lease.unheard == 0
        await asyncio.sleep(3)
        assert lease.unheard == pytest.approx(4.4)
        lease.prove(loop.time() - 0.2)
        assert lease.unheard == 0
        await asyncio.sleep(5)
        lease.end()
        assert lease.unheard == 0

    run(main)


def test_another_session_ends_the_work_of_this_one_at_once() -> None:
    async def main() -> None:
        lease, loop = lease_of(4), asyncio.get_running_loop()
        loop.call_later(0.5, lease.begin, 2, 4, loop.time() + 0.5)
        assert await lasts(lease) == pytest.approx(0.5)
        assert lease.incarnation == 2

    run(main)


def test_the_same_session_again_lets_the_work_go_on() -> None:
    async def main() -> None:
        lease, loop = lease_of(4), asyncio.get_running_loop()
        loop.call_later(2, lease.begin, 1, 6, loop.time() + 2)
        assert await lasts(lease) == pytest.approx(2 + 6 - 1.8)  # with the timeout granted this time

    run(main)


@pytest.mark.parametrize("state", ["another session", "past the margin", "ended", "never begun"])
def test_entering_too_late_cancels_at_once(state: str) -> None:
    async def main() -> None:
        lease = Lease() if state == "never begun" else lease_of(4)
        if state == "past the margin":
            await asyncio.sleep(2.9)
        elif state == "ended":
            lease.end()
        assert await lasts(lease, 2 if state == "another session" else 1) == 0

    run(main)


def test_a_scope_that_is_left_in_time_is_forgotten() -> None:
    async def main() -> None:
        lease = lease_of(4)
        with deadline(lease, 1) as scope:
            await asyncio.sleep(1)
        assert not scope.cancelled_caught
        assert not lease._scopes
        await asyncio.sleep(5)
        assert lease._timer is None  # it ran out once and was not set again

    run(main)


def test_thousands_of_scopes_share_one_timer_and_end_together() -> None:
    async def main() -> None:
        lease, ends = lease_of(4), []

        async def work() -> None:
            ends.append(await lasts(lease))

        async with anyio.create_task_group() as tasks:
            for _ in range(2000):
                tasks.start_soon(work)
            await asyncio.sleep(0)
            loop = asyncio.get_running_loop()
            assert sum(handle._callback == lease._look for handle in loop._scheduled) == 1  # type: ignore[attr-defined]
        assert ends == [pytest.approx(2.8)] * 2000

    run(main)


def test_an_error_inside_is_not_swallowed() -> None:
    async def main() -> None:
        lease = lease_of(4)
        with pytest.raises(ValueError, match="inside"), deadline(lease, 1):
            raise ValueError("inside")
        assert not lease._scopes

    run(main)


def test_closing_cancels_what_is_left() -> None:
    async def main() -> None:
        lease, loop = lease_of(4), asyncio.get_running_loop()
        loop.call_later(0.25, lease.close)
        assert await lasts(lease) == 0.25
        assert lease._timer is None

    run(main)


class Suspended:
    """A machine's clock that goes on in a suspension, in which the loop's stands still."""

    def __init__(self) -> None:
        self.asleep, self.found_expired = 0.0, 0

    def now(self) -> float:
        return asyncio.get_running_loop().time() + self.asleep

    def expired(self) -> None:
        self.found_expired += 1

    def lease(self, timeout: float) -> Lease:
        lease = Lease(expired=self.expired)
        lease.now = self.now
        lease.begin(1, timeout, self.now())
        return lease


def test_work_is_cancelled_within_a_second_of_a_suspension_that_outlasted_the_session() -> None:
    async def main() -> None:
        machine = Suspended()
        lease, loop = machine.lease(30), asyncio.get_running_loop()
        loop.call_later(2.5, setattr, machine, "asleep", 60.0)
        assert await lasts(lease) == pytest.approx(3)  # the loop slept on for nothing until its next look
        assert machine.found_expired == 1

    run(main)


def test_whoever_asks_after_a_suspension_finds_the_lease_expired_and_ends_what_is_bound_to_it() -> None:
    async def main() -> None:
        machine = Suspended()
        lease = machine.lease(30)
        with anyio.CancelScope() as running, anyio.CancelScope() as late:
            lease.bind(running, 1)
            assert lease.check()
            machine.asleep = 60.0
            assert not lease.check()
            assert running.cancel_called
            lease.bind(late, 1)
            assert late.cancel_called
        lease.proven = machine.now()  # an answer to what was asked since then
        assert lease.check()

    run(main)


def test_a_short_suspension_ends_nothing() -> None:
    async def main() -> None:
        machine = Suspended()
        lease, loop = machine.lease(10), asyncio.get_running_loop()
        loop.call_later(2, setattr, machine, "asleep", 3.0)
        assert await lasts(lease) == pytest.approx(10 - 3 - 3)

    run(main)


def test_a_run_lease_is_what_is_left_of_the_session_itself_and_none_of_another() -> None:
    async def main() -> None:
        lease = lease_of(4)
        await asyncio.sleep(2.8)
        assert SessionRunLease(lease, 1).left == pytest.approx(SessionRunLease(lease, 1).margin) == pytest.approx(0.2)
        assert SessionRunLease(lease, 2).left < 0
        await asyncio.sleep(2)
        assert SessionRunLease(lease, 1).left == pytest.approx(-1.8)

    run(main)
