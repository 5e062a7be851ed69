"""Makes texts of task arguments for lock names. A text shows the value that a worker gets after serialization."""

from __future__ import annotations

from functools import cache, partial
from hashlib import sha256
from typing import Any

from kombu.serialization import dumps, loads

from ..single_instance.call_names import SCALARS, TextOf, canonical, mapping_text


@cache
def text_for(serializer: str) -> TextOf:
    """Return a function that returns the text of a value after a round trip through the kombu serializer."""
    return partial(_received_text, serializer)


def _received_text(serializer: str, value: Any) -> str:
    """Serialize and load ``value``, which is not of a JSON type, and return the text of the loaded value.

    Raises kombu's ``EncodeError`` for a value that can't be serialized.
    """
    text_of = text_for(serializer)
    content_type, encoding, data = dumps([value], serializer)
    received = loads(data, content_type, encoding, accept=[content_type])[0]
    kind = type(received)
    if kind is dict:
        return mapping_text(received, text_of)
    if kind in (*SCALARS, list, tuple):
        return canonical(received, text_of)
    if isinstance(received, set | frozenset):
        return f"{{{','.join(sorted(canonical(each, text_of) for each in received))}}}"
    text = str(received)
    if " at 0x" in text:  # the text contains the object's address, which differs in each process
        text = sha256(data if isinstance(data, bytes) else data.encode()).hexdigest()[:32]
    return f"{kind.__name__}({text})"
