"""Which names a znode can have."""

import pytest

from aioelasticjob.zookeeper.codes import ErrorCode, RequestError
from aioelasticjob.zookeeper.paths import parent_for_create, parent_for_delete, validate


@pytest.mark.parametrize(
    "path", ["/", "/a", "/a/b", "/...", "/.a", "/a.", "/a..b", "/\u00a0", "/\ud7ff", "/\uf900", "/ü/日本", "/ "]
)
def test_a_good_path_passes(path: str) -> None:
    validate(path)


BROKEN = ["", "a", "a/b", "//", "/a/", "/a//b", "/.", "/..", "/a/.", "/a/..", "/./a", "/../a", "/a/./b"]
FORBIDDEN = [*map(chr, (0, 1, 0x0A, 0x1F, 0x7F, 0x9F, 0xE000, 0xF8FF, 0xFFF0, 0xFFFF, 0x1F600))]


@pytest.mark.parametrize("path", [*BROKEN, *("/" + each for each in FORBIDDEN), *(f"/a{each}/b" for each in FORBIDDEN)])
def test_a_bad_path_is_refused(path: str) -> None:
    with pytest.raises(RequestError) as refused:
        validate(path)
    assert refused.value.code is ErrorCode.BAD_ARGUMENTS


def test_the_parent_is_what_stands_before_the_last_slash() -> None:
    assert parent_for_create("/a/b") == "/a"
    assert parent_for_create("/a") == ""
    assert parent_for_delete("/a/b/c") == "/a/b"


@pytest.mark.parametrize("path", ["", "a", "/a\0/b"])
def test_what_has_no_parent_cannot_be_created(path: str) -> None:
    with pytest.raises(RequestError):
        parent_for_create(path)


@pytest.mark.parametrize("path", ["/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config", "x"])
def test_the_server_keeps_its_own_nodes(path: str) -> None:
    with pytest.raises(RequestError):
        parent_for_delete(path)
