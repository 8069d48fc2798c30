"""Four-letter words: what an operator may ask over a bare connection, answered in the reference server's form."""

import getpass
import os
import platform
import socket
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from aioelasticjob.zookeeper.connection import Connection
from aioelasticjob.zookeeper.processor import Processor
from aioelasticjob.zookeeper.statistics import Latency

VERSION = "3.8.0-aioelasticjob, built on 2022-02-25 08:49 UTC"


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """Everything the words may look at."""

    processor: Processor
    statistics: Latency
    connections: Collection[Connection]
    ports: tuple[int, int]  # without TLS, and with it or -1
    data_dir: Path | None
    now: int  # ms on the clock of the sessions
    started: int


def is_known(word: str) -> bool:
    """Whether the reference server takes these letters for a word, not for the length of a frame."""
    return word in _WORDS or word in _REFUSED


def answer(word: str, info: ServerInfo) -> str:
    """Answer a word that is known."""
    if word in _REFUSED:
        return f"{word} is not executed because it is not in the whitelist.\n"
    return _WORDS[word](info)


def _srvr(info: ServerInfo) -> str:
    return f"Zookeeper version: {VERSION}\n" + _state(info)


def _stat(info: ServerInfo) -> str:
    clients = "".join(_brief(connection) for connection in info.connections)
    return f"Zookeeper version: {VERSION}\nClients:\n{clients}\n" + _state(info)


def _state(info: ServerInfo) -> str:
    statistics = info.statistics
    tree = info.processor.tree
    return (
        f"Latency min/avg/max: {statistics.min_latency}/{_average(statistics)}/{statistics.max_latency}\n"
        f"Received: {statistics.received}\n"
        f"Sent: {statistics.sent}\n"
        f"Connections: {len(info.connections)}\n"
        "Outstanding: 0\n"
        f"Zxid: {tree.zxid:#x}\n"
        "Mode: standalone\n"
        f"Node count: {len(tree.nodes)}\n"
    )


def _mntr(info: ServerInfo) -> str:
    tree = info.processor.tree
    watches = info.processor.watches
    statistics = info.statistics
    open_descriptors, most_descriptors = _descriptors()
    values: dict[str, object] = {
        "version": VERSION,
        "server_state": "standalone",
        "ephemerals_count": sum(map(len, tree.ephemerals.values())),
        "num_alive_connections": len(info.connections),
        "avg_latency": _average(statistics),
        "outstanding_requests": 0,
        "znode_count": len(tree.nodes),
        "global_sessions": len(info.processor.sessions.timeouts),
        "packets_sent": statistics.sent,
        "packets_received": statistics.received,
        "connection_drop_probability": 0.0,
        "watch_count": len(watches.data) + len(watches.child),
        "auth_failed_count": 0,
        "min_latency": statistics.min_latency,
        "max_file_descriptor_count": most_descriptors,
        "approximate_data_size": tree.data_size,
        "open_file_descriptor_count": open_descriptors,
        "local_sessions": 0,
        "uptime": info.now - info.started,
        "max_latency": statistics.max_latency,
    }
    return "".join(f"zk_{name}\t{value}\n" for name, value in values.items())


def _conf(info: ServerInfo) -> str:
    settings = info.processor.settings
    lower, upper = settings.session_timeouts
    directory = info.data_dir or ""
    size = _directory_size(info.data_dir)
    port, tls_port = info.ports
    values: dict[str, object] = {
        "clientPort": port,
        "secureClientPort": tls_port,
        "dataDir": directory,
        "dataDirSize": size,
        "dataLogDir": directory,
        "dataLogSize": size,
        "tickTime": settings.tick_time,
        "maxClientCnxns": settings.max_client_connections,
        "minSessionTimeout": lower,
        "maxSessionTimeout": upper,
        "clientPortListenBacklog": -1,
        "serverId": 0,
    }
    return "".join(f"{name}={value}\n" for name, value in values.items())


def _cons(info: ServerInfo) -> str:
    return "".join(_detailed(connection) for connection in info.connections) + "\n"


def _dump(info: ServerInfo) -> str:
    processor = info.processor
    now = info.now
    buckets = processor.sessions.deadlines()
    lines = ["SessionTracker dump:", f"Session Sets ({len(buckets)})/({len(processor.sessions.timeouts)}):"]
    for bucket, sessions in buckets.items():
        expiry = datetime.fromtimestamp((processor.wall() + bucket - now) / 1000, UTC)
        lines.append(f"{len(sessions)} expire at {expiry:%a %b %d %H:%M:%S UTC %Y}:")
        lines += [f"\t{_hex(session)}" for session in sessions]
    owners = {owner: paths for owner, paths in processor.tree.ephemerals.items() if paths}
    lines += ["ephemeral nodes dump:", f"Sessions with Ephemerals ({len(owners)}):"]
    for owner, paths in owners.items():
        lines.append(f"{_hex(owner)}:")
        lines += [f"\t{path}" for path in paths]
    lines += ["Connections dump:", f"Connections Sets (1)/({len(info.connections)}):"]
    lines += [f"\tip: /{each.host}:{each.port} sessionId: {_hex(each.session)}" for each in info.connections]
    return _ended(lines)


