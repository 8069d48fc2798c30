"""The job of `aioelasticjob demo`, to be run as ordinary processes: see README.md."""

from aioelasticjob.demo.index_files import app

__all__ = ["app"]
