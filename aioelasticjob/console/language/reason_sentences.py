"""The reasons for which a job needs attention, as sentences in the viewer's language."""

from __future__ import annotations

from aioelasticjob.console.language.i18n import Language
from aioelasticjob.operations.attention import Reason


def reason_sentence(reason: Reason, translate: Language) -> str:
    """Return a reason as a sentence; what the library says in it is translated, too."""
    values = dict(reason.values)
    for name in ("fault", "why"):
        if isinstance(text := values.get(name), str):
            values[name] = translate.message(text)
    return translate(reason.sentence, **values)
