"""Books account events in their order: ``python events.py`` makes some, books them, shows the balances and ends.

The events of one account are in one item, and an item's records are processed one after another (``ordered=True``), so
nobody sees a withdrawal before the deposit it depends on.  Accounts of different items are booked side by side.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass

import anyio

from aioelasticjob import ElasticJob, ItemContext
from aioelasticjob.ground.rates import Flowed

ITEMS, ACCOUNTS, EVENTS = 4, 12, 600

app = ElasticJob("embedded://")


@dataclass(frozen=True)
class Event:
    """Money that comes (more than 0) or goes."""

    number: int
    account: int
    cents: int


class Overdrawn(Exception):
    """A withdrawal was seen before the deposit that it depends on."""


def happened(events: int, seed: int = 1) -> list[Event]:
    """Return events that are possible in this order only: no account is ever overdrawn."""
    dice, balances, found = random.Random(seed), Counter[int](), list[Event]()
    for number in range(events):
        account = dice.randrange(ACCOUNTS)
        withdrawn = balances[account] and dice.random() < 0.5
        cents = -balances[account] if withdrawn else dice.randrange(1, 10_000)
        balances[account] += cents
        found.append(Event(number, account, cents))
    return found


LOG = happened(EVENTS)
BALANCES: Counter[int] = Counter()


@app.dataflow(cron="* * * * * ?", sharding_total_count=ITEMS, ordered=True, streaming=True)
async def events(context: ItemContext) -> AsyncIterator[list[Event]]:
    """Yield the events of this item's accounts, some at a time, beginning after the last that was booked."""
    last, items = int(context.offset or -1), context.sharding_total_count
    waiting = [event for event in LOG if event.account % items == context.item and event.number > last]
    for start in range(0, len(waiting), 20):
        batch = waiting[start : start + 20]
        await context.save_offset(str(batch[-1].number))
        yield batch


@events.process
async def book(context: ItemContext, event: Event) -> None:
    """Book one event."""
    await anyio.sleep(random.random() / 500)  # whatever it takes, the next one waits for it
    if BALANCES[event.account] + event.cents < 0:
        raise Overdrawn(event)
    BALANCES[event.account] += event.cents


def through() -> int:
    """Return how many events have been booked or refused."""
    return sum(rate.succeeded + rate.failed for rate in app.rates["events"])


async def main() -> None:
    """Book everything, and show the balances."""
    with app.events() as stream:
        async with app.running():
            async for event in stream:
                if isinstance(event, Flowed) and through() == len(LOG):
                    break
    for account, cents in sorted(BALANCES.items()):
        print(f"account {account:>2}  {cents / 100:>10.2f}")
    booked, refused = (sum(getattr(rate, name) for rate in app.rates["events"]) for name in ("succeeded", "failed"))
    print(f"{booked} events booked, {refused} refused because they came before their turn")


if __name__ == "__main__":
    asyncio.run(main())
