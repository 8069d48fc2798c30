"""What check_quartz.py is pointed at: ``check_quartz.py dev.jsonl tests.quartz.subject:quartz_times --skip quirk_``."""

from __future__ import annotations

from functools import partial

from aioelasticjob.cron import fire_times

quartz_times = partial(fire_times, dst="quartz")
