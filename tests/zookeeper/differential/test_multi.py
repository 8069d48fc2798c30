"""Several operations as one."""

from __future__ import annotations

from itertools import product

import pytest

from .scenario import on_both
from .wire import OPEN, Long, Op, Raw, jute, multi, record
from .world import World

pytestmark = pytest.mark.zookeeper


@on_both
def test_an_empty_multi(w: World) -> None:
    a = w.client()
    a.call(Op.MULTI, multi())
    a.call(Op.MULTI_READ, multi())
    a.call(Op.EXISTS, w.root, False)


@on_both
def test_every_operation_succeeds(w: World) -> None:
    a = w.client()
    r = w.root
    a.call(
        Op.MULTI,
        multi(
            (Op.CREATE, record(f"{r}/p", b"1", OPEN, 0)), (Op.CREATE2, record(f"{r}/q", b"2", OPEN, 0)),
            (Op.CREATE, record(f"{r}/p/s-", b"", OPEN, 2)), (Op.CREATE2, record(f"{r}/p/s-", b"", OPEN, 3)),
            (Op.CREATE, record(f"{r}/p/e", b"", OPEN, 1)), (Op.CHECK, record(f"{r}/p", 0)),
            (Op.SET_DATA, record(f"{r}/p", b"new", 0)), (Op.CHECK, record(f"{r}/p", 1)),
            (Op.CREATE_CONTAINER, record(f"{r}/c", b"", OPEN, 4)),
            (Op.CREATE_TTL, record(f"{r}/t", b"", OPEN, 5, Long(100_000))),
            (Op.CREATE, record(f"{r}/container", b"", OPEN, 4)),
            (Op.DELETE, record(f"{r}/q", -1)), (Op.CREATE, record(f"{r}/q", b"again", OPEN, 1)),
        ),
    )  # fmt: skip
    for path in ("", "/p", "/q", "/p/e", "/c", "/t", "/container"):
        a.call(Op.GET_DATA, f"{r}{path}", False)
    a.call(Op.GET_CHILDREN2, f"{r}/p", False)
    a.call(Op.GET_EPHEMERALS, r)


@on_both
def test_a_failure_anywhere_undoes_all(w: World) -> None:
    a = w.client()
    r = w.root
    a.call(Op.CREATE, f"{r}/x", b"", OPEN, 0)
    a.call(Op.CREATE, f"{r}/x/y", b"", OPEN, 0)
    a.call(Op.CREATE, f"{r}/e", b"", OPEN, 1)
    good = [
        (Op.CREATE, record(f"{r}/a", b"", OPEN, 0)),
        (Op.SET_DATA, record(f"{r}/x", b"data", -1)),
        (Op.DELETE, record(f"{r}/x/y", -1)),
        (Op.CHECK, record(f"{r}/x", 0)),
        (Op.CREATE, record(f"{r}/s", b"", OPEN, 2)),
    ]
    bad = [
        (Op.CREATE, record(f"{r}/x", b"", OPEN, 0)), (Op.CREATE, record(f"{r}/no/x", b"", OPEN, 0)),
        (Op.CREATE, record(f"{r}/e/x", b"", OPEN, 0)), (Op.CREATE, record("bad", b"", OPEN, 0)),
        (Op.CREATE, record(f"{r}/flags", b"", OPEN, 9)), (Op.CREATE, record(None, b"", OPEN, 0)),
        (Op.CREATE, record(f"{r}/acl", b"", [], 0)), (Op.CREATE2, record(f"{r}/x", b"", OPEN, 0)),
        (Op.SET_DATA, record(f"{r}/none", b"", -1)), (Op.SET_DATA, record(f"{r}/x", b"", 5)),
        (Op.SET_DATA, record("bad", b"", -1)), (Op.DELETE, record(f"{r}/none", -1)), (Op.DELETE, record(f"{r}/x", 7)),
        (Op.DELETE, record(r, -1)), (Op.DELETE, record("/", -1)), (Op.CHECK, record(f"{r}/x", 4)),
        (Op.CHECK, record(f"{r}/none", -1)), (Op.CHECK, record("bad", -1)),
        (Op.CREATE_TTL, record(f"{r}/t", b"", OPEN, 5, Long(-5))),
        (Op.CREATE_CONTAINER, record(f"{r}/x", b"", OPEN, 4)),
    ]  # fmt: skip
    if w.newer:  # refuses the whole multi
        bad = [(op, fields) for op, fields in bad if None not in fields.fields and 9 not in fields.fields]
    for failure in bad:
        a.call(Op.MULTI, multi(failure))
        a.call(Op.MULTI, multi(*good[:3], failure, *good[3:]))
        a.call(Op.MULTI, multi(*good, failure))
        a.call(Op.MULTI, multi(failure, bad[0], *good))
    a.call(Op.GET_CHILDREN2, r, False)
    a.call(Op.GET_CHILDREN2, f"{r}/x", False)
    a.call(Op.CREATE, f"{r}/s", b"", OPEN, 2)


