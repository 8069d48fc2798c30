"""Jobs by their labels: with a value, with any value, with several at once."""

from __future__ import annotations

import pytest

from aioelasticjob import InvalidSetting, operations
from tests.console.samples import status

JOBS = (
    status("invoices", now=0, labels={"team": "billing", "tier": "gold"}),
    status("refunds", now=0, labels={"team": "billing-eu", "tier": "gold"}),
    status("plain", now=0),
)


@pytest.mark.parametrize(
    ("texts", "names"),
    [
        ((), ["invoices", "refunds", "plain"]),
        (("team=billing",), ["invoices"]),
        (("team",), ["invoices", "refunds"]),
        ((" tier = gold ", "team=billing-eu"), ["refunds"]),
        (("team=Billing",), []),
        (("owner",), []),
    ],
)
def test_jobs_are_found_by_all_the_labels_asked_for(texts: tuple[str, ...], names: list[str]) -> None:
    wanted = [operations.label_in(text) for text in texts]
    assert [job.name for job in operations.labelled(JOBS, wanted)] == names


@pytest.mark.parametrize("text", ["", "=billing", "team=", " = "])
def test_a_text_that_names_no_label_is_refused_with_what_would_be_right(text: str) -> None:
    with pytest.raises(InvalidSetting, match="write NAME=VALUE, such as team=billing"):
        operations.label_in(text)
