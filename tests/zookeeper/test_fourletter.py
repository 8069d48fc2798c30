"""Four-letter words, in the forms that clients and operators' tools parse."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from struct import pack

import pytest

from aioelasticjob.zookeeper import Server, serve
from aioelasticjob.zookeeper.codes import OpCode
from aioelasticjob.zookeeper.jute import pack_string
from tests.zookeeper.raw_client import connected, create_body, opened, read_body

Ask = Callable[[str], Awaitable[str]]


def with_two_clients(story: Callable[[Server, Ask], Awaitable[None]], data_dir: Path | None = None) -> None:
    """One client has an ephemeral node and watches the root's children, the other watches that node."""

    async def main() -> None:
        async with serve(data_dir=data_dir) as server, connected(server) as first, connected(server) as second:

            async def ask(word: str) -> str:
                async with opened(server) as client:
                    client.writer.write(word.encode())
                    return (await client.reader.read()).decode()

            await first.ask(OpCode.CREATE, create_body("/e", flags=1), xid=1)
            await first.ask(OpCode.GET_CHILDREN, read_body("/", True), xid=2)
            await second.ask(OpCode.EXISTS, read_body("/e", True), xid=3)
            await story(server, ask)

    asyncio.run(main())


def test_srvr_is_what_aiozk_and_kazoo_parse() -> None:
    async def story(server: Server, ask: Ask) -> None:
        text = await ask("srvr")
        assert int(text.split("/")[-1].split()[0]) < 10_000, "a latency no answer had"
        assert re.fullmatch(
            r"Zookeeper version: 3\.8\.0-.*, built on .*\nLatency min/avg/max: \d+/[\d.]+/\d+\n"
            r"Received: \d+\nSent: \d+\nConnections: 3\nOutstanding: 0\nZxid: 0x[0-9a-f]+\n"
            r"Mode: standalone\nNode count: 6\n",
            text,
        ), text

    with_two_clients(story)


def test_stat_lists_the_clients() -> None:
    async def story(server: Server, ask: Ask) -> None:
        text = await ask("stat")
        assert len(re.findall(r"^ /127\.0\.0\.1:\d+\[1\]\(queued=0,recved=\d+,sent=\d+\)$", text, re.MULTILINE)) == 2
        assert len(re.findall(r"^ /127\.0\.0\.1:\d+\[0\]\(queued=0,recved=\d+,sent=\d+\)$", text, re.MULTILINE)) == 1
        assert text.endswith("Node count: 6\n")

    with_two_clients(story)


def test_the_server_is_well_and_takes_writes() -> None:
    async def story(server: Server, ask: Ask) -> None:
        assert (await ask("ruok"), await ask("isro")) == ("imok", "rw")

    with_two_clients(story)


def test_mntr_is_tab_separated_and_counts() -> None:
    async def story(server: Server, ask: Ask) -> None:
        lines = (await ask("mntr")).splitlines()
        values = dict(line.split("\t") for line in lines)
        assert all(name.startswith("zk_") for name in values)
        counted = {name: values[f"zk_{name}"] for name in ("server_state", "znode_count", "ephemerals_count")}
        assert counted == {"server_state": "standalone", "znode_count": "6", "ephemerals_count": "1"}
        assert (values["zk_watch_count"], values["zk_global_sessions"]) == ("2", "2")
        assert values["zk_num_alive_connections"] == "3"

    with_two_clients(story)


def test_conf_tells_the_settings(tmp_path: Path) -> None:
    async def story(server: Server, ask: Ask) -> None:
        values = dict(line.split("=") for line in (await ask("conf")).splitlines())
        assert values["clientPort"] == str(server.port)
        assert (values["tickTime"], values["minSessionTimeout"], values["maxSessionTimeout"]) == (
            "2000",
            "4000",
            "40000",
        )
        assert values["dataDir"] == str(tmp_path)
        assert int(values["dataDirSize"]) > 0

    with_two_clients(story, tmp_path)


