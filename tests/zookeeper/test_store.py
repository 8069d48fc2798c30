"""What the disk gives back, and which directories are refused."""

import sqlite3
import subprocess
import sys
from contextlib import closing
from errno import ENOSPC
from pathlib import Path

import pytest

from aioelasticjob.zookeeper.acl import OPEN_UNSAFE, Acl, Identity
from aioelasticjob.zookeeper.codes import OpCode
from aioelasticjob.zookeeper.datatree import Author, DataTree
from aioelasticjob.zookeeper.messages import Create, Delete, SetAcl, SetData
from aioelasticjob.zookeeper.store import FILE, Changes, StoreError, open_store, rows

SESSION = 2**56 + 5


def picture(tree: DataTree) -> dict[str, object]:
    return {path: (node.stat(), node.data, node.acl, set(node.children)) for path, node in tree.nodes.items()}


def write(tree: DataTree, *writes: Create | Delete | SetAcl | SetData) -> Changes:
    for each in writes:
        tree.zxid += 1
        tree.apply(each, Author(SESSION, [Identity("ip", "127.0.0.1")], tree.zxid, 10_000 + tree.zxid))
    return Changes(tree.zxid, rows(tree, tree.take_dirty()))


def create(path: str, flags: int = 0, op: OpCode = OpCode.CREATE, ttl: int = -1) -> Create:
    return Create(op, path, b"\0data", OPEN_UNSAFE, flags, ttl)