@on_both
def test_operations_see_those_before_them(w: World) -> None:
    a = w.client()
    r = w.root
    steps = [
        (Op.CREATE, record(f"{r}/n", b"", OPEN, 0)), (Op.CREATE, record(f"{r}/n/c", b"", OPEN, 0)),
        (Op.DELETE, record(f"{r}/n/c", 0)), (Op.DELETE, record(f"{r}/n", -1)),
        (Op.SET_DATA, record(f"{r}/n", b"z", 0)), (Op.CHECK, record(f"{r}/n", 1)),
    ]  # fmt: skip
    for first, second, third in product(steps, repeat=3):
        a.call(Op.MULTI, multi(first, second, third))
    a.call(Op.GET_CHILDREN2, r, False)


@on_both
def test_operations_that_a_multi_does_not_know(w: World) -> None:
    for op, fields in (
        (Op.EXISTS, record(w.root, False)), (Op.GET_DATA, record(w.root, False)), (Op.SYNC, record(w.root)),
        (Op.GET_CHILDREN, record(w.root, False)), (Op.SET_ACL, record(w.root, OPEN, -1)), (Op.MULTI, record()),
        (99, record()), (Op.ERROR, record()), (Op.CLOSE_SESSION, record()), (Op.DELETE_CONTAINER, record(w.root)),
    ):  # fmt: skip
        w.say(str(op))
        a = w.client()
        a.call(Op.MULTI, multi((Op.CREATE, record(f"{w.root}/x{op}", b"", OPEN, 0)), (op, fields)))
        a.call(Op.MULTI, multi((op, fields)))
        a.call(Op.GET_CHILDREN2, w.root, False)
        a.link.close()


@on_both
def test_reads_within_a_multi_of_writes_and_the_other_way_round(w: World) -> None:
    a = w.client()
    for op, fields in (
        (Op.CREATE, record(f"{w.root}/x", b"", OPEN, 0)), (Op.CHECK, record(w.root, 0)),
        (Op.DELETE, record(w.root, 0)), (Op.SET_DATA, record(w.root, b"", 0)), (Op.EXISTS, record(w.root, False)),
        (Op.GET_CHILDREN2, record(w.root, False)),
    ):  # fmt: skip
        a.call(Op.MULTI_READ, multi((Op.GET_DATA, record(w.root, False)), (op, fields)))
        a.call(Op.EXISTS, w.root, False)


