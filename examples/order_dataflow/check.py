"""Compares parcels with orders: exit code 0 if each order became exactly one parcel."""

import sys

from shop import opened

with opened() as database:

    def number(question: str) -> int:
        """Return the answer to a question for one number."""
        return int(database.execute(question).fetchone()[0])

    orders = number("SELECT count(*) FROM orders")
    missing = number("SELECT count(*) FROM orders WHERE number NOT IN (SELECT number FROM parcels)")
    extra = number("SELECT count(*) FROM parcels WHERE number NOT IN (SELECT number FROM orders)")
    by_instance = database.execute("SELECT instance, count(*) FROM parcels GROUP BY instance").fetchall()
for instance, parcels in by_instance:
    print(f"{parcels:>9,} parcels by {instance}")
print(f"{orders:>9,} orders, {missing:,} without a parcel, {extra:,} parcels without an order")
sys.exit(1 if missing or extra else 0)
