"""The command line: `aioelasticjob`."""

from aioelasticjob.cli.application import application, main

__all__ = ["application", "main"]
