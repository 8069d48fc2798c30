"""The promises to the registry: no node is written over and over, and no request is sent over and over.

The former happens when two instances undo what the other one does, the latter when one tries again without a pause what
cannot succeed.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator

from tests.simulation.facts import Facts, Violation
from tests.support.history import Repeated, Written

MOST = 40
"""How often one node may change within a second: a fire a second changes it twice, and faults add some more."""


def no_node_is_written_over_and_over(facts: Facts) -> Iterator[Violation]:
    """No node changes more than ``MOST`` times within a second; each node is named once.

    The note of the moments of which listeners were called once is left out: many old moments may be ended in one go.
    """
    changed = defaultdict[str, deque[float]](lambda: deque(maxlen=MOST + 1))
    named = set[str]()
    for written in facts.of_kind(Written):
        for path in {change.path for change in written.changes if not change.path.endswith("/guarantee")}:
            times = changed[path]
            times.append(written.at)
            if len(times) > MOST and written.at - times[0] <= 1 and path not in named:
                named.add(path)
                yield Violation("restraint", written.at, f"{path} has changed {len(times)} times within a second")


def no_request_is_sent_over_and_over(facts: Facts) -> Iterator[Violation]:
    """No session sends the same request as often within a second as it takes to get into the history."""
    for one in facts.of_kind(Repeated):
        text = f"{one.host} has sent the same request (operation {one.op}) {one.times} times within a second"
        yield Violation("restraint", one.at, text)


RULES = (no_node_is_written_over_and_over, no_request_is_sent_over_and_over)
