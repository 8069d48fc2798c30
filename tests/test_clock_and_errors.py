"""Latest, events and the layout: small values that everything stands on."""

from __future__ import annotations

import traceback

import anyio
import pytest

from aioelasticjob import ElasticJob, InvalidSetting
from aioelasticjob.core.layout import Layout
from aioelasticjob.errors import ClockSkew, stack_text
from aioelasticjob.events import Events, Refused
from aioelasticjob.ground.latest import Latest
from aioelasticjob.testing import run


def test_a_slow_reader_skips_but_never_misses_the_newest() -> None:
    async def main() -> None:
        latest, seen = Latest(0), list[int]()

        async def read() -> None:
            async for value in latest:
                seen.append(value)
                await anyio.sleep(10)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            for value in range(1, 25):
                await anyio.sleep(1)
                latest.set(value)
            await anyio.sleep(30)
            tasks.cancel_scope.cancel()
        assert seen[0] == 0
        assert seen[-1] == 24
        assert len(seen) == 4

    run(main)


def test_changed_and_until_see_what_is_set_while_nobody_waits() -> None:
    async def main() -> None:
        latest = Latest(0)
        latest.set(5)
        assert await latest.until(lambda value: value == 5) == 5
        with anyio.move_on_after(5) as scope:
            await latest.changed()
        assert scope.cancelled_caught

    run(main)


def test_events_reach_every_listener_and_a_lagging_one_loses_the_oldest() -> None:
    async def main() -> None:
        events = Events()
        events.put(Refused("job", "me", "unheard"))
        with events.listen(backlog=3) as one, events.listen(backlog=3) as other:
            for n in range(5):
                events.put(Refused("job", "me", str(n)))
            stream = aiter(one)
            heard = [await anext(stream) for _ in range(3)]
            assert heard == [Refused("job", "me", why) for why in ("2", "3", "4")]
            assert (one.dropped, other.dropped) == (2, 2)
        events.put(Refused("job", "me", "unheard"))
        assert one.dropped == 2

    run(main)


def test_every_path_is_spelt_below_the_job() -> None:
    layout = Layout("billing")
    item = layout.item(7)
    assert item.running == "/billing/execution/7/running"
    assert item.instance == "/billing/sharding/7/instance"
    assert item.orphan == "/billing/leader/failover/items/7"
    assert layout.server_paused("10.0.0.1") == "/billing/servers/10.0.0.1/paused"
    assert not any(path.startswith((layout.execution, layout.offsets)) for path in layout.mirrored)


class Unshowable:
    def __repr__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (Unshowable(), "<Unshowable that cannot be shown: RuntimeError>"),
        (-(10**5000), "<int that cannot be shown: ValueError>"),
        ((7, -(10**5000)), "<tuple that cannot be shown: ValueError>"),
        ((99,), "99"),
        ((0, 99), "0, 99"),
        ((), "()"),
        (("a",), "('a',)"),
    ],
    ids=["object", "number", "numbers", "one", "two", "none", "text"],
)
def test_a_wrong_setting_is_named_with_its_value_even_if_that_cannot_be_shown(value: object, shown: str) -> None:
    with pytest.raises(InvalidSetting) as refused:
        ElasticJob("embedded://", threads=value)  # type: ignore[arg-type]
    assert str(refused.value).startswith(f"threads = {shown}: ")


@pytest.mark.parametrize(("skew", "shown"), [(5.04, "5.1"), (-5.000001, "5.1"), (5.16, "5.2"), (-7.2, "7.2")])
def test_clocks_that_differ_too_much_are_seen_to_differ_by_more_than_is_tolerated(skew: float, shown: str) -> None:
    assert f"differ by {shown} s, tolerated are 5 s" in str(ClockSkew.of(skew, 5))


def test_an_error_whose_class_keeps_python_from_printing_it_is_named_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> list[str]:
        raise KeyError("__notes__")  # as Python's own function does before 3.13 for an odd ``__getattr__``

    monkeypatch.setattr(traceback, "format_exception", fail)
    monkeypatch.setattr(traceback, "format_exception_only", fail)
    for whole in (True, False):
        said = stack_text(ValueError("no luck"), whole=whole)
        assert said == "ValueError: no luck\n(its stack cannot be printed: KeyError)\n"
