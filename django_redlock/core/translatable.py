"""English texts that the admin translates when it shows them. The core and the backends don't import Django.

``makemessages`` finds the texts, because it looks for calls of `gettext_noop`.
"""

from __future__ import annotations

from typing import Any, Self


def gettext_noop(text: str) -> str:
    """Return ``text`` unchanged. The call marks it for ``makemessages``, so that the admin can translate it later."""
    return text


class TranslatableText(str):
    """An English text, made from the template ``msgid``: ``words`` replace its placeholders ``%(name)s``."""

    __slots__ = ("msgid", "words")
    msgid: str
    words: dict[str, Any]

    def __new__(cls, msgid: str, **words: Any) -> Self:
        made = super().__new__(cls, msgid % words)
        made.msgid, made.words = msgid, words
        return made
