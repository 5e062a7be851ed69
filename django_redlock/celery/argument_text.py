"""Makes texts of task arguments for lock names. A text shows the value that a worker gets after serialization."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import cache, partial
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import UUID

from django.db.models import Model
from kombu.serialization import dumps, loads

from ..single_instance.call_names import SCALARS, TextOf, canonical, mapping_text

# Types whose ``str()`` shows the whole value.
_COMPLETE = (bytes, date, datetime, timedelta, Decimal, UUID, type(Path()))


@cache
def text_for(serializer: str) -> TextOf:
    """Return a function that returns the text of a value after a round trip through the kombu serializer."""
    return partial(_received_text, serializer)


def _received_text(serializer: str, value: Any) -> str:
    """Serialize and load ``value``, which is not of a JSON type, and return the text of the loaded value.

    The text of a model instance has the model and the primary key, which Django compares too. The text of any other
    object has a digest of the serialized object, because ``str()`` may return one text for two different objects.
    Raises kombu's ``EncodeError`` for a value that can't be serialized.
    """
    text_of = text_for(serializer)
    content_type, encoding, data = dumps([value], serializer)
    received = loads(data, content_type, encoding, accept=[content_type])[0]
    kind: Any = type(received)
    if kind is dict:
        return mapping_text(received, text_of)
    if kind in (*SCALARS, list, tuple):
        return canonical(received, text_of)
    if kind in (set, frozenset):
        text = f"{{{','.join(sorted(canonical(each, text_of) for each in received))}}}"
    elif isinstance(received, Model) and received.pk is not None:
        return f"{kind._meta.concrete_model._meta.label}({canonical(received.pk, text_of)})"
    elif kind in _COMPLETE:
        text = str(received)
    else:
        text = sha256(data if isinstance(data, bytes) else data.encode()).hexdigest()[:32]
    return f"{kind.__name__}({text})"
