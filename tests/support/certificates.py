"""Certificates for tests, made with the openssl command: authorities, and what they issue."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from aioelasticjob.clock import SystemClock


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate and its key, in PEM files."""

    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True)
class Authority(Certificate):
    """A certificate that issues others."""

    directory: Path

    def issue(self, name: str, *, days: int = 30, names: str = "DNS:localhost,IP:127.0.0.1") -> Certificate:
        """Issue a certificate; with days below 0 it has expired."""
        made = Certificate(self.directory / f"{name}.pem", self.directory / f"{name}.key")
        request, extensions = self.directory / f"{name}.csr", self.directory / f"{name}.ext"
        extensions.write_text(f"subjectAltName={names}\nbasicConstraints=CA:FALSE\n")
        openssl("req", "-new", *_NEW_KEY, made.key, "-subj", f"/CN={name}", "-out", request)
        now = datetime.fromtimestamp(SystemClock().now(), UTC)
        end = now + timedelta(days=days)
        begin = min(now, end - timedelta(days=1))  # openssl refuses to issue what ends before it begins
        settings = self.directory / f"{name}.cnf"
        settings.write_text(_SETTINGS.format(directory=self.directory))
        (self.directory / "issued").touch()
        openssl(
            *("ca", "-batch", "-notext", "-config", settings, "-cert", self.certificate, "-keyfile", self.key),
            *("-startdate", f"{begin:{_TIME}}", "-enddate", f"{end:{_TIME}}", "-in", request),
            *("-extfile", extensions, "-out", made.certificate),
        )
        return made


def authority(directory: Path, name: str) -> Authority:
    """Make a certificate authority with files in ``directory``."""
    directory.mkdir(parents=True, exist_ok=True)
    made = Authority(directory / f"{name}.pem", directory / f"{name}.key", directory)
    openssl(
        *("req", "-x509", *_NEW_KEY, made.key, "-subj", f"/CN={name}", "-days", 30, "-out", made.certificate),
        *("-addext", "keyUsage=critical,keyCertSign,cRLSign"),
    )
    return made


def encrypted(key: Path, password: str) -> Path:
    """Write a copy of a key that is encrypted."""
    made = key.with_suffix(".encrypted.key")
    openssl("pkcs8", "-topk8", "-in", key, "-out", made, "-passout", f"pass:{password}")
    return made


def openssl(*arguments: object) -> None:
    """Run the openssl command."""
    done = subprocess.run(["openssl", *map(str, arguments)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


_TIME = "%Y%m%d%H%M%SZ"
_SETTINGS = """
[ca]
default_ca = tests
[tests]
database = "{directory}/issued"
new_certs_dir = "{directory}"
rand_serial = yes
unique_subject = no
default_md = sha256
policy = any
[any]
commonName = supplied
"""
_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout")
