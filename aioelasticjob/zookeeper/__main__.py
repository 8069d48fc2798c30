"""`python -m aioelasticjob.zookeeper`: one server as a process."""

import argparse
import asyncio
import errno
import os
import stat
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from aioelasticjob.host.signals import end_process_1_on_signals, stopping_signals
from aioelasticjob.zookeeper.connection import MAX_FRAME
from aioelasticjob.zookeeper.lock import LOG, LockHeld, announce, locked
from aioelasticjob.zookeeper.port_holder import who_listens
from aioelasticjob.zookeeper.sasl_users import UsersError, UsersFile
from aioelasticjob.zookeeper.server import Server, serve
from aioelasticjob.zookeeper.settings import MAX_CLIENT_CONNECTIONS, MAX_UNFINISHED, MIN_MAX_FRAME, Settings
from aioelasticjob.zookeeper.store import StoreError, prepare
from aioelasticjob.zookeeper.tls import TlsError, TlsSettings

LOOKS = 4
"""How often per time to linger, and at least every second, the server looks whether anybody is there."""


def _arguments(command: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(command, description="An embedded ZooKeeper server.")
    option = parser.add_argument
    option("--host", default="127.0.0.1", help="the address to listen at (default: %(default)s)")
    option("--port", type=_number(0, 65535), default=2181, metavar="PORT", help="0: a free one (default: %(default)s)")
    option("--data-dir", type=_path, metavar="DIR", help="where to keep everything; without it, in memory only")
    option("--tick-time", type=_number(1, 3_600_000), default=2000, metavar="MS", help="sessions last 2 to 20 ticks")
    option(
        "--container-check",
        type=_number(1, 86_400_000),
        default=60_000,
        metavar="MS",
        help="time between looks for empty containers and outlived nodes",
    )
    _add_limits(option)
    _add_access(option)
    option("--linger", type=_seconds, metavar="SECONDS", help="end so long after the last client; without it, never")
    option("--detach", action="store_true", help="return when the server listens, and leave it in the background")
    option("--lock", type=int, help=argparse.SUPPRESS)  # inherited: the descriptor of the data directory's lock
    return _checked(parser, parser.parse_args())


def _checked(parser: argparse.ArgumentParser, given: argparse.Namespace) -> argparse.Namespace:
    """Return the arguments, with room for at least one unfinished request, or end the process."""
    if (given.tls_port is None) != (given.tls_cert is None) or (given.tls_port is None and given.tls_client_ca):
        parser.error("give --tls-port and --tls-cert together; --tls-key and --tls-client-ca go with them")
    if given.max_unfinished is None:
        given.max_unfinished = max(MAX_UNFINISHED, given.jute_maxbuffer)
    elif given.max_unfinished < given.jute_maxbuffer:
        parser.error(
            f"argument --max-unfinished: {given.max_unfinished} is less than one request may take,"
            f" --jute-maxbuffer {given.jute_maxbuffer}"
        )
    return given


def _add_limits(option: Callable[..., argparse.Action]) -> None:
    option(
        "--max-client-cnxns",
        type=_number(0, 1_000_000),
        default=MAX_CLIENT_CONNECTIONS,
        metavar="COUNT",
        help="connections from one address, ZooKeeper's maxClientCnxns; 0: any number (default: %(default)s)",
    )
    option(
        "--jute-maxbuffer",
        type=_number(MIN_MAX_FRAME, 1 << 30),
        default=MAX_FRAME,
        metavar="BYTES",
        help="the largest request, ZooKeeper's jute.maxbuffer (default: %(default)s)",
    )
    option(
        "--max-unfinished",
        type=_number(MIN_MAX_FRAME, 1 << 40),
        metavar="BYTES",
        help=f"kept for all requests that are not whole yet (default: {MAX_UNFINISHED}, or the largest request)",
    )
    option(
        "--sessionless-timeout",
        type=_number(1, 3_600_000),
        default=10_000,
        metavar="MS",
        help="time for the connect request, ZooKeeper's nio.sessionlessCnxnTimeout (default: %(default)s)",
    )


def _add_access(option: Callable[..., argparse.Action]) -> None:
    option("--tls-port", type=_number(0, 65535), metavar="PORT", help="a second port, with TLS; 0: a free one")
    option("--tls-cert", type=_path, metavar="FILE", help="the server's certificate (PEM)")
    option("--tls-key", type=_path, metavar="FILE", help="its private key; without it, in the certificate's file")
    option("--tls-client-ca", type=_path, metavar="FILE", help="clients need a certificate issued by this one (PEM)")
    option("--sasl-users", type=_path, metavar="FILE", help="lines of user:password, for SASL DIGEST-MD5")


def _tls(given: argparse.Namespace) -> TlsSettings | None:
    if given.tls_port is None:
        return None
    return TlsSettings(given.tls_cert, given.tls_key, given.tls_client_ca, given.tls_port)


def _settings(given: argparse.Namespace) -> Settings:
    return Settings(
        tick_time=given.tick_time,
        container_check_interval=given.container_check,
        max_client_connections=given.max_client_cnxns,
        max_frame=given.jute_maxbuffer,
        max_unfinished=given.max_unfinished,
        sessionless_timeout=given.sessionless_timeout,
        sasl_users=None if given.sasl_users is None else UsersFile(given.sasl_users),
    )


def _number(least: int, most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        number = int(text)
        if not least <= number <= most:
            raise argparse.ArgumentTypeError(f"{number} is not between {least} and {most}")
        return number

    return read


def _path(text: str) -> Path:
    return Path(text).resolve()


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds <= 31_536_000:
        raise argparse.ArgumentTypeError(f"{text} is not above 0 and at most a year")
    return seconds


async def _run(arguments: argparse.Namespace, listening: Callable[[Server], None]) -> None:
    settings = _settings(arguments)
    data_dir = arguments.data_dir
    async with serve(
        arguments.host, arguments.port, data_dir=data_dir, settings=settings, tls=_tls(arguments)
    ) as server:
        for number in stopping_signals():
            server.loop.add_signal_handler(number, server.request_stop)
        if arguments.linger is not None:
            linger(server, arguments.linger)
        encrypted = "" if server.tls_address is None else f", with TLS on {server.tls_address}"
        print(f"zookeeper listening on {server.address}{encrypted}", flush=True)
        listening(server)
        await server.ended


def linger(server: Server, seconds: float) -> None:
    """Stop the server once no client has been connected for so many seconds.

    A session whose client may still reconnect counts as a client, and so does one that came and went between two looks.
    """
    every = min(1.0, seconds / LOOKS)

    def look(heard: int, lonely: float) -> None:
        now = server.loop.time()
        received = server.statistics.received
        if server.clients or server.processor.sessions.timeouts or received != heard:
            lonely = now
        if now - lonely < seconds:
            server.loop.call_later(every, look, received, lonely)
        else:
            print(f"nobody has been here for {seconds:g} s", flush=True)
            server.request_stop()

    look(-1, server.loop.time())


def main(command: str = "python -m aioelasticjob.zookeeper") -> int:
    """Serve until SIGTERM, SIGINT or SIGHUP, or until no client is left; ``command`` is what was typed."""
    end_process_1_on_signals()
    arguments = _arguments(command)
    with ExitStack() as stack:
        try:
            lock = _lock(arguments, stack)
            served = _detach() if arguments.detach else None

            def listening(server: Server) -> None:
                if lock is not None:
                    announce(lock, server.address, arguments.linger)
                if served is not None:
                    _let_go_of_output(arguments.data_dir)
                    os.write(served, b".")
                    os.close(served)

            asyncio.run(_run(arguments, listening))
        except OSError as error:
            ports = f"{arguments.port}"
            if arguments.tls_port is not None:
                ports += f" and {arguments.tls_port}"
            reason = _reason(error, arguments.host, arguments.port)
            print(f"error: cannot listen on {arguments.host}:{ports}: {reason}", file=sys.stderr)
        except (LockHeld, StoreError, TlsError, UsersError) as error:
            print(f"error: {error}", file=sys.stderr)
        else:
            return 0
    return 1


def _lock(arguments: argparse.Namespace, stack: ExitStack) -> int | None:
    """Return the descriptor of the data directory's lock: the one inherited, or one of our own.

    Raises: LockHeld; StoreError if the directory cannot be used.
    """
    if arguments.lock is not None or arguments.data_dir is None or sys.platform == "win32":
        return arguments.lock  # type: ignore[no-any-return]
    prepare(arguments.data_dir)
    try:
        return stack.enter_context(locked(arguments.data_dir))
    except OSError as error:
        reason = error.strerror or error
        text = f"the data directory {arguments.data_dir} cannot be written ({reason}): choose another --data-dir"
        raise StoreError(text) from error


def _detach() -> int:
    """Go on in a child process, and return the pipe on which it says that it listens; this process ends then.

    So the process that started us need not wait for the server, and learns from our exit code whether it has started.
    """
    ready, served = os.pipe()
    if os.fork():
        os.close(served)
        os._exit(0 if os.read(ready, 1) else 1)
    os.close(ready)
    os.setsid()
    return served


def _let_go_of_output(data_dir: Path | None) -> None:
    """Write from now on to the log of the data directory, or nowhere, so that a reader of our output sees its end.

    Otherwise a shell would wait for ever in ``x=$(… --detach)``.  If our output goes to a file, it stays so.
    """
    log = os.devnull if data_dir is None else str(data_dir / LOG)
    for descriptor in (1, 2):
        try:
            if stat.S_ISREG(os.fstat(descriptor).st_mode):
                continue
        except OSError:  # it is closed
            pass
        opened = _opened(log)
        if opened != descriptor:
            os.dup2(opened, descriptor)
            os.close(opened)


def _opened(log: str) -> int:
    try:
        return os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    except OSError:
        return os.open(os.devnull, os.O_WRONLY)


def _reason(error: OSError, host: str, port: int) -> str:
    if error.errno != errno.EADDRINUSE:
        return error.strerror or str(error)
    holder = who_listens(host, port)
    if holder is None:
        return "the port is in use"
    return f"the port is in use by {holder}; {holder.advice}, or choose another --port"


if __name__ == "__main__":
    sys.exit(main())
