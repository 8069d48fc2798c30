"""Running jobs inside a web application: one line of code for each framework; handlers can use its state."""

from aioelasticjob.integrations.guest import guest, host, lifespan_state

__all__ = ["guest", "host", "lifespan_state"]
