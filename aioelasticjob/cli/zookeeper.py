"""`aioelasticjob zookeeper`: the embedded server as a process, with the options of its own module."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from aioelasticjob.cli.seconds import seconds_from

COMMAND = "aioelasticjob zookeeper"

TlsPort: TypeAlias = Annotated[int | None, typer.Option(min=0, max=65535, help="A second port, with TLS.")]
TlsCert: TypeAlias = Annotated[Path | None, typer.Option(help="The server's certificate (PEM).")]
TlsKey: TypeAlias = Annotated[Path | None, typer.Option(help="Its private key, unless it is in the same file.")]
TlsClientCa: TypeAlias = Annotated[
    Path | None, typer.Option(help="Clients need a certificate that this CA has issued.")
]
SaslUsers: TypeAlias = Annotated[Path | None, typer.Option(help="Lines of user:password, for SASL DIGEST-MD5.")]
MaxConnections: TypeAlias = Annotated[
    int, typer.Option(metavar="COUNT", help="Connections from one address; 0: any number.")
]
MaxUnfinished: TypeAlias = Annotated[
    int | None, typer.Option(metavar="BYTES", help="Memory for all unfinished requests together.")
]
SessionlessTimeout: TypeAlias = Annotated[
    int, typer.Option(metavar="MS", help="How long a client may take to ask for a session.")
]
Linger: TypeAlias = Annotated[
    float | None,
    typer.Option(
        parser=seconds_from(0.001),
        metavar="DURATION",
        help="End so long after the last client has gone, such as 90s or 5m; without it, never.",
    ),
]


def zookeeper(
    host: Annotated[str, typer.Option(help="The address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port to listen at; 0 picks a free one.")] = 2181,
    data_dir: Annotated[Path | None, typer.Option(help="Where to keep everything; without it, in memory only.")] = None,
    tick_time: Annotated[
        int, typer.Option(min=1, max=3_600_000, help="The tick in milliseconds; sessions last 2 to 20 ticks.")
    ] = 2000,
    container_check: Annotated[
        int, typer.Option(min=1, max=86_400_000, help="Milliseconds between two removals of emptied containers.")
    ] = 60_000,
    max_client_cnxns: MaxConnections = 500,
    jute_maxbuffer: Annotated[int, typer.Option(metavar="BYTES", help="The size of the largest request.")] = 1_048_575,
    max_unfinished: MaxUnfinished = None,
    sessionless_timeout: SessionlessTimeout = 10_000,
    tls_port: TlsPort = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_client_ca: TlsClientCa = None,
    sasl_users: SaslUsers = None,
    linger: Linger = None,
    detach: Annotated[
        bool, typer.Option("--detach", help="Return when it listens, and leave it in the background.")
    ] = False,
) -> None:
    """Run an embedded ZooKeeper server until SIGTERM or Ctrl-C."""
    from aioelasticjob.zookeeper.__main__ import main

    sys.argv = [COMMAND, f"--host={host}", f"--port={port}", f"--tick-time={tick_time}"]
    sys.argv += [f"--container-check={container_check}"]
    sys.argv += [f"--max-client-cnxns={max_client_cnxns}", f"--jute-maxbuffer={jute_maxbuffer}"]
    sys.argv += [f"--sessionless-timeout={sessionless_timeout}"]
    sys.argv += [] if max_unfinished is None else [f"--max-unfinished={max_unfinished}"]
    optional = {
        **{"data-dir": data_dir, "tls-port": tls_port, "tls-cert": tls_cert, "tls-key": tls_key},
        **{"tls-client-ca": tls_client_ca, "sasl-users": sasl_users},
    }
    sys.argv += [f"--{name}={value}" for name, value in optional.items() if value is not None]
    sys.argv += [] if linger is None else [f"--linger={linger:g}"]
    sys.argv += ["--detach"] if detach else []
    raise typer.Exit(main(COMMAND))
