"""TLS before the server's protocol: certificates read anew when their files change, and bytes through OpenSSL.

asyncio's own TLS ends a failed handshake without the alert that tells the client what is wrong, and knows nothing of
a connection before its handshake has ended, so the limits on connections would not hold for it.
"""

import asyncio
import ssl
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from aioelasticjob.zookeeper.repeated_warning import RepeatedWarning

DEFAULT_TLS_PORT = 2281
_CHUNK = 256 * 1024


class TlsError(Exception):
    """A certificate or key cannot be used; the text names the file."""


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """The port for encrypted connections, and the server's PEM files; clients need a certificate of ``client_ca``."""

    certificate: Path
    key: Path | None = None  # in the certificate's file
    client_ca: Path | None = None  # clients need no certificate
    port: int = DEFAULT_TLS_PORT


class Certificates:
    """The SSL context that belongs to the present files."""

    def __init__(self, settings: TlsSettings) -> None:
        files = (settings.certificate, settings.key, settings.client_ca)
        self._files = [file for file in files if file is not None]
        self._settings = settings
        self._trouble = RepeatedWarning("the certificates can be read again")
        self._state = self._states()
        self._context = context(settings)

    def current(self) -> ssl.SSLContext:
        """Return the context; while new files cannot be used, the one of the files before."""
        state = self._states()
        if state != self._state:
            try:
                self._context = context(self._settings)
                self._state = state
            except TlsError as error:
                self._trouble.happened(f"{error}; clients are served with the certificate read before")
        return self._context

    def stop(self) -> None:
        """Warn no more."""
        self._trouble.stop()

    def _states(self) -> list[tuple[int, int, int] | None]:
        found: list[tuple[int, int, int] | None] = []
        for file in self._files:
            try:
                stat = file.stat()
                found.append((stat.st_mtime_ns, stat.st_ino, stat.st_size))
            except OSError:
                found.append(None)
        return found


def context(settings: TlsSettings) -> ssl.SSLContext:
    """Read the files.

    Raises: TlsError.
    """
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    made.options |= ssl.OP_NO_RENEGOTIATION
    certificate = settings.certificate
    key = settings.key or settings.certificate
    for file in filter(None, (certificate, key, settings.client_ca)):
        try:
            file.open("rb").close()
        except OSError as error:
            raise TlsError(f"{file} cannot be read: {error.strerror}") from error
    try:
        made.load_cert_chain(certificate, key, "")  # without any password OpenSSL would ask on the terminal
    except (ssl.SSLError, OSError) as error:
        raise TlsError(f"{certificate} and {key} are no certificate with its key in PEM form: {error}") from error
    if settings.client_ca is not None:
        made.verify_mode = ssl.CERT_REQUIRED
        try:
            made.load_verify_locations(settings.client_ca)
        except (ssl.SSLError, OSError) as error:
            raise TlsError(f"{settings.client_ca} holds no certificate in PEM form: {error}") from error
    return made


class EncryptedTransport(asyncio.Transport, asyncio.Protocol):
    """The protocol of a TCP connection, and the transport of the protocol inside its TLS connection."""

    def __init__(self, inner: asyncio.Protocol, context: ssl.SSLContext, failed: RepeatedWarning) -> None:
        super().__init__()
        self._inner = inner
        self._failed = failed
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._shaken = False  # whether the handshake is over
        self._paused = False
        self._tcp: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin: the limits on connections count this one from now on."""
        self._tcp = cast("asyncio.Transport", transport)
        self._inner.connection_made(self)

    def data_received(self, data: bytes) -> None:
        """Decrypt."""
        self._incoming.write(data)
        self._advance()

    def eof_received(self) -> bool | None:
        """Tell of the end of the client's bytes."""
        return self._inner.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell of the end."""
        self._inner.connection_lost(exc)

    def pause_writing(self) -> None:
        """Tell that the client does not read."""
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        """Tell that it reads again."""
        self._inner.resume_writing()

    def write(self, data: Any) -> None:
        """Encrypt."""
        rest = memoryview(data)
        try:
            while rest:  # OpenSSL takes one record at a time
                rest = rest[self._tls.write(rest) :]
        except ssl.SSLError:  # the client has ended its side
            self._tcp.abort()
        self._send()

    def close(self) -> None:
        """Say goodbye and end the connection when everything is sent."""
        with suppress(ssl.SSLError):  # the client has not said goodbye yet, and need not
            self._tls.unwrap()
        self._send()
        self._tcp.close()

    def abort(self) -> None:
        """End the connection at once."""
        self._tcp.abort()

    def is_closing(self) -> bool:
        """Return whether the connection ends."""
        return self._tcp.is_closing()

    def get_write_buffer_size(self) -> int:
        """Return how many bytes are not sent yet."""
        return self._tcp.get_write_buffer_size()

    def pause_reading(self) -> None:
        """Deliver no more."""
        self._paused = True
        self._tcp.pause_reading()

    def resume_reading(self) -> None:
        """Deliver what is decrypted, and go on."""
        self._paused = False
        self._tcp.resume_reading()
        asyncio.get_running_loop().call_soon(self._advance)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return what is known of the TCP connection."""
        return self._tcp.get_extra_info(name, default)

    def _advance(self) -> None:
        """Take the next step of the handshake, or deliver what has arrived."""
        try:
            if not self._shaken:
                self._tls.do_handshake()
                self._shaken = True
            while not self._paused and not self._tcp.is_closing():
                data = self._tls.read(_CHUNK)
                if not data:
                    raise ssl.SSLZeroReturnError
                self._inner.data_received(data)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self._inner.eof_received()
        except ssl.SSLError as error:
            self._fail(error)
        self._send()

    def _fail(self, error: ssl.SSLError) -> None:
        peer, *_ = self._tcp.get_extra_info("peername") or ("?",)
        reason = getattr(error, "verify_message", "")
        if not reason:
            reason = (error.reason or str(error)).lower().replace("_", " ")
        self._failed.happened(f"no TLS connection with {peer}: {reason}")
        self._send()  # the alert that tells the client why
        self._tcp.close()

    def _send(self) -> None:
        if self._outgoing.pending and not self._tcp.is_closing():
            self._tcp.write(self._outgoing.read())
