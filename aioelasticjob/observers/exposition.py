"""The metrics of several processes as one text for Prometheus; the label ``process`` says whose each sample is."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

END = "# EOF"
"""The last line of a text in the format OpenMetrics."""
_NAME = re.compile(r"[A-Za-z_:][A-Za-z0-9_:]*")


@dataclass(slots=True)
class _Family:
    """A metric: its comments by kind, such as HELP, and the samples of all processes."""

    comments: dict[str, str] = field(default_factory=dict)
    samples: list[str] = field(default_factory=list)


def together(texts: Mapping[int, bytes]) -> bytes:
    """Return the metrics of processes as one text: each metric once, with the samples of all of them.

    The texts have the same format.  They are not parsed into values: the format writes one sample a line.
    """
    families = dict[str, _Family]()
    has_end = False
    for process, text in texts.items():
        family = families.setdefault("", _Family())
        lines = text.decode(errors="replace").split("\n")  # not splitlines: values of labels may have other line breaks
        for line in lines:
            parts = line.split(" ", 3)
            if line == END:
                has_end = True
            elif parts[0] == "#" and len(parts) > 2:
                _, kind, name, *_ = parts
                family = families.setdefault(name, _Family())
                family.comments.setdefault(kind, line)
            elif line:
                family.samples.append(_labelled(line, process))
    found = list[str]()
    for family in families.values():
        found += family.comments.values()
        found += family.samples
    if has_end:
        found.append(END)
    return "".join(f"{line}\n" for line in found).encode()


def _labelled(sample: str, process: int) -> str:
    found = _NAME.match(sample)
    if found is None:  # a comment, or a format that we do not know
        return sample
    name = sample[: found.end()]
    rest = sample[found.end() :]
    if rest.startswith("{}"):
        rest = rest[2:]
    if rest.startswith("{"):
        return f'{name}{{process="{process}",{rest[1:]}'
    return f'{name}{{process="{process}"}}{rest}'
