"""Providers: planned when declared, called once per run, put away at its end with what the run raised."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Protocol
from unittest.mock import AsyncMock, Mock

import anyio
import fastapi
import pytest

from aioelasticjob import Depends, ElasticJob, InvalidSetting, JobConfig
from aioelasticjob.jobs.base import Job, instance_context, item_context
from aioelasticjob.jobs.context import Context, InstanceContext, ItemContext
from aioelasticjob.jobs.dependencies import CLOSE_TIMEOUT, Provider, ProviderFailed, provided, requested_by
from aioelasticjob.model import Claim, Fire, FireSource, Record, VersionedRecord
from aioelasticjob.testing import run
from tests.support.simulated_jobs import SimulatedJobs, simulate

if TYPE_CHECKING:
    from somewhere.unknown import Request, SomeContext  # type: ignore[import-not-found]

CONFIG = JobConfig.build(job_name="job", sharding_total_count=3)
CLAIM = Claim(Fire(1_000, FireSource.SCHEDULE), "me", 1, {1: VersionedRecord(Record(), 0, 17)}, {1: Record()})
CONTEXT = item_context(CONFIG, CLAIM, 1, None)  # type: ignore[arg-type]  # nobody asks for an offset here

calls: list[str] = []


@pytest.fixture(autouse=True)
def _no_calls() -> None:
    calls.clear()


def value() -> int:
    calls.append("value")
    return 5


async def later(value: Annotated[int, Depends(value)]) -> int:
    await anyio.sleep(1)
    return value + 1


async def opened(context: ItemContext, later: Annotated[int, Depends(later)]) -> AsyncIterator[str]:
    calls.append(f"open {context.item}")
    try:
        yield f"connection {later}"
    except BaseException as error:
        calls.append(f"rolled back by {type(error).__name__}")
        raise
    finally:
        calls.append("closed")


def opened_plainly() -> Iterator[str]:
    calls.append("open")
    yield "file"
    calls.append("closed")


@asynccontextmanager
async def managed() -> AsyncIterator[str]:
    yield "managed"
    calls.append("left")


@contextmanager
def managed_plainly() -> Iterator[str]:
    yield "plain"
    calls.append("left plainly")


class Service:
    def __init__(self, value: Annotated[int, Depends(value)], name: str = "service") -> None:
        self.value, self.name = value, name


class Called:
    async def __call__(self, context: Context) -> str:
        return context.job_name


class Generates:
    async def __call__(self) -> AsyncIterator[str]:
        yield "generated"
        calls.append("closed")


async def broken() -> str:
    raise ConnectionError("no database")


async def fails_at_the_end() -> AsyncIterator[str]:
    yield "fine"
    raise ConnectionError("not committed")


async def swallows() -> AsyncIterator[str]:
    try:
        yield "fine"
    except ValueError:
        calls.append("swallowed")


async def translates() -> AsyncIterator[str]:
    try:
        yield "fine"
    except ValueError as error:
        raise ConnectionError("translated") from error


def arguments(handler: Provider, overrides: dict[Any, Any] | None = None, context: Context = CONTEXT) -> dict[str, Any]:
    """Return what a handler is given besides its context, in virtual time."""

    async def main() -> dict[str, Any]:
        async with provided(context, overrides or {}, requested_by(handler)) as (given,):
            return given

    return run(main)


def test_every_kind_of_provider_provides() -> None:
    async def handler(
        context: ItemContext,
        plain: Annotated[int, Depends(value)],
        coroutine: Annotated[int, Depends(later)],
        generator: Annotated[str, Depends(opened)],
        plain_generator: Annotated[str, Depends(opened_plainly)],
        manager: Annotated[str, Depends(managed)],
        plain_manager: Annotated[str, Depends(managed_plainly)],
        service: Annotated[Service, Depends(Service)],
        instance: Annotated[str, Depends(called)],
        generating: Annotated[str, Depends(generates)],
        part: Annotated[int, Depends(part)],
        number: int = 7,
    ) -> None: ...

    given = arguments(handler)
    assert list(given) == list(handler.__annotations__)[1:-2]
    service = given.pop("service")
    assert (service.value, service.name) == (5, "service")
    assert list(given.values()) == [5, 6, "connection 6", "file", "managed", "plain", "job", "generated", 8]
    assert calls == ["value", "open 1", "open", "closed", "left plainly", "left", "closed", "closed"]


called, generates = Called(), Generates()
part = functools.partial(pow, 2, 3)


def test_a_run_makes_each_value_once_unless_asked_to_make_more() -> None:
    async def handler(
        context: object,
        one: Annotated[int, Depends(value)],
        two: Annotated[int, Depends(later)],
        fresh: Annotated[int, Depends(value, use_cache=False)],
    ) -> None: ...

    for _ in range(2):
        arguments(handler)
    assert calls == ["value"] * 4


def test_functions_of_one_run_share_its_values() -> None:
    async def fetch(context: object, file: Annotated[str, Depends(opened_plainly)]) -> None: ...
    async def process(context: object, record: int, file: Annotated[str, Depends(opened_plainly)]) -> None: ...
    async def dead(context: object, record: int) -> None: ...

    needs = requested_by(fetch), requested_by(process, given=2), requested_by(dead, given=2)
    assert needs[2] is None

    async def main() -> None:
        async with provided(CONTEXT, {}, *needs) as given:
            assert given == ({"file": "file"}, {"file": "file"}, {})
            assert calls == ["open"]

    run(main)
    assert calls == ["open", "closed"]


def test_a_handler_without_providers_needs_nothing() -> None:
    assert requested_by(lambda context, more=1: None) is None
    assert requested_by(print) is None
    assert Job.declare(CONFIG, Called()).needs is None


def test_fastapis_own_marks_are_understood() -> None:
    async def handler(
        context: object,
        one: Annotated[int, fastapi.Depends(value)],
        two: Annotated[Service, fastapi.Depends()],
        three: int = fastapi.Depends(later, use_cache=False),
    ) -> None: ...

    given = arguments(handler)
    assert (given["one"], given["two"].value, given["three"]) == (5, 5, 6)


def test_a_default_may_be_the_mark() -> None:
    async def handler(context: object, one: int = Depends(value)) -> None: ...  # type: ignore[assignment]

    assert arguments(handler) == {"one": 5}


class Clocked(Protocol):
    job_name: str


def by_protocol(run: Clocked) -> str:
    return run.job_name


def by_name(*, run: ItemContext | InstanceContext) -> str:
    return run.job_name


def by_place(run: Any, /, value: Annotated[int, Depends(value)]) -> str:
    return f"{run.job_name}{value}"


def by_forward(run: SomeContext) -> str:
    name: str = run.job_name
    return name


@pytest.mark.parametrize("provider", [by_protocol, by_name, by_place, by_forward, lambda run: run.job_name])
def test_a_provider_may_take_the_context_in_any_spelling(provider: Provider) -> None:
    def handler(context: object, name: str = "") -> None: ...

    handler.__annotations__["name"] = Annotated[str, Depends(provider)]
    for context in (CONTEXT, instance_context(CONFIG, CLAIM, None)):  # type: ignore[arg-type]
        assert arguments(handler, context=context)["name"].startswith("job")


# Overriding


async def asks(context: object, connection: Annotated[str, Depends(opened)]) -> str:
    return connection


@pytest.mark.parametrize(
    "fake", [lambda: "fake", AsyncMock(return_value="fake"), Mock(return_value="fake"), functools.partial(str, "fake")]
)
def test_an_override_is_called_in_the_providers_place(fake: Provider) -> None:
    assert arguments(asks, {opened: fake}) == {"connection": "fake"}
    assert calls == []


def test_an_override_of_something_below_is_used_and_may_ask_for_providers_itself() -> None:
    def fake(context: Context, value: Annotated[int, Depends(value)]) -> int:
        return value * 100

    fake.__annotations__["value"] = Annotated[int, Depends(value)]
    assert arguments(asks, {later: fake}) == {"connection": "connection 500"}


def ten_more(value: Annotated[int, Depends(value)]) -> int:
    return value + 10


def test_an_override_may_build_on_what_it_overrides() -> None:
    assert arguments(asks, {value: ten_more}) == {"connection": "connection 16"}


def test_an_override_that_cannot_be_called_is_named() -> None:
    with pytest.raises(InvalidSetting, match=r"provider = '.*<lambda>': parameter b is neither the context"):
        arguments(asks, {opened: lambda a, b: None})


# Failing


async def raising(context: object, handler: Callable[..., Any], error: BaseException) -> None:
    async with provided(CONTEXT, {}, requested_by(handler)):
        raise error


async def transaction(context: object, connection: Annotated[str, Depends(opened)]) -> None: ...
async def with_swallower(context: object, connection: Annotated[str, Depends(swallows)]) -> None: ...
async def with_translator(context: object, connection: Annotated[str, Depends(translates)]) -> None: ...
async def with_broken(
    context: object, connection: Annotated[str, Depends(opened)], other: Annotated[str, Depends(broken)]
) -> None: ...
async def with_bad_end(
    context: object, connection: Annotated[str, Depends(opened)], other: Annotated[str, Depends(fails_at_the_end)]
) -> None: ...


def test_what_is_open_is_put_away_with_what_the_run_raised() -> None:
    with pytest.raises(ValueError, match="bad record"):
        run(lambda: raising(CONTEXT, transaction, ValueError("bad record")))
    assert calls[-2:] == ["rolled back by ValueError", "closed"]


def test_a_provider_that_swallows_the_runs_error_does_not_make_it_a_success() -> None:
    with pytest.raises(ValueError, match="bad record"):
        run(lambda: raising(CONTEXT, with_swallower, ValueError("bad record")))
    assert calls == ["swallowed"]


def test_a_provider_that_fails_is_named_and_what_was_open_is_put_away() -> None:
    with pytest.raises(ProviderFailed, match="provider broken failed: ConnectionError: no database") as caught:
        arguments(with_broken)
    assert (caught.value.provider, type(caught.value.__cause__)) == ("broken", ConnectionError)
    assert calls[-2:] == ["rolled back by ProviderFailed", "closed"]


def test_a_provider_that_fails_at_the_end_is_named_and_the_others_hear_of_it() -> None:
    with pytest.raises(ProviderFailed, match="fails_at_the_end failed: ConnectionError: not committed"):
        arguments(with_bad_end)
    assert calls[-2:] == ["rolled back by ProviderFailed", "closed"]


def test_an_error_that_a_provider_makes_of_the_runs_is_its_own() -> None:
    with pytest.raises(ProviderFailed, match="translates failed: ConnectionError: translated") as caught:
        run(lambda: raising(CONTEXT, with_translator, ValueError("bad record")))
    assert isinstance(caught.value.__cause__, ConnectionError)
    assert isinstance(caught.value.__cause__.__cause__, ValueError)


@pytest.mark.parametrize(("ending", "says"), [(CLOSE_TIMEOUT / 2, ["gave it back"]), (CLOSE_TIMEOUT * 2, [])])
def test_a_run_that_is_cancelled_leaves_a_moment_to_put_things_away(ending: float, says: list[str]) -> None:
    async def slow() -> AsyncIterator[str]:
        try:
            yield "connection"
        finally:
            await anyio.sleep(ending)
            calls.append("gave it back")

    def handler(context: object, connection: str = "") -> None: ...

    handler.__annotations__["connection"] = Annotated[str, Depends(slow)]

    async def main() -> float:
        began = anyio.current_time()
        with anyio.move_on_after(5):
            async with provided(CONTEXT, {}, requested_by(handler)):
                await anyio.sleep_forever()
        return anyio.current_time() - began

    assert run(main) == pytest.approx(5 + min(ending, CLOSE_TIMEOUT), abs=0.01)
    assert calls == says


# Wrong signatures, found when the job is declared


def needs_itself(context: ItemContext, other: Annotated[int, Depends(needs_the_first)]) -> int:
    return other


def needs_the_first(first: Annotated[int, Depends(needs_itself)]) -> int:
    return first


def takes_a_request(request: fastapi.Request) -> None: ...
def takes_a_forward(request: Request) -> None: ...
def takes_two(context: ItemContext, other: int) -> None: ...
def below(other: Annotated[None, Depends(takes_two)]) -> None: ...


def wants(provider: Any) -> Callable[[object], None]:
    def handler(context: object, provided: object = None) -> None: ...

    handler.__annotations__["provided"] = Annotated[object, Depends(provider)]
    return handler


@pytest.mark.parametrize(
    ("provider", "says"),
    [
        (needs_itself, "needs itself: needs_itself → needs_the_first → needs_itself"),
        (takes_a_request, "parameter request is neither the context nor"),
        (takes_a_forward, "parameter request is neither the context nor"),
        (takes_two, "'takes_two': parameter other is neither"),
        (below, "'takes_two': parameter other is neither"),
        (5, "provider = 5: must be a function"),
        ([], r"provider = \[\]: must be a function"),
    ],
)
def test_a_provider_that_cannot_be_called_is_refused_when_the_job_is_declared(provider: Any, says: str) -> None:
    with pytest.raises(InvalidSetting, match=says):
        ElasticJob("zk://127.0.0.1:1/nobody").add(wants(provider), name="job")


def no_name(context: object, given: Annotated[int, Depends(value)], /) -> None: ...
def unknown(context: object, given: Annotated[int, Depends(nowhere)]) -> None: ...  # noqa: F821
def not_provided(context: object, given: Annotated[int, "a note"]) -> None: ...


@pytest.mark.parametrize(
    ("handler", "says"),
    [
        (no_name, "given is provided by name: no '/'"),
        (unknown, "annotation of given cannot be evaluated.*'nowhere' is not defined.*top of their module"),
        (not_provided, "must take one context and nothing else that is not provided, as .*: missing .*'given'"),
    ],
)
def test_a_handler_whose_signature_is_wrong_is_refused_when_it_is_declared(handler: Any, says: str) -> None:
    with pytest.raises(InvalidSetting, match=says):
        ElasticJob("zk://127.0.0.1:1/nobody").add(handler, name="job")


# In a job


def played(handler: Callable[..., Awaitable[None]], **overrides: Provider) -> SimulatedJobs:
    """Let a job run once a minute, the second time with providers overridden, by their names."""

    async def scene(here: SimulatedJobs) -> None:
        app = here.app(handler, cron="0 * * * * ?", sharding_total_count=2)
        async with app.running():
            await here.until(70)
            app.dependency_overrides.update({globals()[name]: provider for name, provider in overrides.items()})
            await here.until(130)
            assert app.counts["job"].runs.total() == 4
            here.events += [dict(app.counts["job"].runs)]  # type: ignore[list-item]

    return simulate(scene)


async def report(context: ItemContext, connection: Annotated[str, Depends(opened)]) -> None:
    calls.append(f"{context.item} uses {connection}")


def test_each_run_of_an_item_has_its_own_values_and_tests_override_them() -> None:
    played(report, opened=lambda context: f"fake of {context.item}")
    for item in (0, 1):
        assert [one for one in calls if str(item) in one] == [
            f"open {item}",
            f"{item} uses connection 6",
            f"{item} uses fake of {item}",
        ]
    assert (calls.count("value"), calls.count("closed"), len(calls)) == (2, 2, 10)


async def unlucky(context: ItemContext, connection: Annotated[str, Depends(broken)]) -> None:
    calls.append("called")


def test_a_provider_that_fails_is_the_runs_failure(caplog: pytest.LogCaptureFixture) -> None:
    here = played(unlucky, broken=lambda: "mended")
    assert here.events == [{"failed": 2, "completed": 2}]
    assert calls == ["called"] * 2
    failures = [record.exc_info[1] for record in caplog.records if record.exc_info]
    assert [str(failure) for failure in failures] == ["provider broken failed: ConnectionError: no database"] * 2
