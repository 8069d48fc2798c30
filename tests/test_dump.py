"""The dump of a job: as text, over the local port, and by command."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioelasticjob import ElasticJob, InvalidSetting
from aioelasticjob.config import JobConfig
from aioelasticjob.coordination.dump import render
from aioelasticjob.coordination.masking import Mask
from aioelasticjob.layout import Layout
from aioelasticjob.registry.transaction import Create, Set
from aioelasticjob.registry.tree import Node, Stat, Tree
from tests.cli.conftest import Command
from tests.cli.conftest import command as command
from tests.cli.conftest import root_log as root_log
from tests.support.embedded import EmbeddedServer
from tests.support.simulated_jobs import LAYOUT, SimulatedJobs, simulate

STAT = Stat(1, 1, 0.0, 0.0, 3, 0, 0, 0, 0, 0, 1)
EPHEMERAL = Stat(1, 1, 0.0, 0.0, 0, 0, 0, 0xABC, 0, 0, 1)


def tree(nodes: dict[str, str | bytes], stat: Stat = STAT) -> Tree:
    return Tree({path: Node(data.encode() if isinstance(data, str) else data, stat) for path, data in nodes.items()})


def instance(ip: str, host: str) -> str:
    return json.dumps({"id": f"{ip}@-@1-a", "ip": ip, "host": host, "pid": 1})


def test_a_line_holds_path_data_owner_and_version() -> None:
    assert render(tree({"/job": "", "/job/config": "{}"}), LAYOUT) == "/job |  | v3\n/job/config | {} | v3"
    assert render(tree({"/job/x": "me"}, EPHEMERAL), LAYOUT) == "/job/x | me | ephemeral 0xabc v0"


def test_items_come_by_number_and_what_is_below_a_node_right_after_it() -> None:
    nodes = ["/job", "/job/a", "/job/a-b", "/job/a/c", "/job/s/10", "/job/s/2", "/job/s/2/x", "/job/s/abc", "/job/s"]
    shown = [line.partition(" ")[0] for line in render(tree(dict.fromkeys(nodes, "")), LAYOUT).splitlines()]
    assert shown == [
        *["/job", "/job/a", "/job/a/c", "/job/a-b", "/job/s", "/job/s/2", "/job/s/2/x", "/job/s/10", "/job/s/abc"]
    ]


@settings(deadline=None)
@given(st.lists(st.tuples(st.text(st.characters(exclude_characters="/", codec="utf-8"), min_size=1), st.binary())))
def test_whatever_a_node_holds_it_is_one_line_of_three_parts(nodes: list[tuple[str, bytes]]) -> None:
    made = tree({f"/job/{name}": data for name, data in nodes})
    text = render(made, LAYOUT)
    text.encode()
    lines = text.split("\n") if len(made) else []
    assert len(lines) == len(made)
    assert all(len(re.split(r"(?<!\\)(?:\\\\)* \| ", line)) == 3 and line.isprintable() for line in lines)


def test_strange_bytes_are_told_apart() -> None:
    assert render(tree({"/job/a": b"\xff|\\\n\xe4\xb8\xad"}), LAYOUT) == "/job/a | \\xff\\|\\\\\\n中 | v3"


def test_what_is_too_much_is_counted() -> None:
    nodes = tree({f"/job/{n:03}": "x" * 100 for n in range(50)})
    text = render(nodes, LAYOUT, limit=1000)
    assert len(text) < 1050
    assert text.endswith("… and 42 nodes more")


def test_addresses_are_masked_wherever_they_are_and_the_same_everywhere() -> None:
    text = render(
        tree(
            {
                "/job/servers/10.0.0.5": "db-1.example.com",
                "/job/servers/10.0.0.5/paused": "",
                "/job/servers/10.0.0.50": "db-1",
                "/job/servers/fe80::1": "größe",
                "/job/servers/by-hand": "",
                "/job/instances/10.0.0.5@-@1-a": instance("10.0.0.5", "DB-1.example.com"),
                "/job/instances/fe80::1@-@1-a": instance("fe80::1", "größe"),
                "/job/sharding/0/instance": "10.0.0.5@-@1-a",
                "/job/offset/0": "FE80:0:0::1%eth0 ::ffff:10.0.0.5 [fe80::1]:80 192.168.7.9:1 12:30:45 1.2.3 by-hand",
                "/job/config": '{"jobName": "db-10", "cron": "0 0 12 * * ?"}',
            }
        ),
        LAYOUT,
        masked=True,
    )
    assert "10.0.0" not in text
    assert not re.search("fe80|example|größe|gr.u00f6|168|hand", text, re.IGNORECASE)
    assert "/job/servers/ip1 | host1 | v3\n/job/servers/ip1/paused |  | v3\n/job/servers/ip2 | host2 | v3" in text
    assert '/job/instances/ip1@-@1-a | {"id": "ip1@-@1-a", "ip": "ip1", "host": "host1", "pid": 1}' in text
    assert "/job/sharding/0/instance | ip1@-@1-a" in text
    assert '"jobName": "db-10", "cron": "0 0 12 * * ?"' in text
    assert "/job/offset/0 | ip4 ip1 [ip4]:80 ip5:1 12:30:45 1.2.3 ip3" in text


AROUND = (
    *("{} ", '"{}"', "[{}]:80", "a={},b", "{}@-@4711-ab", "/x/{}/y"),
    *("tcp:{}", "addr:{}.", "node_{}", "{}_a", "({})", "{}-"),
)


@settings(deadline=None)
@given(st.ip_addresses(), st.sampled_from(AROUND))
def test_no_address_gets_through(address: object, around: str) -> None:
    text = render(tree({"/job/offset/0": around.format(address)}), LAYOUT, masked=True)
    assert around.format("ip1") in text


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("ip10.0.0.5x v10.0.0.5", "ipip1x vip1"),
        ("010.000.000.005 10.0.0.5", "ip1 ip1"),
        ("1.2.3.4.5 1.2.3 256.1.1.1", "1.2.3.4.5 1.2.3 256.1.1.1"),
        (r"a\n10.0.0.5\t2001:db8::5\nabcd::1", r"a\nip1\tip2\nip3"),
        ("node:fe80::1 fe80::1 x2001:db8::5x", "node:ip1 ip1 xip2x"),
        ("fe80::1. ::ffff:10.0.0.5, 1::2::3", "ip1. ip2, ip3::3"),
        ("std::cout a:b 12:30:45 aa:bb:cc:dd:ee:ff", "std::cout a:b 12:30:45 aa:bb:cc:dd:ee:ff"),
        ("1:2:3:4:5:6:7:8:9::", "ip1:ip2"),
    ],
)
def test_an_address_is_found_where_it_touches_words(text: str, masked: str) -> None:
    assert render(tree({"/job/x": ""}), LAYOUT, masked=True) == "/job/x |  | v3"
    assert Mask(tree({}), LAYOUT)(text) == masked


def test_a_servers_name_is_masked_with_its_domain_and_where_it_touches_an_underscore() -> None:
    mask = Mask(tree({"/job/servers": "", "/job/servers/10.0.0.5": "web1"}), LAYOUT)
    assert mask("web1.example.com WEB1. my_web1_db") == "host1 host1. my_host1_db"
    assert mask("web10 web1-old oweb1 x.web1") == "web10 web1-old oweb1 x.web1"


def test_what_an_instance_says_of_itself_in_vain_is_masked_too() -> None:
    nodes = {"/job/instances/10.0.0.5@-@1": '{"ip": "10.0.0.77", "host": "web1"}', "/job/instances/x": '{"ip": ""}'}
    text = render(tree({"/job/instances": "", **nodes, "/job/offset/0": "web1"}), LAYOUT, masked=True)
    assert '/job/instances/ip1@-@1 | {"ip": "ip2", "host": "host1"}' in text
    assert "/job/offset/0 | host1 |" in text


@pytest.mark.parametrize("piece", ["::", "a", "a:", "1.", "a::b:", "1:2:3:4:5:6:7:8:", "10.0.0.5:", "z::"])
def test_masking_takes_no_time_to_speak_of(piece: str) -> None:
    began = time.process_time()
    Mask(tree({}), LAYOUT)(piece * (100_000 // len(piece)))
    assert time.process_time() - began < 5


async def ask(port: int, question: bytes) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(question)
    answer = await reader.read()
    writer.close()
    return answer.decode()


def port_of(caplog: pytest.LogCaptureFixture) -> int:
    return next(int(record.port) for record in reversed(caplog.records) if hasattr(record, "port"))


@asynccontextmanager
async def monitored(here: SimulatedJobs, caplog: pytest.LogCaptureFixture) -> AsyncIterator[int]:
    caplog.set_level("INFO")
    async with here.app(cron="0/10 * * * * ?", monitor_port=0, sharding_total_count=2).running():
        await here.until(12)
        yield port_of(caplog)


def test_the_port_tells_the_whole_job(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(here: SimulatedJobs) -> None:
        async with monitored(here, caplog) as port:
            text = await ask(port, b"dump\n")
            for path in await here.observer.subtree([LAYOUT.root]):
                assert f"{path} | " in text
            assert LAYOUT.item(1).execution in text
            assert "127.0.0.1" in text
            assert "127.0.0.1" not in await ask(port, b"dump@masked\r\n")
        with pytest.raises(OSError, match=r"refused|111"):
            await ask(port, b"dump\n")

    simulate(scene)


@pytest.mark.parametrize("question", [b"reboot\n", b"\n", b"", b"\xff\n", b"x" * 9000 + b"\n", b"dump@all\n"])
def test_nonsense_gets_one_line(question: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async def scene(here: SimulatedJobs) -> None:
        async with monitored(here, caplog) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(question)
            writer.write_eof()
            answer = (await reader.read()).decode()
            writer.close()
            assert answer.count("\n") == 1
            assert answer.startswith("unknown command")
            assert (await ask(port, b"dump\n")).startswith("/job | ")

    simulate(scene)


def test_silent_clients_are_sent_away_and_too_many_are_told_so(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(here: SimulatedJobs) -> None:
        async with monitored(here, caplog) as port:
            silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(8)]
            await anyio.sleep(1)
            assert await ask(port, b"dump\n") == "busy: try again\n"
            await anyio.sleep(10)
            for reader, writer in silent:
                assert await _rest(reader) == b""
                writer.close()
            assert (await ask(port, b"dump\n")).startswith("/job | ")
        assert len(here.starts()) == 2

    simulate(scene)


async def _rest(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""


def test_a_port_in_use_is_refused_at_the_start_and_logged_later(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")

    async def scene(here: SimulatedJobs) -> None:
        async def nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.close()

        taken = await asyncio.start_server(nothing, "127.0.0.1", 4711)
        with pytest.raises(InvalidSetting, match="monitor_port = 4711: cannot be had"):
            async with here.app(cron="0/10 * * * * ?", monitor_port=4711).running():
                pass
        async with here.app(cron="0/10 * * * * ?", monitor_port=4712, overwrite=True).running():
            good = (await here.observer.get(LAYOUT.config)).data
            assert (await ask(4712, b"dump\n")).startswith("/job | ")
            await here.write(Set(LAYOUT.config, good.replace(b"4712", b"4711"), -1))
            await here.until(25)
            assert sum("not monitored: monitor_port = 4711" in one.getMessage() for one in caplog.records) == 1
            await here.write(Set(LAYOUT.config, good.replace(b"4712", b"4713"), -1))
            await anyio.sleep(0.05)
            assert (await ask(4713, b"dump\n")).startswith("/job | ")
            with pytest.raises(OSError, match=r"refused|111"):
                await ask(4712, b"dump\n")
        assert len(here.starts()) == 2
        taken.close()

    simulate(scene)


def test_a_port_set_by_an_operator_keeps_no_process_from_starting_and_is_had_once_it_is_free(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")

    async def scene(here: SimulatedJobs) -> None:
        config = JobConfig(job_name="job", cron="0/10 * * * * ?", monitor_port=4711)
        await here.write(Create(LAYOUT.root), Create(LAYOUT.config, config.to_json()))
        taken = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 4711)
        async with here.app(cron="0/10 * * * * ?").running():
            await here.until(35)
            assert sum("not monitored: monitor_port = 4711" in text for text in caplog.messages) == 1
            taken.close()
            await anyio.sleep(11)
            assert (await ask(4711, b"dump\n")).startswith("/job | ")
        assert len(here.starts()) >= 3

    simulate(scene)


@pytest.mark.parametrize("port", [-2, 65_536])
def test_a_port_that_cannot_be_is_no_setting(port: int) -> None:
    with pytest.raises(InvalidSetting, match="monitor_port"):
        ElasticJob("embedded://").add(lambda context: None, name="job", monitor_port=port)


def test_the_command_prints_it(embedded: EmbeddedServer, command: Command) -> None:
    address = f"zk://{embedded.address}/shop"

    async def main() -> None:
        app = ElasticJob(address)
        app.add(lambda _: None, name="report", cron=None)
        async with app.running() as session:
            there = Layout("report")
            await session.commit([Create(there.item(7).offset, b"a\nb")], incarnation=session.incarnation)
            plain, masked, unknown = [
                await asyncio.to_thread(command, "dump", *words, "--registry", address)
                for words in (["report"], ["report", "--mask"], ["nobody"])
            ]
        assert plain.exit_code == masked.exit_code == 0
        assert "/report/offset/7 | a\\nb | v0\n" in plain.output
        assert "/report/servers/127.0.0.1" in plain.output
        assert "/report/servers/ip1 | host1 | " in masked.output
        assert "127.0.0.1" not in masked.output
        assert (unknown.exit_code, unknown.output.count("\n")) == (2, 1)
        assert "there is no such job" in unknown.output

    asyncio.run(main())
