"""Quotas: counted, never enforced (as the real server does it by default)."""

from __future__ import annotations

import pytest

from .scenario import on_both
from .wire import OPEN, Op, multi, record
from .world import Client, World

pytestmark = pytest.mark.zookeeper


def _limit(a: Client, node: str, limits: bytes) -> None:
    quota = "/zookeeper/quota"
    for name in node.strip("/").split("/"):
        quota += f"/{name}"
        a.call(Op.CREATE, quota, b"", OPEN, 0)
    a.call(Op.CREATE, f"{quota}/zookeeper_limits", limits, OPEN, 0)
    a.call(Op.CREATE, f"{quota}/zookeeper_stats", b"count=0,bytes=0", OPEN, 0)


def _show(a: Client, node: str) -> None:
    a.call(Op.GET_DATA, f"/zookeeper/quota{node}/zookeeper_stats", False)
    a.call(Op.GET_DATA, f"/zookeeper/quota{node}/zookeeper_limits", False)


def _lift(a: Client, node: str) -> None:
    quota = f"/zookeeper/quota{node}"
    a.call(Op.DELETE, f"{quota}/zookeeper_stats", -1)
    a.call(Op.DELETE, f"{quota}/zookeeper_limits", -1)
    a.call(Op.DELETE, quota, -1)


@on_both
def test_what_lies_below_is_counted(w: World) -> None:
    a = w.client()
    node = f"{w.root}/q"
    a.call(Op.CREATE, node, b"12345", OPEN, 0)
    a.call(Op.CREATE, f"{node}/before", b"123", OPEN, 0)
    _limit(a, node, b"count=3,bytes=10")
    _show(a, node)
    for op, fields in (
        (Op.CREATE, (f"{node}/c", b"0123456789", OPEN, 0)), (Op.CREATE, (f"{node}/c/d", None, OPEN, 1)),
        (Op.SET_DATA, (f"{node}/c", b"01234567890123456789", -1)), (Op.SET_DATA, (f"{node}/c/d", b"x", -1)),
        (Op.SET_DATA, (f"{node}/c/d", None, -1)), (Op.SET_DATA, (node, b"", -1)), (Op.DELETE, (f"{node}/c/d", -1)),
        (Op.MULTI, (multi((Op.DELETE, record(f"{node}/c", -1)), (Op.CREATE, record(f"{node}/m", b"y", OPEN, 0))),)),
        (Op.DELETE, (f"{node}/m", -1)), (Op.DELETE, (f"{node}/before", -1)), (Op.DELETE, (node, -1)),
    ):  # fmt: skip
        a.call(op, *fields)
        _show(a, node)
    _lift(a, node)
    a.call(Op.DELETE, f"/zookeeper/quota{w.root}", -1)


@on_both
def test_a_lifted_quota_counts_no_more(w: World) -> None:
    a = w.client()
    _limit(a, w.root, b"count=1,bytes=-1")
    a.call(Op.GET_DATA, f"/zookeeper/quota{w.root}/zookeeper_stats", True)
    a.call(Op.CREATE, f"{w.root}/c", b"1", OPEN, 0)
    _show(a, w.root)
    a.call(Op.SET_DATA, f"/zookeeper/quota{w.root}/zookeeper_limits", b"count=5,bytes=-1", -1)
    a.call(Op.DELETE, f"/zookeeper/quota{w.root}/zookeeper_limits", -1)
    a.call(Op.CREATE, f"{w.root}/d", b"1", OPEN, 0)
    a.call(Op.GET_DATA, f"/zookeeper/quota{w.root}/zookeeper_stats", False)
    a.call(Op.DELETE, f"/zookeeper/quota{w.root}/zookeeper_stats", -1)
    a.call(Op.DELETE, f"/zookeeper/quota{w.root}", -1)
