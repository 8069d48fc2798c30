"""The fast codec held against aiozk's own classes, which render the same requests field by field."""

from __future__ import annotations

from struct import pack

import pytest
from aiozk import exc, protocol
from aiozk.protocol.primitives import Long, UString, Vector
from aiozk.protocol.request import Request
from hypothesis import given
from hypothesis import strategies as st

from aioelasticjob.errors import Conflict, NodeMissing, NotPermitted, RegistryError, SessionEnded
from aioelasticjob.registry import codec as wire
from aioelasticjob.registry.codec import Codec
from aioelasticjob.registry.transaction import Check, Committed, Create, Delete, Op, Set

PATHS = st.lists(st.text("abcé☃", min_size=1, max_size=3), min_size=1, max_size=3).map(lambda n: "/" + "/".join(n))
VERSIONS = st.integers(-1, 2**31 - 1)
OPS = st.one_of(
    st.builds(Create, PATHS, st.binary(max_size=9), st.booleans()),
    st.builds(Set, PATHS, st.binary(max_size=9), VERSIONS),
    st.builds(Delete, PATHS, VERSIONS),
    st.builds(Check, PATHS, VERSIONS),
)
HEADER = pack("!iqi", 1, 77, 0)
STAT = pack("!qqqqiiiqiiq", 1, 2, 3000, 4500, 5, 6, 7, 8, 9, 10, 11)


def by_aiozk(op: Op, root: str, acl: object) -> object:
    if isinstance(op, Create):
        request = protocol.CreateRequest(path=root + op.path, data=op.data, acl=[acl])
        request.set_flags(ephemeral=op.ephemeral)
        return request
    if isinstance(op, Set):
        return protocol.SetDataRequest(path=root + op.path, data=op.data, version=op.version)
    kind = protocol.DeleteRequest if isinstance(op, Delete) else protocol.CheckVersionRequest
    return kind(path=root + op.path, version=op.version)


@given(st.lists(OPS, max_size=6), st.sampled_from(["", "ns", "a/b"]), st.booleans())
def test_a_transaction_is_what_aiozk_would_send(ops: list[Op], namespace: str, private: bool) -> None:
    acl = protocol.AUTHED_UNRESTRICTED if private else protocol.UNRESTRICTED_ACCESS
    request = protocol.TransactionRequest()
    for op in ops:
        request.add(by_aiozk(op, f"/{namespace}" if namespace else "", acl))
    assert Codec(namespace, private=private).multi(ops) == wire.render(request)


@given(PATHS)
def test_a_read_is_what_aiozk_would_send(path: str) -> None:
    codec = Codec("ns", private=False)
    assert codec.watching(path) == wire.render(protocol.GetDataRequest(path=f"/ns{path}", watch=False))


@given(PATHS)
def test_the_end_of_a_watch_is_what_aiozk_would_send(path: str) -> None:
    codec = Codec("ns", private=False)
    assert codec.remove_watch(path) == wire.render(protocol.RemoveWatchesRequest(path=f"/ns{path}", type=3))


KINDS = ("data", "exist", "child", "persistent", "persistent_recursive")


class SetWatches2(Request):  # type: ignore[misc]  # aiozk is untyped, and does not know this request
    opcode = wire.WATCH
    parts = (("zxid", Long), *((kind, Vector.of(UString)) for kind in KINDS))


@given(st.dictionaries(PATHS, st.booleans(), min_size=1, max_size=4))
def test_watches_are_set_as_aiozk_would_do_it(roots: dict[str, bool]) -> None:
    wanted: dict[str, list[str]] = {kind: [] for kind in KINDS}
    for path, shallow in roots.items():
        wanted["persistent" if shallow else "persistent_recursive"].append(f"/ns{path}")
    rendered = Codec("ns", private=False).watch(roots, 77)
    assert rendered == [wire.render(SetWatches2(zxid=77, **wanted))]


