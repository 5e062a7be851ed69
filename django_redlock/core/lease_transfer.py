"""The text that hands a held lock to another process: ``hand_off()`` makes the text, ``adopt()`` reads it."""

from __future__ import annotations

import base64
import json
from typing import NamedTuple

_VERSION = 1
HANDED_OFF = "handed_off"  # the `reason` of the event "released"


class HandedOff(NamedTuple):
    """The fields of the text that hands a held lock to another process.

    ``names``: the lock's name, or all names of a multilock. ``token``: the token under which the store has the lock.
    ``ttl``: the ttl in seconds of the adopted lock, unless ``adopt()`` is given another one. ``fencing_token``:
    ``None`` for a lock without ``fencing=True``.
    """

    alias: str
    key_prefix: str
    names: tuple[str, ...]
    is_multilock: bool
    token: bytes
    ttl: float
    fencing_token: int | None

    def text(self) -> str:
        """Return the fields, encoded as a text of letters, digits, ``-`` and ``_``."""
        contents = [part.decode() if isinstance(part, bytes) else part for part in (_VERSION, *self)]
        encoded = json.dumps(contents, separators=(",", ":"), ensure_ascii=False).encode()
        return base64.urlsafe_b64encode(encoded).rstrip(b"=").decode()

    @classmethod
    def parse(cls, text: str) -> HandedOff:
        """Return the fields that ``text`` encodes.

        Raises ``TypeError`` unless ``text`` is a ``str``, and ``ValueError`` unless `HandedOff.text` has made it. The
        error doesn't show the text, which is a secret.
        """
        if not isinstance(text, str):
            raise TypeError(f"the text of hand_off() is a str, not {type(text).__name__}")
        try:
            contents = json.loads(base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True))
            version, alias, key_prefix, names, is_multilock, token, ttl, fencing_token = contents
            parts = str(alias), str(key_prefix), tuple(map(str, names)), bool(is_multilock), token.encode()
            if version == _VERSION and parts[2]:
                return cls(*parts, float(ttl), None if fencing_token is None else int(fencing_token))
        except (ValueError, TypeError, AttributeError, RecursionError, OverflowError):
            pass
        raise ValueError(f"this text of {len(text)} characters was not made by hand_off(), or was cut")