def _envi(info: ServerInfo) -> str:
    values = {
        "zookeeper.version": VERSION,
        "host.name": socket.gethostname(),
        "python.version": platform.python_version(),
        "python.implementation": platform.python_implementation(),
        "python.executable": sys.executable,
        "os.name": platform.system(),
        "os.arch": platform.machine(),
        "os.version": platform.release(),
        "user.name": _known(getpass.getuser),
        "user.home": _known(Path.home),
        "user.dir": _known(Path.cwd),
    }
    return "Environment:\n" + "".join(f"{name}={value}\n" for name, value in values.items())


def _known(ask: Callable[[], object]) -> object:
    """Return the answer, or Java's ``?``, as in a container whose user has no name."""
    try:
        return ask()
    except (OSError, KeyError, RuntimeError):  # it depends on the question and on Python's version
        return "?"


def _wchs(info: ServerInfo) -> str:
    watches = info.processor.watches.data
    counts = f"{len(watches.by_watcher)} connections watching {len(watches.by_path)} paths"
    return f"{counts}\nTotal watches:{len(watches)}\n"


def _wchc(info: ServerInfo) -> str:
    lines = list[str]()
    for watcher, paths in info.processor.watches.data.by_watcher.items():
        lines.append(_hex(watcher.session))
        lines += [f"\t{path}" for path in paths]
    return _ended(lines) + "\n"


def _wchp(info: ServerInfo) -> str:
    lines = list[str]()
    for path, watchers in info.processor.watches.data.by_path.items():
        lines.append(path)
        lines += [f"\t{_hex(watcher.session)}" for watcher in watchers]
    return _ended(lines) + "\n"


def _ended(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _dirs(info: ServerInfo) -> str:
    size = _directory_size(info.data_dir)
    return f"datadir_size: {size}\nlogdir_size: {size}\n"


def _srst(info: ServerInfo) -> str:
    info.statistics.reset()
    return "Server stats reset.\n"


def _crst(info: ServerInfo) -> str:
    for connection in info.connections:
        connection.traffic.reset()
    return "Connection stats reset.\n"


def _brief(connection: Connection) -> str:
    traffic = connection.traffic
    queued = int(connection.backlog > 0)
    return (
        f" /{connection.host}:{connection.port}[{int(connection.connected)}]"
        f"(queued={queued},recved={traffic.received},sent={traffic.sent})\n"
    )


def _detailed(connection: Connection) -> str:
    if not connection.session:
        return _brief(connection)
    traffic = connection.traffic
    values = {
        "sid": _hex(connection.session),
        "lop": traffic.last_op,
        "est": traffic.established,
        "to": connection.timeout,
        "lcxid": _hex(traffic.last_cxid),
        "lzxid": _hex(traffic.last_zxid),
        "lresp": traffic.last_response,
        "llat": traffic.last_latency,
        "minlat": traffic.min_latency,
        "avglat": int(traffic.average),
        "maxlat": traffic.max_latency,
    }
    more = "".join(f",{name}={value}" for name, value in values.items())
    return _brief(connection).removesuffix(")\n") + f"{more})\n"


def _average(statistics: Latency) -> float:
    return round(statistics.average, 4)


def _hex(number: int) -> str:
    return f"{number & 0xFFFFFFFFFFFFFFFF:#x}"


def _directory_size(directory: Path | None) -> int:
    if directory is None:
        return 0
    return sum(file.stat().st_size for file in directory.iterdir())


def _descriptors() -> tuple[int, int]:
    try:
        import resource

        most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return len(os.listdir("/proc/self/fd")), most
    except (ImportError, OSError):
        return -1, -1


_WORDS: Mapping[str, Callable[[ServerInfo], str]] = {
    "srvr": _srvr,
    "ruok": lambda info: "imok",
    "mntr": _mntr,
    "stat": _stat,
    "conf": _conf,
    "cons": _cons,
    "dump": _dump,
    "envi": _envi,
    "isro": lambda info: "rw",
    "wchs": _wchs,
    "wchc": _wchc,
    "wchp": _wchp,
    "dirs": _dirs,
    "srst": _srst,
    "crst": _crst,
}
_REFUSED = frozenset({"hash", "gtmk", "stmk", "orst", "lsnp", "icfg", "sysp"})