def test_cons_tells_what_each_client_did_last() -> None:
    async def story(server: Server, ask: Ask) -> None:
        text = await ask("cons")
        assert re.search(
            r"\[1\]\(queued=0,recved=3,sent=3,sid=0x1[0-9a-f]+,lop=GETC,est=\d+,to=40000,lcxid=0x2,lzxid=0x[0-9a-f]+,"
            r"lresp=\d+,llat=\d+,minlat=\d+,avglat=\d+,maxlat=\d+\)\n",
            text,
        ), text

    with_two_clients(story)


def test_dump_names_sessions_and_their_nodes() -> None:
    async def story(server: Server, ask: Ask) -> None:
        text = await ask("dump")
        assert re.search(
            r"Session Sets \(\d\)/\(2\):\n\d expire at \w{3} \w{3} \d\d \d\d:\d\d:\d\d UTC \d{4}:\n\t0x1", text
        )
        assert re.search(r"Sessions with Ephemerals \(1\):\n0x1[0-9a-f]+:\n\t/e\n", text)
        assert len(re.findall(r"\tip: /127\.0\.0\.1:\d+ sessionId: 0x[0-9a-f]+\n", text)) == 3

    with_two_clients(story)


def test_envi_tells_where_it_runs() -> None:
    async def story(server: Server, ask: Ask) -> None:
        text = await ask("envi")
        assert text.startswith("Environment:\nzookeeper.version=3.8.0")
        assert {"host.name", "os.name", "user.dir"} <= {line.split("=")[0] for line in text.splitlines()}

    with_two_clients(story)


def test_envi_tells_what_it_can_in_a_container_whose_user_has_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000_000)

    async def story(server: Server, ask: Ask) -> None:
        text = await ask("envi")
        assert {"user.name=?", "user.home=?"} <= set(text.splitlines())

    with_two_clients(story)


def test_watches_are_summed_up_by_client_and_by_path() -> None:
    async def story(server: Server, ask: Ask) -> None:
        assert await ask("wchs") == "1 connections watching 1 paths\nTotal watches:1\n"
        assert re.fullmatch(r"0x1[0-9a-f]+\n\t/e\n\n", await ask("wchc"))
        assert re.fullmatch(r"/e\n\t0x1[0-9a-f]+\n\n", await ask("wchp"))

    with_two_clients(story)


def test_counting_can_begin_anew() -> None:
    async def story(server: Server, ask: Ask) -> None:
        assert await ask("crst") == "Connection stats reset.\n"
        assert "recved=3" not in await ask("stat")
        assert await ask("srst") == "Server stats reset.\n"
        assert "Received: 1\nSent: 1\n" in await ask("srvr")  # the answer to srst, and this question

    with_two_clients(story)


def test_the_directory_is_measured(tmp_path: Path) -> None:
    async def story(server: Server, ask: Ask) -> None:
        assert re.fullmatch(r"datadir_size: [1-9]\d*\nlogdir_size: [1-9]\d*\n", await ask("dirs"))

    with_two_clients(story, tmp_path)


@pytest.mark.parametrize("word", ["RUOK", "quit", "help"])
def test_what_is_no_word_is_no_request_either(word: str) -> None:
    async def story(server: Server, ask: Ask) -> None:
        async with opened(server) as client:
            client.writer.write(word.encode())
            assert await client.ended()

    with_two_clients(story)


def test_watches_of_many_kinds_are_counted_once() -> None:
    async def story(server: Server, ask: Ask) -> None:
        async with connected(server) as client:
            await client.ask(OpCode.ADD_WATCH, pack_string("/r") + pack(">i", 1))
            assert await ask("wchs") == "2 connections watching 2 paths\nTotal watches:2\n"
        while len(server.clients) > 2:
            await asyncio.sleep(0)
        assert await ask("wchs") == "1 connections watching 1 paths\nTotal watches:1\n"

    with_two_clients(story)
