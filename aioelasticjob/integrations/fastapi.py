"""FastAPI: ``FastAPI(lifespan=elastic_job(jobs))`` and ``app.get("/health")(health(jobs))``."""

from aioelasticjob.integrations.starlette import elastic_job, health, liveness, readiness

__all__ = ["elastic_job", "health", "liveness", "readiness"]
