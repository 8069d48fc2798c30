"""Addresses of the web."""

from __future__ import annotations

from urllib.parse import urlsplit


def is_web_address(text: str) -> bool:
    """Whether a text is an address of ``http`` or ``https`` with a host."""
    try:
        parts = urlsplit(text)
        leads_somewhere = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # an invalid port, or brackets that do not match
        return False
    return leads_somewhere and " " not in text and text.isprintable()
