"""Who hears of what."""

from __future__ import annotations

from aioelasticjob.registry.codec import CHANGED
from aioelasticjob.registry.watches import Watches


class Ear:
    def __init__(self) -> None:
        self.heard: list[str] = []

    def changed(self, kind: int, path: str) -> None:
        self.heard.append(path)

    def reset(self) -> None:
        self.heard.append("reset")


def test_an_event_reaches_the_roots_at_and_above_it_and_nobody_else() -> None:
    watches, ears = Watches(), {root: Ear() for root in ("/", "/a", "/a/b", "/ab", "/a/b/c/d")}
    for root, ear in ears.items():
        assert watches.add({root: False}, ear)
    watches.dispatch(CHANGED, "/a/b/c")
    assert {root for root, ear in ears.items() if ear.heard} == {"/", "/a", "/a/b"}
    watches.dispatch(CHANGED, "/")
    assert ears["/"].heard == ["/a/b/c", "/"]


def test_the_first_and_the_last_watcher_of_a_root_are_told_apart() -> None:
    watches, one, other = Watches(), Ear(), Ear()
    assert watches.add({"/a": False}, one)
    assert not watches.add({"/a": False}, other)
    assert not watches.remove(["/a"], one)
    watches.dispatch(CHANGED, "/a")
    assert (one.heard, other.heard) == ([], ["/a"])
    assert watches.remove(["/a"], other)
    assert watches.roots == ()


def test_a_shallow_watch_does_only_while_nobody_needs_a_deep_one() -> None:
    watches, one, other, third = Watches(), Ear(), Ear(), Ear()
    assert watches.shallow("/a") is None
    assert watches.add({"/a": True}, one)
    assert not watches.add({"/a": True}, other)
    assert watches.shallow("/a") is True
    assert watches.add({"/a": False}, third)
    assert watches.shallow("/a") is False
    assert not watches.remove(["/a"], other)
    assert watches.remove(["/a"], third)
    assert watches.shallow("/a")
    assert watches.remove(["/a"], one)
    assert watches.shallow("/a") is None


def test_a_reset_reaches_each_watcher_once() -> None:
    watches, ear = Watches(), Ear()
    watches.add({"/a": False}, ear)
    watches.add({"/b": False}, ear)
    watches.reset()
    assert ear.heard == ["reset"]


def test_a_watcher_may_leave_while_it_is_told() -> None:
    watches, left = Watches(), Ear()

    class Leaver(Ear):
        def changed(self, kind: int, path: str) -> None:
            watches.remove(["/a"], self)

    watches.add({"/a": False}, Leaver())
    watches.add({"/a": False}, left)
    watches.dispatch(CHANGED, "/a/b")
    assert left.heard == ["/a/b"]
