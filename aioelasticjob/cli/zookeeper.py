"""`aioelasticjob zookeeper`: the embedded server as a process, with the options of its own module."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer


def zookeeper(
    host: Annotated[str, typer.Option(help="The address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 picks a free one.")] = 2181,
    data_dir: Annotated[Path | None, typer.Option(help="Where to keep everything; without it, in memory only.")] = None,
    tick_time: Annotated[int, typer.Option(min=1, max=3_600_000, help="In ms; sessions last 2 to 20 ticks.")] = 2000,
    container_check: Annotated[
        int, typer.Option(min=1, max=86_400_000, help="Every so many ms, emptied containers are removed.")
    ] = 60_000,
    max_client_cnxns: Annotated[
        int, typer.Option(metavar="COUNT", help="Connections from one address; 0: any number.")
    ] = 500,
    jute_maxbuffer: Annotated[int, typer.Option(metavar="BYTES", help="The largest request.")] = 1_048_575,
    max_unfinished: Annotated[
        int | None, typer.Option(metavar="BYTES", help="Kept for all unfinished requests together.")
    ] = None,
    sessionless_timeout: Annotated[
        int, typer.Option(metavar="MS", help="A client has so long to ask for a session.")
    ] = 10_000,
    linger: Annotated[
        float | None, typer.Option(min=0.001, help="End so many seconds after the last client; without it, never.")
    ] = None,
    detach: Annotated[
        bool, typer.Option("--detach", help="Return when it listens, and leave it in the background.")
    ] = False,
) -> None:
    """Run an embedded ZooKeeper server until SIGTERM or Ctrl-C."""
    from aioelasticjob.zookeeper.__main__ import main

    sys.argv = ["aioelasticjob zookeeper", f"--host={host}", f"--port={port}", f"--tick-time={tick_time}"]
    sys.argv += [f"--container-check={container_check}"]
    sys.argv += [f"--max-client-cnxns={max_client_cnxns}", f"--jute-maxbuffer={jute_maxbuffer}"]
    sys.argv += [f"--sessionless-timeout={sessionless_timeout}"]
    sys.argv += [] if max_unfinished is None else [f"--max-unfinished={max_unfinished}"]
    sys.argv += [] if data_dir is None else [f"--data-dir={data_dir}"]
    sys.argv += [] if linger is None else [f"--linger={linger:g}"]
    sys.argv += ["--detach"] if detach else []
    raise typer.Exit(main())
