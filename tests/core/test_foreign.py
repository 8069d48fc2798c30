"""A job of Elastic-Job for Java is recognised by its nodes, and a job of ours is not taken for one."""

from __future__ import annotations

import pytest

from aioelasticjob.config.job import JobConfig
from aioelasticjob.core.foreign import foreign
from aioelasticjob.core.layout import Layout, child
from aioelasticjob.registry.transaction import Create
from aioelasticjob.registry.tree import Node, Stat, Tree
from tests.support.java_trees import CONFIG_2, CONFIG_3, EPHEMERAL, ID, IP, LASTING, RELEASES, java_job

LAYOUT = Layout("job")
OWN = JobConfig(job_name="job", cron="0/5 * * * * ?")


def tree_of(nodes: dict[str, bytes]) -> Tree:
    stat = Stat.of((1, 1), (1.0, 1.0), 0)
    return Tree({path: Node.of(data, stat) for path, data in nodes.items()})


def java(release: str, *, is_up: bool) -> dict[str, bytes]:
    return {op.path: op.data for op in java_job(release, is_up=is_up) if isinstance(op, Create)}


def ours(config: bytes | None = None) -> dict[str, bytes]:
    """Return the nodes of a job of ours that has run."""
    nodes = dict.fromkeys((*LAYOUT.skeleton, LAYOUT.epoch, LAYOUT.schedule), b"")
    nodes[LAYOUT.server("10.0.0.1")] = b"host"
    nodes[LAYOUT.instance("10.0.0.1@-@7-0a1b2c3d")] = b"{}"
    nodes[LAYOUT.config] = OWN.to_json() if config is None else config
    return nodes


@pytest.mark.parametrize("is_up", [True, False])
@pytest.mark.parametrize("release", RELEASES)
def test_a_job_of_java_is_recognised_and_the_error_says_which_release(release: str, is_up: bool) -> None:
    error = foreign(tree_of(java(release, is_up=is_up)), LAYOUT)
    assert error is not None
    assert f"is of Elastic-Job {release} for Java" in str(error)
    assert error.setting == LAYOUT.config


@pytest.mark.parametrize("release", RELEASES)
def test_a_job_of_java_into_which_an_older_release_of_ours_has_written_is_foreign_while_java_is_up(
    release: str,
) -> None:
    mixed = java(release, is_up=True) | {LAYOUT.epoch: b"", LAYOUT.schedule: b""}
    assert foreign(tree_of(mixed), LAYOUT) is not None
    if release == "1.x":  # our configuration was written into its empty node
        mixed[LAYOUT.config] = OWN.to_json()
        assert foreign(tree_of(mixed), LAYOUT) is not None
    if release == "2.x":  # a request has made its configuration ours, with Java's keys
        mixed[LAYOUT.config] = OWN.in_place_of(CONFIG_2).to_json()
        assert foreign(tree_of(mixed), LAYOUT) is not None


@pytest.mark.parametrize("release", RELEASES)
def test_a_job_of_java_whose_configuration_was_removed_or_spoilt_is_recognised_by_its_other_nodes(release: str) -> None:
    nodes = {path: data for path, data in java(release, is_up=True).items() if not path.startswith(LAYOUT.config)}
    for rest in (nodes, nodes | {LAYOUT.config: b"<xml/>"}, nodes | {LAYOUT.config: OWN.to_json()}):
        error = foreign(tree_of(rest), LAYOUT)
        assert error is not None
        assert error.setting == LAYOUT.root


@pytest.mark.parametrize("data", [CONFIG_2, CONFIG_3, b"", b"<xml/>", b"[]", b'{"jobClass": "x"}', b"a: b"])
def test_a_job_of_ours_whose_configuration_somebody_has_edited_is_ours(data: bytes) -> None:
    assert foreign(tree_of(ours(data)), LAYOUT) is None


JAVA_NODES = sorted(
    {
        path
        for release in RELEASES
        for path in (*LASTING[release], *EPHEMERAL[release])
        if not path.startswith("config") or path == "config/cron"
    }
)


@pytest.mark.parametrize("path", JAVA_NODES)
def test_a_job_of_ours_with_one_node_of_java_is_ours(path: str) -> None:
    node = {child(LAYOUT.root, path): b"ENABLED" if path == f"servers/{IP}" else b""}
    assert foreign(tree_of(ours() | node), LAYOUT) is None
    imported = {LAYOUT.root: b"", LAYOUT.config: OWN.to_json()}
    assert foreign(tree_of(imported | node), LAYOUT) is None


def test_an_imported_job_that_has_keys_of_java_is_ours() -> None:
    imported = OWN.in_place_of(CONFIG_2)
    assert "jobClass" in imported.unknown
    assert foreign(tree_of({LAYOUT.root: b"", LAYOUT.config: imported.to_json()}), LAYOUT) is None


def test_a_job_that_is_not_there_is_nobodys() -> None:
    assert foreign(Tree(), LAYOUT) is None
    assert foreign(tree_of({LAYOUT.root: b""}), LAYOUT) is None


@pytest.mark.parametrize("release", ["2.x", "3.x"])
def test_the_error_shows_nothing_of_a_configuration_which_may_have_a_password(release: str) -> None:
    nodes = java(release, is_up=True)
    secret = b',"password":"s3cret"}' if release == "2.x" else b"props:\n  password: s3cret\n"
    nodes[LAYOUT.config] = nodes[LAYOUT.config].rstrip(b"}") + secret
    error = foreign(tree_of(nodes), LAYOUT)
    assert f"Elastic-Job {release}" in str(error)
    assert "s3cret" not in str(error)
    assert ID not in str(error)
