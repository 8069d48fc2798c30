"""Certificates in PEM files: when they are valid, and what is wrong with a file that cannot be used."""

from __future__ import annotations

import re
import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from aioelasticjob.errors import CertificateExpired, CertificateMissing, CertificateRefused
from aioelasticjob.ground.times import time_text

_CERTIFICATE: Final = re.compile("-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_UTC_TIME: Final = 0x17
_VERSION: Final = 0xA0


def read(file: str, setting: str) -> str:
    """Return the text of a PEM file.

    Raises: CertificateMissing.
    """
    try:
        return Path(file).read_bytes().decode("latin-1")
    except OSError as error:
        raise CertificateMissing(f"{setting}: {file} cannot be read: {error.strerror}", file) from error


def check_validity(file: str, setting: str, now: float) -> datetime:
    """Check that the first certificate of a file is valid at ``now``, in seconds since the epoch; return its end.

    Raises: CertificateMissing, CertificateRefused, CertificateExpired.
    """
    found = _CERTIFICATE.search(read(file, setting))
    try:
        if found is None:
            raise ValueError("no certificate")
        begin, end = validity(ssl.PEM_cert_to_DER_cert(found[0]))
    except (ValueError, IndexError) as error:
        raise CertificateRefused(f"{setting}: {file} holds no certificate in PEM form", file) from error
    if now > end.timestamp():
        raise CertificateExpired(f"{setting}: the certificate in {file} expired on {time_text(end)}", file)
    if now < begin.timestamp():
        reason = f"is not valid before {time_text(begin)}: check this host's clock"
        raise CertificateRefused(f"{setting}: the certificate in {file} {reason}", file)
    return end


def validity(certificate: bytes) -> tuple[datetime, datetime]:
    """Return from when and until when a certificate in DER form is valid (RFC 5280, section 4.1).

    Raises: ValueError or IndexError for anything but a certificate.
    """
    at, _ = _inside(certificate, 0)  # Certificate
    at, _ = _inside(certificate, at)  # TBSCertificate
    if certificate[at] == _VERSION:
        at = _after(certificate, at)
    for _ in ("serial number", "signature", "issuer"):
        at = _after(certificate, at)
    begin, _ = _inside(certificate, at)  # Validity
    end = _after(certificate, begin)
    return _time(certificate, begin), _time(certificate, end)


def _inside(der: bytes, at: int) -> tuple[int, int]:
    """Return where the contents of the element at ``at`` begin and end."""
    length = der[at + 1]
    begin = at + 2
    if length & 0x80:
        count = length & 0x7F
        length = int.from_bytes(der[begin : begin + count], "big")
        begin = begin + count
    return begin, begin + length


def _after(der: bytes, at: int) -> int:
    """Return where the element at ``at`` ends, and the next one begins."""
    _, end = _inside(der, at)
    return end


def _time(der: bytes, at: int) -> datetime:
    begin, end = _inside(der, at)
    text = der[begin:end].decode("ascii")
    if der[at] == _UTC_TIME:  # two digits for the year: 50 to 99 are of the last century
        text = ("19" if text >= "50" else "20") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)
