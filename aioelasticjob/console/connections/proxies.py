"""Reverse proxies that are trusted: they say from which address a request comes, by which scheme, and who sends it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from aioelasticjob.errors import InvalidSetting

USER: Final = "aioelasticjob.console.user"
"""Key of a request's scope: the name of the user whom a trusted proxy has signed in."""


@dataclass(frozen=True, slots=True)
class TrustedProxies:
    """The networks whose proxies are believed; nobody else's headers are."""

    networks: tuple[IPv4Network | IPv6Network, ...] = ()
    user_header: str = ""
    """The header in which they name the user; empty if they sign nobody in."""

    @classmethod
    def parse(cls, addresses: Sequence[str], user_header: str = "") -> TrustedProxies:
        """Read addresses and networks.

        Raises:
            InvalidSetting: that is no address or network, or nobody is named who may sign users in.
        """
        if user_header and not addresses:
            raise InvalidSetting("user_header", user_header, "name the proxies that may send it with --trusted-proxy")
        return cls(tuple(map(_network, addresses)), user_header)

    def trusts(self, address: str) -> bool:
        """Whether an address is that of a trusted proxy."""
        try:
            found = ip_address(_plain(address))
        except ValueError:
            return False
        return any(found in network for network in self.networks)

    def client_of(self, peer: str, forwarded: str) -> str:
        """Return the address that a request comes from: the last one in ``forwarded`` that is no trusted proxy's.

        What stands left of it may have been written by anybody.
        """
        client = _plain(peer)
        for part in reversed(forwarded.split(",")):
            address = _plain(part)
            if not self.trusts(client) or not _is_address(address):
                break
            client = address
        return client


class ProxyHeaders:
    """A layer of the console that believes the headers of trusted proxies."""

    def __init__(self, app: ASGIApp, proxies: TrustedProxies) -> None:
        self._app = app
        self._proxies = proxies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Put the real address, scheme and user into the scope of a request."""
        client = scope.get("client")
        proxies = self._proxies
        if scope["type"] == "http" and client and proxies.trusts(client[0]):
            headers = Headers(scope=scope)
            forwarded = ",".join(headers.getlist("x-forwarded-for"))
            address = proxies.client_of(client[0], forwarded)
            schemes = ",".join(headers.getlist("x-forwarded-proto")).split(",")
            scheme = schemes[-1].strip().lower()  # that of the nearest proxy
            names = headers.getlist(proxies.user_header) if proxies.user_header else []
            scope = {
                **scope,
                "client": (address, 0),
                "scheme": scheme if scheme in ("http", "https") else scope["scheme"],
                USER: names[0] if len(names) == 1 else "",  # of two, one may come from the browser
            }
        await self._app(scope, receive, send)


def _network(text: str) -> IPv4Network | IPv6Network:
    try:
        network = ip_network(text, strict=False)
    except ValueError:
        raise InvalidSetting("trusted_proxy", text, "an address or a network such as 10.0.0.0/24") from None
    if not network.prefixlen:
        raise InvalidSetting("trusted_proxy", text, "not everybody is a proxy: name its address or network")
    return network


def _plain(text: str) -> str:
    """Return an address without brackets and port, and IPv4 as such."""
    text = text.strip()
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ip_address(text)
    except ValueError:
        return text
    if isinstance(address, IPv6Address):
        return str(address.ipv4_mapped or address)
    return text


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
