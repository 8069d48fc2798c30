"""`aioelasticjob jobs --tree`: which job follows which."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.text import Text
from rich.tree import Tree

from aioelasticjob.operations import JobStatus

Line = Callable[[JobStatus], Text]
"""What is shown of a job."""


def job_tree(found: Sequence[JobStatus], line: Line) -> RenderableType:
    """Return a tree in which each job stands below those that it follows; one that follows several stands below each.

    The followers of a job stand only where it stands first.  Jobs that follow each other, and jobs that follow one that
    is not listed, stand at the top.
    """
    jobs = {one.name: one for one in found}
    followers = {name: [one for one in found if name in one.config.after] for name in jobs}
    first = [one for one in found if not any(name in jobs for name in one.config.after)]
    reached = set[str]()
    for one in first:
        reached |= _below(one.name, followers)
    left = [one for one in found if one.name not in reached]
    return Group(*_trees([*first, *left], followers, line))


def _trees(first: Sequence[JobStatus], followers: Mapping[str, Sequence[JobStatus]], line: Line) -> Iterator[Tree]:
    grown = set[str]()
    for one in first:
        tree = Tree(line(one), guide_style="dim")
        _grow(tree, one, followers, line, (one.name,), grown)
        yield tree


def _grow(
    tree: Tree,
    job: JobStatus,
    followers: Mapping[str, Sequence[JobStatus]],
    line: Line,
    way: tuple[str, ...],
    grown: set[str],
) -> None:
    """Add the followers of a job, and theirs; ``grown`` are the jobs of which that is done already."""
    if job.name in grown and followers[job.name]:
        tree.add(Text("its followers stand above", style="dim"))
        return
    grown.add(job.name)
    for follower in followers[job.name]:
        if follower.name in way:
            tree.add(Text(f"{follower.name}: they follow each other", style="red"))
        else:
            _grow(tree.add(line(follower)), follower, followers, line, (*way, follower.name), grown)


def _below(name: str, followers: Mapping[str, Sequence[JobStatus]]) -> set[str]:
    found = {name}
    waiting = [name]
    while waiting:
        newer = {one.name for one in followers[waiting.pop()]} - found
        found |= newer
        waiting += newer
    return found
