"""The job: every item indexes its share of the files below a directory.  Runs against any ZooKeeper.

Its settings come from the environment:

    AIOELASTICJOB_REGISTRY   where to meet the other processes (zk://127.0.0.1:2181/index-files)
    INDEX_DIRECTORY          what to index (the running Python's standard library)
    INDEX_EXCLUDE            names of directories to leave out, parted by ':'
    INDEX_DATABASE           the SQLite database (index.db)
    INDEX_ITEMS              into how many shares the files are split (6)
    INDEX_FILES_PER_RUN      where a run ends, to be continued at the next fire (no limit)
"""

from __future__ import annotations

import os
import sysconfig
import time
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from aioelasticjob import ElasticJob, ItemContext
from aioelasticjob.demo.database import open_index
from aioelasticjob.demo.files import Facts, examine, share, stamp, walk

REGISTRY = os.environ.get("AIOELASTICJOB_REGISTRY", "zk://127.0.0.1:2181/index-files")
DIRECTORY = os.environ.get("INDEX_DIRECTORY") or sysconfig.get_path("stdlib")
EXCLUDED = tuple(filter(None, os.environ.get("INDEX_EXCLUDE", "").split(":")))
DATABASE = os.environ.get("INDEX_DATABASE", "index.db")
ITEMS = int(os.environ.get("INDEX_ITEMS", "6"))
FILES_PER_RUN = int(os.environ.get("INDEX_FILES_PER_RUN", "0")) or None
BATCH = 50
"""Files in a transaction, unless ``BATCH_SECONDS`` are over before."""
BATCH_SECONDS = 0.25
"""Seconds after which a transaction is written, with the files that were read by then."""

app = ElasticJob(REGISTRY, session_timeout=5)


@app.job(cron="0/2 * * * * ?", sharding_total_count=ITEMS, misfire=False, failover=True)
def index_files(context: ItemContext) -> None:
    """Bring the database to what this item's files are now; what an earlier run has written is not done again."""
    item = context.item
    shares = context.sharding_total_count
    files = 0
    with open_index(DATABASE) as index:
        there = {path for path in walk(DIRECTORY, EXCLUDED) if share(path, shares) == item}
        known = {path: facts for path, facts in index.files().items() if share(path, shares) == item}
        gone = known.keys() - there
        if gone:
            index.store(item, context.fence, {}, gone)
        new = islice(_examined(sorted(there), known), FILES_PER_RUN)
        for batch in _batches(new):
            index.store(item, context.fence, batch)
            files += len(batch)
    context.log.info("indexed", extra={"files": files, "of": len(there)})


def _examined(paths: Iterable[str], known: Mapping[str, Facts]) -> Iterator[tuple[str, Facts]]:
    """Read the files that are new, have changed, or could not be read the last time."""
    for path in paths:
        full = os.path.join(DIRECTORY, path)
        before = known.get(path)
        if before is not None and before.problem is None:
            is_unchanged = stamp(full) == (before.size, before.changed)
            if is_unchanged:
                continue
        facts = examine(full)
        if facts is not None:  # None: gone since; the next run forgets it
            yield path, facts


def _batches(found: Iterable[tuple[str, Facts]]) -> Iterator[dict[str, Facts]]:
    batch: dict[str, Facts] = {}
    begun = time.monotonic()
    for path, facts in found:
        batch[path] = facts
        if len(batch) >= BATCH or time.monotonic() - begun >= BATCH_SECONDS:
            yield batch
            batch = {}
            begun = time.monotonic()
    if batch:
        yield batch
