"""Schedules of jobs as values: from the settings that decide them to their moments, for everybody who asks."""

from aioelasticjob.schedules.schedule import Schedule, schedule_of
from aioelasticjob.schedules.settings import ScheduleSettings

__all__ = ["Schedule", "ScheduleSettings", "schedule_of"]
