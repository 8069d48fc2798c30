"""Which names a znode can have."""

import pytest

from aioelasticjob.zookeeper.codes import ErrorCode, RequestError
from aioelasticjob.zookeeper.paths import parent_for_create, parent_for_delete, validate


@pytest.mark.parametrize(
    "path", ["/", "/a", "/a/b", "/...", "/.a", "/a.", "/a..b", "/\u00a0", "/\ud7ff", "/\uf900", "/ü/日本", "/ "]
)
def test_a_good_path_passes(path: str) -> None:
    validate(path)


@pytest.mark.parametrize(
    "path",
    [*("", "a", "a/b", "//", "/a/", "/a//b", "/.", "/..", "/a/.", "/a/..", "/./a", "/../a", "/a/./b", "/\0", "/\x1f")]
    + ["/\x7f", "/\x9f", "/\ue000", "/\uf8ff", "/\ufff0", "/\uffff", "/😀", "/a\n", "/a\n/b", "/\n"],
)
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
