"""Jobs inside a web application: one line for each framework, and its state for the handlers."""

from aioelasticjob.integrations.guest import guest, host, lifespan_state

__all__ = ["guest", "host", "lifespan_state"]