@on_both
def test_several_reads(w: World) -> None:
    a = w.client()
    r = w.root
    a.call(Op.CREATE, f"{r}/n", b"data", OPEN, 0)
    a.call(Op.CREATE, f"{r}/null", None, OPEN, 0)
    a.call(
        Op.MULTI_READ,
        multi(
            (Op.GET_DATA, record(f"{r}/n", False)), (Op.GET_CHILDREN, record(r, False)),
            (Op.GET_DATA, record(f"{r}/none", False)), (Op.GET_CHILDREN, record(f"{r}/none", False)),
            (Op.GET_DATA, record(f"{r}/null", False)), (Op.GET_DATA, record("bad", False)),
        ),
    )  # fmt: skip
    a.call(Op.MULTI_READ, multi((Op.GET_DATA, record(f"{r}/n", True)), (Op.GET_CHILDREN, record(f"{r}", True))))
    a.call(Op.SET_DATA, f"{r}/n", b"x", -1)
    a.call(Op.CREATE, f"{r}/m", b"", OPEN, 0)
    a.settle()


@on_both
def test_malformed_multis(w: World) -> None:
    create = (Op.CREATE, record(f"{w.root}/x", b"", OPEN, 0))
    for body in (
        multi(create, ending=False), Raw(jute(Op.CREATE, False, -1)), Raw(jute(Op.CREATE, False, -1) + jute("/x")),
        Raw(jute(Op.CREATE)), Raw(jute(-1, True)), Raw(jute(Op.CREATE, True, -1)), Raw(jute(Op.CREATE, True, 7)),
        Raw(multi(create).value + b"tail"), Raw(b"\xff"),
        Raw(jute(Op.CREATE, False, 5) + jute(create[1]) + jute(-1, True, -1)),
    ):  # fmt: skip
        w.say(body.value[:30].hex())
        a = w.client()
        a.call(Op.MULTI, body)
        a.call(Op.MULTI_READ, body)
        a.call(Op.GET_CHILDREN2, w.root, False)
        a.call(Op.DELETE, f"{w.root}/x", -1)
        a.link.close()


@on_both
def test_every_flag_within_a_multi(w: World) -> None:
    a = w.client()
    for op in (Op.CREATE, Op.CREATE2, Op.CREATE_CONTAINER):
        for flags in (-1, 0, 1, 2, 3, 4, 5, 6, 7):
            if w.newer and flags in (-1, 7):  # refuses the whole multi
                continue
            if w.newer and op == Op.CREATE_CONTAINER and flags in (1, 3):  # makes a node that no session owns
                continue
            a.call(Op.MULTI, multi((op, record(f"{w.root}/{op}-{flags}-", b"x", OPEN, flags))))
    for flags in (5, 6):
        for ttl in (-1, 0, 1_000_000, 2**40):
            path = f"{w.root}/ttl-{flags}-{ttl}"
            a.call(Op.MULTI, multi((Op.CREATE_TTL, record(path, b"x", OPEN, flags, Long(ttl)))))
    a.call(Op.GET_CHILDREN2, w.root, False)
    a.call(Op.GET_EPHEMERALS, w.root)


@on_both
def test_sequences_within_a_multi(w: World) -> None:
    a = w.client()
    r = w.root
    several = [(Op.CREATE, record(f"{r}/s-", b"", OPEN, 2))] * 3
    a.call(Op.MULTI, multi(*several))
    a.call(Op.MULTI, multi(*several, (Op.CHECK, record(f"{r}/none", 0))))
    a.call(Op.CREATE, f"{r}/s-", b"", OPEN, 2)
    a.call(Op.MULTI, multi((Op.DELETE, record(f"{r}/s-0000000003", -1)), *several))
    a.call(Op.GET_CHILDREN2, r, False)


@on_both
def test_a_large_multi(w: World) -> None:
    a = w.client()
    a.call(Op.MULTI, multi(*((Op.CREATE, record(f"{w.root}/{n}", b"x", OPEN, 0)) for n in range(300))))
    a.call(Op.MULTI, multi(*((Op.DELETE, record(f"{w.root}/{n}", 0)) for n in range(301))))
    a.call(Op.MULTI, multi(*((Op.DELETE, record(f"{w.root}/{n}", 0)) for n in range(300))))
    a.call(Op.GET_CHILDREN2, w.root, False)