def test_the_namespace_is_the_root() -> None:
    inside, bare = Codec("a/b", private=False), Codec("", private=False)
    assert [inside.absolute("/"), inside.absolute("/x")] == ["/a/b", "/a/b/x"]
    assert [inside.relative("/a/b"), inside.relative("/a/b/x")] == ["/", "/x"]
    assert [bare.absolute("/"), bare.absolute("/x"), bare.relative("/"), bare.relative("/x")] == ["/", "/x", "/", "/x"]


def test_a_node_is_read_with_times_in_seconds() -> None:
    node, end = wire.node(HEADER + pack("!i", 3) + b"abc" + STAT)
    assert end == len(HEADER) + 7 + len(STAT)
    stat = node.stat
    assert node.data == b"abc"
    assert (stat.czxid, stat.mzxid, stat.ctime, stat.mtime, stat.version) == (1, 2, 3.0, 4.5, 5)
    assert (stat.ephemeral_owner, stat.num_children) == (8, 10)


def test_no_data_at_all_reads_as_empty() -> None:
    assert wire.node(HEADER + pack("!i", -1) + STAT)[0].data == b""


def part(kind: int, body: bytes) -> bytes:
    return pack("!i?i", kind, False, 0) + body


def test_what_a_transaction_did_is_read_op_by_op() -> None:
    ops = [Create("/a"), Set("/b", b"", 4), Delete("/c"), Check("/d", 1)]
    frame = HEADER + part(1, pack("!i", 2) + b"/a") + part(5, STAT) + part(2, b"") + part(13, b"")
    assert wire.committed(frame, 77, ops) == Committed(77, (0, 5, -1, -1), 4.5)


def refused(*errors: int) -> bytes:
    return HEADER + b"".join(part(-1, pack("!i", error)) for error in errors)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (exc.NodeExists, "exists"),
        (exc.NoNode, "missing"),
        (exc.BadVersion, "version"),
        (exc.NotEmpty, "not empty"),
        (exc.NoChildrenForEphemerals, "no ephemeral children"),
    ],
)
def test_a_refused_transaction_names_the_operation_and_the_reason(error: type, reason: str) -> None:
    frame = refused(exc.RolledBack.error_code, error.error_code, exc.RuntimeInconsistency.error_code)  # type: ignore[attr-defined]
    with pytest.raises(Conflict) as caught:
        wire.committed(frame, 77, [Check("/a"), Create("/b"), Check("/c")])
    assert (caught.value.index, caught.value.path, caught.value.reason) == (1, "/b", reason)


def test_other_refusals_have_their_own_errors() -> None:
    with pytest.raises(NotPermitted) as caught:
        wire.committed(refused(exc.NoAuth.error_code), 77, [Create("/b")])
    assert caught.value.path == "/b"
    with pytest.raises(RegistryError, match=r"/b: BadArguments \(-8\)"):
        wire.committed(refused(exc.BadArguments.error_code), 77, [Create("/b")])
    with pytest.raises(RegistryError, match="without a reason"):
        wire.committed(refused(0, 0), 77, [Check("/a"), Check("/b")])


def test_error_codes_become_errors_of_ours() -> None:
    assert isinstance(wire.failure(exc.NoNode.error_code, "/a"), NodeMissing)
    assert isinstance(wire.failure(exc.SessionExpired.error_code, "/a"), SessionEnded)
    assert (
        str(wire.failure(-9999, "/a"))
        == "/a: the registry answered with an error code that this client does not know (-9999)"
    )  # aiozk would print it


@given(st.lists(PATHS, max_size=30), st.integers(1, 40))
def test_chunks_hold_every_path_once_and_in_order(paths: list[str], repeat: int) -> None:
    many = paths * repeat
    chunks = wire.chunked(many)
    assert [path for chunk in chunks for path in chunk] == many
    assert all(chunks)


def test_watches_are_set_in_frames_below_the_limit() -> None:
    codec = Codec("ns", private=False)
    paths = [f"/{'☃' * 50}-{number}" for number in range(5000)]
    frames = codec.watch({path: number % 2 == 0 for number, path in enumerate(paths)}, 77)
    assert len(frames) > 1
    assert all(len(frame) <= wire.CHUNK for frame in frames)
    assert sum(frame.count(b"/ns/") for frame in frames) == len(paths)
    assert codec.watch({}, 77) == []
