"""What each setting means, in words: the text that stands below it in its model is the only source.

The reference, the types for editors and the console's form show this text.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Mapping
from functools import cache
from itertools import pairwise
from typing import Final

from pydantic import BaseModel

LINK: Final = re.compile(r" \(\[[^]]+\]\([^)]+\)\)|\[([^]]+)\]\([^)]+\)")
"""A link of the documentation; one in brackets of its own says nothing without its target."""


@cache
def meanings(model: type[BaseModel]) -> Mapping[str, str]:
    """Return what is written below each setting of a model, in one line of Markdown.

    It is empty where Python has no source of the model.

    Raises:
        ValueError: a setting has no text below it.
    """
    try:
        source = inspect.getsource(model)
    except OSError:
        return {}
    (described,) = ast.parse(source).body
    assert isinstance(described, ast.ClassDef)
    found = {}
    for setting, text in pairwise([*described.body, None]):
        match setting, text:
            case ast.AnnAssign(target=ast.Name(name)), _ if name not in model.model_fields:
                pass  # a private attribute
            case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(written))):
                found[name] = " ".join(written.split())
            case ast.AnnAssign(target=ast.Name(name)), _:
                raise ValueError(f"{model.__name__}.{name}: write below it, as text, what it means")
    return found


def without_links(text: str) -> str:
    """Return a meaning without the links of the documentation."""
    return LINK.sub(r"\1", text)
