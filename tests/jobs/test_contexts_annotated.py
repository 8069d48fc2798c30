"""A handler annotated for the context that it will not be given is refused when it is declared."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Optional

import pytest

from aioelasticjob import ElasticJob, InstanceContext, InvalidSetting, ItemContext, JobListener, OnceListener

if TYPE_CHECKING:
    from aioelasticjob import InstanceContext as Imported


async def for_items(context: ItemContext) -> None: ...
async def for_instances(context: InstanceContext) -> None: ...
def plain(context: InstanceContext) -> None: ...
async def annotated(context: Annotated[InstanceContext, "all of them"]) -> None: ...
async def optional(context: InstanceContext | None) -> None: ...
async def of_old(context: Optional[InstanceContext]) -> None: ...  # noqa: UP045
async def either(context: ItemContext | InstanceContext) -> None: ...
async def unresolvable(context: Imported) -> None: ...
async def number(c: int) -> None: ...
async def text_or_nothing(c: str | None) -> None: ...
async def number_or_bytes(c: int | bytes) -> None: ...
async def whatever(context: object) -> None: ...
async def anything(context: Any) -> None: ...
async def silent(context) -> None: ...  # type: ignore[no-untyped-def]
async def of_their_own(context: Mine) -> None: ...
async def many(context: list[ItemContext | InstanceContext]) -> None: ...
async def several(context: list[InstanceContext]) -> None: ...


class Mine:
    async def method(self, context: InstanceContext) -> None: ...

    async def __call__(self, context: InstanceContext) -> None: ...


FOR_INSTANCES = [for_instances, plain, annotated, optional, of_old, Mine().method, Mine(), partial(for_instances)]


@pytest.mark.parametrize("handler", FOR_INSTANCES)
def test_a_handler_for_all_items_is_refused_where_it_would_get_one(handler: Callable[..., Any]) -> None:
    said = r"context is annotated as .*InstanceContext.*, but it is given an ItemContext: .*per=\"instance\""
    with pytest.raises(InvalidSetting, match=said) as wrong:
        ElasticJob("embedded://").add(handler, name="job")
    assert wrong.value.setting == "handler"
    assert "InstanceContext" in str(wrong.value)
    ElasticJob("embedded://").add(handler, name="job", per="instance")


@pytest.mark.parametrize("handler", [optional, of_old])
def test_a_context_that_may_be_none_is_named_as_it_is_written_today(handler: Callable[..., Any]) -> None:
    with pytest.raises(InvalidSetting, match=r"annotated as InstanceContext \| None, but"):
        ElasticJob("embedded://").add(handler, name="job")


@pytest.mark.parametrize("per", ["item", "instance"])
@pytest.mark.parametrize("handler", [number, text_or_nothing, number_or_bytes])
def test_a_handler_annotated_for_a_built_in_type_is_refused(handler: Callable[..., Any], per: str) -> None:
    with pytest.raises(InvalidSetting, match=r"is annotated as .*, but it is given an (I\w+): annotate \1$"):
        ElasticJob("embedded://").add(handler, name="job", per=per)


def test_a_handler_for_one_item_is_refused_where_it_would_get_all() -> None:
    with pytest.raises(InvalidSetting, match=r"'for_items': .*given an InstanceContext: annotate InstanceContext"):
        ElasticJob("embedded://").job(per="instance")(for_items)


@pytest.mark.parametrize("handler", [either, unresolvable, whatever, anything, silent, of_their_own, many, several])
@pytest.mark.parametrize("per", ["item", "instance"])
def test_what_is_annotated_otherwise_is_left_alone(handler: Callable[..., Any], per: str) -> None:
    ElasticJob("embedded://").add(handler, name="job", per=per)


def test_each_function_of_a_dataflow_is_looked_at() -> None:
    async def fetch(context: InstanceContext) -> list[int]:
        return []

    async def process(context: InstanceContext, record: int) -> None: ...
    async def dead(context: InstanceContext, record: int, error: Exception) -> None: ...
    async def right(context: ItemContext) -> list[int]:
        return []

    with pytest.raises(InvalidSetting, match=r"fetch = .*given an ItemContext"):
        ElasticJob("embedded://").dataflow()(fetch)
    flow = ElasticJob("embedded://").dataflow()(right)
    with pytest.raises(InvalidSetting, match=r"process = .*given an ItemContext"):
        flow.process(process)
    with pytest.raises(InvalidSetting, match=r"dead = .*given an ItemContext"):
        flow.dead(dead)
    whole = ElasticJob("embedded://").dataflow(per="instance")(fetch)
    whole.process(process)
    whole.dead(dead)


@pytest.mark.parametrize("kind", [JobListener, OnceListener])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_listener_is_called_around_all_items(kind: type[JobListener | OnceListener], when: str) -> None:
    with pytest.raises(InvalidSetting, match=f"{when} = 'for_items': .*: annotate InstanceContext, since listeners"):
        kind(**{when: for_items})  # type: ignore[arg-type]
    kind(**{when: for_instances})  # type: ignore[arg-type]


def test_settings_that_come_later_are_looked_at_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    app = ElasticJob("embedded://")
    app.add(for_items, name="job")
    monkeypatch.setenv("AIOELASTICJOB_JOBS__JOB__PER", "instance")
    with pytest.raises(InvalidSetting, match=r"for_items.*given an InstanceContext"):
        app.configure()
