"""TLS: what a person sets about it, the SSL context that follows from it, and why a connection was refused."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from os import PathLike, fspath
from typing import Final

from aioelasticjob.config.mistakes import unknown_setting
from aioelasticjob.errors import (
    CertificateExpired,
    CertificateMissing,
    CertificateRefused,
    InvalidSetting,
    TlsFailed,
)
from aioelasticjob.registry.certificates import check_validity, read
from aioelasticjob.registry.secrets import is_path, secret

VERSIONS: Final = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
SYSTEM: Final = "this system's trusted certificates"
# codes of X509_verify_cert (OpenSSL)
_NOT_YET_VALID = 9
_EXPIRED = 10
_UNKNOWN_ISSUER: Final = frozenset({2, 18, 19, 20, 21})
_OTHER_NAME: Final = frozenset({62, 64})


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """How connections to a registry ``zks://…`` are encrypted.  Files are in PEM form and are read at each attempt."""

    ca: str | None = None
    """File of the certificates that the server's certificate is verified with; the system's if it is None."""
    certificate: str | None = None
    """File of our certificate, for a server that asks for one, followed by the CAs between it and the root."""
    key: str | None = None
    """File of the certificate's private key; the certificate's own file if it is None."""
    key_password: str | None = field(default=None, repr=False)
    key_password_file: str | None = None
    server_name: str | None = None
    """The name in the server's certificate, if it is another one than that in the address."""
    minimum_version: str = "1.2"

    @classmethod
    def of(cls, given: object) -> TlsSettings | None:
        """Return what is given, or settings made from a mapping.

        Raises: InvalidSetting, which names the setting, its value and what would be right.
        """
        if given is None or isinstance(given, TlsSettings):
            return given
        if not isinstance(given, Mapping):
            raise InvalidSetting("tls", given, f"a mapping of {', '.join(_NAMES)}")
        for name, value in given.items():
            if name not in _NAMES:
                unknown = unknown_setting(str(name), "…", _NAMES)
                raise InvalidSetting(f"tls.{name}", "…", unknown.expected)
            if value is not None and not isinstance(value, str | PathLike | float):
                shown = "…" if name == "key_password" else value
                raise InvalidSetting(f"tls.{name}", shown, "a text")
        found = {name: _text(value) for name, value in given.items() if value is not None}
        return cls(**found)

    def __post_init__(self) -> None:
        if self.minimum_version not in VERSIONS:
            raise InvalidSetting("tls.minimum_version", self.minimum_version, f"one of {', '.join(VERSIONS)}")
        for name in ("ca", "certificate", "key", "key_password_file"):
            file = getattr(self, name)
            if file and not is_path(file):
                raise InvalidSetting(f"tls.{name}", file, "the path of a file")
        if self.certificate is None and self.key is not None:
            raise InvalidSetting("tls.key", self.key, "set tls.certificate too: the key belongs to a certificate")
        if self.key_password is not None and self.key_password_file is not None:
            raise InvalidSetting("tls.key_password_file", self.key_password_file, "leave it out, or tls.key_password")


_NAMES: Final = tuple(one.name for one in fields(TlsSettings))


def context(settings: TlsSettings, now: float) -> ssl.SSLContext:
    """Read all files and return the context of one attempt to connect; ``now`` is in seconds since the epoch.

    Raises: CertificateMissing, CertificateExpired, CertificateRefused, InvalidSetting, each with the file's name.
    """
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # it verifies certificate and name
    made.minimum_version = VERSIONS[settings.minimum_version]
    if settings.ca is None:
        made.load_default_certs()
    else:
        read(settings.ca, "tls.ca")
        try:
            made.load_verify_locations(settings.ca)
        except ssl.SSLError as error:
            raise CertificateRefused(f"tls.ca: {settings.ca} holds no certificate in PEM form", settings.ca) from error
    if settings.certificate is not None:
        check_validity(settings.certificate, "tls.certificate", now)
        _load_own(made, settings.certificate, settings)
    return made


