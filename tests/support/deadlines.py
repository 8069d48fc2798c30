"""A block that is cancelled before its session can end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from anyio import CancelScope

from aioelasticjob.registry.lease import Lease
from aioelasticjob.registry.session import Session


@contextmanager
def deadline(session: Session | Lease, incarnation: int) -> Iterator[CancelScope]:
    """Cancel the block when the session ``incarnation`` can no longer be proven alive."""
    with CancelScope() as scope:
        session.bind(scope, incarnation)
        try:
            yield scope
        finally:
            session.unbind(scope)
