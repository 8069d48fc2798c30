"""One job's lives in a process, beside those of the others."""

from __future__ import annotations

from collections import Counter

import pytest
from anyio import sleep

from aioelasticjob import ElasticJob, ItemContext
from aioelasticjob.running.driver import StateDriver
from aioelasticjob.testing import UnhandledErrors, VirtualCluster, simulated

ran = Counter[str]()


async def count(context: ItemContext) -> None:
    ran[context.job_name] += 1


@simulated
async def _a_defect_in_one_job(cluster: VirtualCluster) -> None:
    app = ElasticJob("embedded://")
    for name in ("broken", "sound"):
        app.add(count, name=name, cron="* * * * * ?")
    await cluster.start(app)
    await sleep(30)


def test_a_defect_of_this_package_in_one_job_makes_it_join_again_and_the_others_do_not_notice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    look, failures = StateDriver.look, list[int]()

    async def fails_sometimes(self: StateDriver, view: object) -> object:
        if self.view.config.job_name == "broken" and len(failures) < 3 and ran["sound"] > 5 * (len(failures) + 1):
            failures.append(1)
            raise AssertionError("a defect")
        return await look(self, view)  # type: ignore[arg-type]

    monkeypatch.setattr(StateDriver, "look", fails_sometimes)
    ran.clear()
    with pytest.raises(UnhandledErrors, match="errors nobody handled") as raised:
        _a_defect_in_one_job(VirtualCluster())
    assert [str(error) for error in raised.value.exceptions] == ["a defect"] * 3
    assert ran["sound"] >= 29
    assert ran["broken"] >= 29 - 2 * 3  # a second for each time that it joins again
