"""A shop's database: orders, and the parcels they became.  ``python shop.py 20000`` fills it with so many orders."""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass

DATABASE = os.environ.get("ORDERS_DATABASE", "orders.db")
SCHEMA = """
CREATE TABLE IF NOT EXISTS orders (number INTEGER PRIMARY KEY, customer INTEGER NOT NULL, cents INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS parcels (number INTEGER PRIMARY KEY, instance TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS fence (item INTEGER PRIMARY KEY, largest INTEGER NOT NULL);
"""
RAISE = """
INSERT INTO fence VALUES (:item, :fence)
ON CONFLICT (item) DO UPDATE SET largest = :fence WHERE largest <= :fence
"""


class Superseded(Exception):
    """A newer run of the item has written already: this one was cut off and does not know it yet."""


@dataclass(frozen=True)
class Order:
    """What somebody wants."""

    number: int
    cents: int


@contextmanager
def opened() -> Generator[sqlite3.Connection, None, None]:
    """Open the database for one transaction."""
    with closing(sqlite3.connect(DATABASE, timeout=30)) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.executescript(SCHEMA)
        with database:
            yield database


def orders_after(item: int, items: int, number: int, most: int) -> list[Order]:
    """Return the next orders of an item, which has a share of the customers; a customer's orders are all in one."""
    with opened() as database:
        rows = database.execute(
            "SELECT number, cents FROM orders WHERE customer % ? = ? AND number > ? ORDER BY number LIMIT ?",
            (items, item, number, most),
        )
        return [Order(*row) for row in rows]


def ship(item: int, fence: int, orders: Sequence[Order], instance: str) -> None:
    """Make parcels of orders, all or none; an order that has one already keeps it."""
    with opened() as database:
        if not database.execute(RAISE, {"item": item, "fence": fence}).rowcount:
            raise Superseded(item)
        database.executemany(
            "INSERT INTO parcels VALUES (?, ?) ON CONFLICT DO NOTHING", [(one.number, instance) for one in orders]
        )


def take(orders: int) -> None:
    """Take so many new orders."""
    with opened() as database:
        (last,) = database.execute("SELECT coalesce(max(number), 0) FROM orders").fetchone()
        new = [(number, number % 97, 100 + number % 900) for number in range(last + 1, last + 1 + orders)]
        database.executemany("INSERT INTO orders VALUES (?, ?, ?)", new)


if __name__ == "__main__":
    take(int(sys.argv[1]) if len(sys.argv) > 1 else 20_000)