def explained(error: Exception | None, settings: TlsSettings, server: str) -> TlsFailed | None:
    """Return why a server and this client do not agree on an encrypted connection; None for another kind of error."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return _unverified(error, settings.ca, server)
    if not isinstance(error, ssl.SSLError):
        return None
    reason = (error.reason or str(error)).upper()
    own = settings.certificate
    if "WRONG_VERSION_NUMBER" in reason:
        return unencrypted(server)
    if "PROTOCOL_VERSION" in reason:
        return TlsFailed(
            f"{server} speaks no TLS {settings.minimum_version} or newer: set up a newer version there, "
            "or lower tls.minimum_version"
        )
    if "CERTIFICATE_EXPIRED" in reason and own is not None:
        return CertificateExpired(f"{server} refuses our certificate in {own}: it has expired", own)
    if any(word in reason for word in ("CERTIFICATE", "UNKNOWN_CA", "HANDSHAKE_FAILURE")):
        return _not_accepted(settings, server)
    return TlsFailed(f"no TLS connection to {server}: {reason.lower().replace('_', ' ')}")


def unanswered(settings: TlsSettings, server: str) -> TlsFailed:
    """Return the error for a server that ended the connection right after the TLS handshake.

    Many servers verify the client's certificate only then, and some close the connection without saying why.
    """
    if (own := settings.certificate) is None:
        reason = "it may ask for a certificate of ours: set tls.certificate and tls.key"
        return CertificateMissing(f"{server} closed the connection after the TLS handshake: {reason}")
    reason = f"it may not trust our certificate in {own}"
    return CertificateRefused(f"{server} closed the connection after the TLS handshake: {reason}", own)


def unencrypted(server: str) -> TlsFailed:
    """Return the error for a server that does not take part in a TLS handshake."""
    return TlsFailed(f"{server} ended the TLS handshake: name its port for TLS, or write zk://…")


def encrypted(server: str) -> TlsFailed:
    """Return the error for a server that answers to an unencrypted connection with TLS."""
    return TlsFailed(f"{server} takes encrypted connections only: write zks://…, or name its port without TLS")


def _not_accepted(settings: TlsSettings, server: str) -> TlsFailed:
    if (own := settings.certificate) is None:
        reason = "set tls.certificate and tls.key"
        return CertificateMissing(
            f"{server} does not accept this TLS connection without a certificate of ours: {reason}"
        )
    return CertificateRefused(f"{server} does not accept our certificate in {own}", own)


def _unverified(error: ssl.SSLCertVerificationError, ca: str | None, server: str) -> TlsFailed:
    trusted = SYSTEM if ca is None else ca
    code = error.verify_code
    if code == _EXPIRED:
        return CertificateExpired(f"the certificate of {server} has expired, or that of its CA in {trusted}", ca)
    if code in _UNKNOWN_ISSUER:
        return CertificateRefused(f"the certificate of {server} was not issued by a CA in {trusted}: set tls.ca", ca)
    if code in _OTHER_NAME:
        reason = f"has another name ({error.verify_message}): set tls.server_name, or correct the address"
        return CertificateRefused(f"the certificate of {server} {reason}", ca)
    if code == _NOT_YET_VALID:
        return CertificateRefused(f"the certificate of {server} is not valid yet: check this host's clock", ca)
    return CertificateRefused(f"the certificate of {server}, verified with {trusted}: {error.verify_message}", ca)


def _load_own(made: ssl.SSLContext, certificate: str, settings: TlsSettings) -> None:
    key = settings.key or certificate
    encrypted = "ENCRYPTED" in read(key, "tls.key")
    password = secret("tls.key_password", settings.key_password, settings.key_password_file)
    if encrypted and not password:
        raise CertificateRefused(f"tls.key: the key in {key} is encrypted: set tls.key_password_file", key)
    try:
        made.load_cert_chain(certificate, key, password or "")  # without any password OpenSSL would ask on the terminal
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise CertificateRefused(f"tls.key: the key in {key} does not belong to {certificate}", key) from None
        why = "cannot be decrypted: check tls.key_password" if encrypted else "is no private key in PEM form"
        raise CertificateRefused(f"tls.key: the key in {key} {why}", key) from None
    except OSError as error:  # a file was removed meanwhile
        raise CertificateMissing(f"tls.key: {certificate} and {key} cannot be read: {error.strerror}", key) from error


def _text(value: object) -> str:
    return fspath(value) if isinstance(value, PathLike) else str(value)