def test_everything_comes_back(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    stored = store.load()
    tree = stored.tree
    tree.dirty = {}
    changes = write(
        tree,
        create("/a"),
        create("/a/ü日本"),
        create("/a/e", 1),
        create("/c", 4, OpCode.CREATE_CONTAINER),
        create("/t", 5, OpCode.CREATE_TTL, 77),
        create("/zookeeper/quota/a"),
        create("/zookeeper/quota/a/zookeeper_limits"),
        create("/zookeeper/quota/a/zookeeper_stats"),
        SetAcl("/t", [Acl(1, "ip", "1.2.3.4/8")], 0),
        SetData("/a", None, -1),
        SetData("/", b"root", -1),
    )
    changes.sessions[SESSION] = 4000
    store.commit(changes)
    store.commit(write(tree, create("/gone"), Delete("/gone", -1)))
    store.close()

    store = open_store(tmp_path)
    again = store.load()
    store.close()
    assert picture(again.tree) == picture(tree)
    assert again.tree.nodes[""] is again.tree.nodes["/"]
    assert (again.zxid, again.secret, again.sessions) == (tree.zxid, stored.secret, {SESSION: 4000})
    assert (again.tree.ephemerals, again.tree.reapable) == (tree.ephemerals, tree.reapable)
    assert again.tree.data_size == tree.data_size
    write(again.tree, create("/a/more"))
    assert again.tree.node("/zookeeper/quota/a/zookeeper_stats").data == b"count=4,bytes=15"


def test_an_ended_session_is_forgotten(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.commit(Changes(1, {}, {1: 100, 2: 200}))
    store.commit(Changes(2, {}, {1: None}))
    assert store.load().sessions == {2: 200}
    store.close()


def test_a_batch_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    broken = {"/x": ("/x", b"", None, 0, 0, 0, 0, 0, 0, 0, 0, 0)}
    with pytest.raises(StoreError, match=f"^cannot write {tmp_path / FILE}: NOT NULL constraint failed"):
        store.commit(Changes(9, broken, {3: 100}))  # type: ignore[arg-type]
    loaded = store.load()
    assert (loaded.zxid, loaded.sessions) == (0, {})
    store.commit(Changes(1, {}, {3: 100}))
    assert store.load().sessions == {3: 100}
    store.close()


def test_a_batch_that_cannot_be_written_names_the_file_and_the_reason(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    tree = store.load().tree
    store._connection.execute("PRAGMA max_page_count = 1")
    changes = write(tree, *(create(f"/{'a' * 100}{number}") for number in range(1000)))
    with pytest.raises(StoreError, match=f"^cannot write {tmp_path / FILE}: database or disk is full$"):
        store.commit(changes)
    store.close()


def test_later_changes_replace_earlier_ones_of_a_batch() -> None:
    changes = Changes(1, {"/a": None}, {1: 100, 2: 200})
    changes.add(Changes(5, {"/b": None}, {1: None}))
    assert (changes.zxid, set(changes.znodes), changes.sessions) == (5, {"/a", "/b"}, {1: None, 2: 200})


def test_a_directory_belongs_to_one_server_at_a_time(tmp_path: Path) -> None:
    store = open_store(tmp_path / "new" / "place")
    with pytest.raises(StoreError, match="in use by another server"):
        open_store(tmp_path / "new" / "place")
    store.close()
    open_store(tmp_path / "new" / "place").close()


def test_a_server_that_is_refused_a_directory_leaves_it_to_the_other_one_of_its_process(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    with pytest.raises(StoreError, match="in use by another server"):
        open_store(tmp_path)
    read = f"import sqlite3; sqlite3.connect({str(tmp_path / FILE)!r}, timeout=0).execute('SELECT * FROM znode')"
    other = subprocess.run([sys.executable, "-c", read], capture_output=True, text=True, check=False)
    store.close()
    assert "database is locked" in other.stderr


def test_only_the_user_of_the_server_may_read_what_it_keeps(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.commit(write(store.load().tree, create("/a")))
    files = {file.name: file.stat().st_mode & 0o77 for file in tmp_path.iterdir()}
    store.close()
    assert files == {FILE: 0, f"{FILE}-wal": 0}


def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    (tmp_path / FILE).mkdir()
    with pytest.raises(StoreError, match=f"{FILE}: unable to open"):
        open_store(tmp_path)


def test_a_file_that_cannot_be_made_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(file: Path, mode: int, *, exist_ok: bool) -> None:
        raise OSError(ENOSPC, "No space left on device", str(file))

    monkeypatch.setattr(Path, "touch", full)
    with pytest.raises(StoreError, match=f"^cannot open {tmp_path / FILE}: No space left on device$"):
        open_store(tmp_path)


def test_foreign_files_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "myid").write_text("1")
    with pytest.raises(StoreError, match=r"another program .myid."):
        open_store(tmp_path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["myid"]


def test_a_foreign_database_is_left_alone(tmp_path: Path) -> None:
    foreign = sqlite3.connect(tmp_path / FILE)
    foreign.execute("CREATE TABLE theirs (x)")
    foreign.commit()
    foreign.close()
    before = (tmp_path / FILE).read_bytes()
    with pytest.raises(StoreError, match="database of another program"):
        open_store(tmp_path)
    assert (tmp_path / FILE).read_bytes() == before


def test_a_foreign_application_id_is_respected(tmp_path: Path) -> None:
    foreign = sqlite3.connect(tmp_path / FILE)
    foreign.execute("PRAGMA application_id = 42")
    foreign.close()
    with pytest.raises(StoreError, match="database of another program"):
        open_store(tmp_path)


def test_a_later_format_is_not_guessed_at(tmp_path: Path) -> None:
    open_store(tmp_path).close()
    later = sqlite3.connect(tmp_path / FILE)
    later.execute("PRAGMA user_version = 99")
    later.close()
    with pytest.raises(StoreError, match="format 99"):
        open_store(tmp_path)


def test_what_is_no_database_is_said(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"not SQLite at all" * 100)
    with pytest.raises(StoreError, match="not a database of this server"):
        open_store(tmp_path)


def test_a_damaged_database_is_named_with_what_to_do(tmp_path: Path) -> None:
    open_store(tmp_path).close()
    content = bytearray((tmp_path / FILE).read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    (tmp_path / FILE).write_bytes(content)
    with (
        pytest.raises(StoreError, match=rf"{FILE} is damaged .*: put a copy of it back"),
        closing(open_store(tmp_path)) as store,
    ):
        store.load()


def test_a_file_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot use"):
        open_store(tmp_path / "file")
