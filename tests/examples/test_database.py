"""The index holds each file once, refuses ghosts, and leaves other programs' files alone."""

import os
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from aioelasticjob.demo.database import Superseded, open_index
from aioelasticjob.demo.files import Facts
from aioelasticjob.errors import ForeignData

ONE, TWO = Facts(1, 10, 1, 0, "aa"), Facts(2, 20, 2, None, "bb")


def test_a_file_is_stored_once_and_its_newest_facts_stand(tmp_path: Path) -> None:
    with open_index(str(tmp_path / "index.db")) as index:
        index.store(0, 1, {"a": ONE, "b": ONE})
        index.store(0, 1, {"a": TWO})
        assert index.files() == {"a": TWO, "b": ONE}
        assert sorted(index.paths()) == ["a", "b"]


def test_what_is_gone_is_forgotten(tmp_path: Path) -> None:
    with open_index(str(tmp_path / "index.db")) as index:
        index.store(0, 1, {"a": ONE, "b": ONE})
        index.store(0, 1, {}, {"a"})
        assert index.files() == {"b": ONE}


def test_a_name_that_is_no_utf8_comes_back_as_it_was(tmp_path: Path) -> None:
    name = os.fsdecode(b"caf\xe9/\xff")
    with open_index(str(tmp_path / "index.db")) as index:
        index.store(0, 1, {name: ONE, "café": ONE})
        index.store(0, 1, {name: TWO})
        assert index.files() == {name: TWO, "café": ONE}
        index.store(0, 1, {}, {name})
        assert index.files() == {"café": ONE}


def test_a_run_that_lost_its_item_writes_nothing(tmp_path: Path) -> None:
    with open_index(str(tmp_path / "index.db")) as ghost, open_index(str(tmp_path / "index.db")) as heir:
        ghost.store(3, 7, {"a": ONE})
        heir.store(3, 9, {"b": ONE})
        with pytest.raises(Superseded, match="item 3 was taken over"):
            ghost.store(3, 7, {"c": ONE}, {"a"})
        ghost.store(4, 7, {"d": ONE})  # another item has a fence of its own
        assert sorted(heir.paths()) == ["a", "b", "d"]


def test_a_transaction_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    with open_index(str(tmp_path / "index.db")) as index:
        with pytest.raises(sqlite3.IntegrityError):
            index.store(0, 1, {"a": ONE, "b": Facts(None, 1)})  # type: ignore[arg-type]  # what a bug would do
        assert index.paths() == []
        index.store(0, 0, {"c": ONE})  # the fence was rolled back too
        assert index.paths() == ["c"]


def test_only_rows_added_since_are_new(tmp_path: Path) -> None:
    with open_index(str(tmp_path / "index.db")) as index:
        index.store(0, 1, {"a": ONE, "b": ONE})
        first = index.newer(0)
        assert [path for _, path in first] == ["a", "b"]
        index.store(0, 1, {"a": TWO, "c": ONE})
        assert [path for _, path in index.newer(first[-1][0])] == ["c"]


def test_many_may_open_a_new_database_at_once(tmp_path: Path) -> None:
    def write(item: int) -> None:
        with open_index(str(tmp_path / "index.db")) as index:
            for n in range(5):
                index.store(item, 1, {f"{item}/{n}": ONE})

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(write, range(8)))
    with open_index(str(tmp_path / "index.db")) as index:
        assert len(index.paths()) == 40


def test_another_programs_database_is_refused_and_left_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "theirs.db"
    with sqlite3.connect(path) as theirs:
        theirs.execute("CREATE TABLE files (x)")
    theirs.close()
    before = path.read_bytes()
    with pytest.raises(ForeignData, match="another program"), open_index(str(path)):
        pass
    assert path.read_bytes() == before


def test_a_file_that_is_no_database_is_refused_and_left_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("not a database at all, but long enough to be looked at " * 10)
    before = path.read_bytes()
    with pytest.raises(ForeignData, match="no SQLite database"), open_index(str(path)):
        pass
    assert path.read_bytes() == before


def test_a_database_that_cannot_be_opened_is_one_of_our_errors(tmp_path: Path) -> None:
    with pytest.raises(ForeignData, match="cannot be opened"), open_index(str(tmp_path / "gone" / "index.db")):
        pass
