"""Identifies a request by its idempotency key, its user or session, and a fingerprint of its content."""

from __future__ import annotations

import hashlib
import re
import shutil
import weakref
from collections.abc import Iterable, Iterator
from functools import wraps
from tempfile import SpooledTemporaryFile
from typing import Any

from django.conf import settings
from django.http import HttpRequest, QueryDict
from django.utils.datastructures import MultiValueDict

KEY_HEADER = "Idempotency-Key"
MAX_KEY = 255  # characters
# A String of RFC 8941, section 3.3.3, with parameters, which are ignored; or the same text without the quotes.
_QUOTED = re.compile(r'"((?:[ !#-\[\]-~]|\\["\\])*)"\s*(?:;.*)?')
_BARE = re.compile(r"[!#-+\--:<-\[\]-~]+")
_ESCAPE = re.compile(r"\\(.)")
_AUTHENTICATED = "_redlock_authenticated"  # the attribute of a request with Django REST framework's request for it


def read_key(header: str) -> str | None:
    """Return the key in ``header``, the value of an ``Idempotency-Key`` header; ``None`` for an invalid value.

    Many clients omit the quotes. Such a key is valid without spaces, commas, semicolons, quotes and backslashes.
    Source: draft-ietf-httpapi-idempotency-key-header, section 2.1.
    """
    text = header.strip()
    if quoted := _QUOTED.fullmatch(text):
        key = _ESCAPE.sub(r"\1", quoted[1])
    elif _BARE.fullmatch(text):
        key = text
    else:
        return None
    return key if 0 < len(key) <= MAX_KEY else None


def user_or_session(request: HttpRequest, view: Any = None) -> str | None:
    """Return a text that identifies the user of ``request`` or, for an anonymous user, the session.

    Returns ``None`` without user and session, and for a user without a primary key. ``view``: the view for the
    request. The authentication classes of a Django REST framework view find the user; their errors are raised.
    """
    user = _user(request, view)
    if user is not None and user.is_authenticated:
        if user.pk is None:  # such users would share one scope
            return None
        meta = getattr(user, "_meta", None)
        kind = meta.concrete_model if meta else user.__class__  # `type()` would return the class of a lazy object
        return f"user:{kind.__module__}.{kind.__qualname__}:{user.pk}"  # users of two models may have equal keys
    session = getattr(request, "session", None)
    if session is None:
        return None
    session.keys()  # loads the session: a cookie may name a session that does not exist
    return f"session:{session.session_key}" if session.session_key else None


def _user(request: HttpRequest, view: Any) -> Any:
    """Return ``request.user``, or the user whom a Django REST framework view authenticates; ``None`` without a user.

    The authenticated request is reused by the view, because a token may be valid only once.
    """
    cls: Any = getattr(view, "cls", None) or type(getattr(getattr(view, "func", None), "__self__", None))
    if not hasattr(cls, "initialize_request"):
        return getattr(request, "user", None)
    if not hasattr(cls.initialize_request, _AUTHENTICATED):
        cls.initialize_request = _taking_over(cls.initialize_request)
    instance = cls(**getattr(view, "initkwargs", {}))
    instance.request, instance.action_map = request, getattr(view, "actions", None) or {}
    asked = instance.initialize_request(request)
    try:
        user = asked.user
    except Exception as error:
        error.auth_header = instance.get_authenticate_header(asked)  # type: ignore[attr-defined]  # as DRF does
        raise
    setattr(request, _AUTHENTICATED, asked)
    return user


def _taking_over(initialize_request: Any) -> Any:
    """Wrap ``initialize_request`` of a Django REST framework view: it returns the request that `_user` made."""

    @wraps(initialize_request)
    def wrapped(self: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        if (asked := vars(request).pop(_AUTHENTICATED, None)) is None:
            return initialize_request(self, request, *args, **kwargs)
        asked.parser_context.update(self.get_parser_context(request))
        return asked

    setattr(wrapped, _AUTHENTICATED, True)
    return wrapped


def hashed(parts: Iterable[bytes]) -> str:
    """Return a SHA-256 of ``parts`` in hex. The hash includes the length of each part: (ab, c) and (a, bc) differ."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(b"%d:" % len(part))
        digest.update(part)
    return digest.hexdigest()


def record_name(scope: str, key: str) -> str:
    """Return the name under which a request is stored: a hash of ``scope`` (user or session) and ``key``."""
    return f"idempotency:{hashed((scope.encode(), key.encode()))}"


def fingerprint(request: HttpRequest, scope: str) -> str:
    """Return a hash of the request's method, path with query, ``scope`` (user or session) and body.

    A repeat of ``request`` has the same hash. Multipart forms are hashed by field and file, because clients choose a
    new boundary for each repeat. Other bodies are hashed as bytes. Raises Django's ``RequestDataTooBig`` and
    ``TooManyFieldsSent`` for large requests.
    """
    head = (request.method or "", request.get_full_path(), scope)
    parts = _form(request) if request.content_type == "multipart/form-data" else iter((request.body,))
    return hashed((*(each.encode(errors="surrogateescape") for each in head), *parts))


def _form(request: HttpRequest) -> Iterator[bytes]:
    fields, files = (request.POST, request.FILES) if request.method == "POST" else _parsed_form(request)
    for name, values in sorted(fields.lists()):
        yield from (each.encode(errors="surrogateescape") for each in (name, *values))
    for name, uploads in sorted(files.lists()):
        for file in uploads:
            yield from (each.encode() for each in (name, file.name or "", file.content_type or ""))
            digest = hashlib.sha256()
            for chunk in file.chunks():
                digest.update(chunk)
            file.seek(0)
            yield digest.digest()


def _parsed_form(request: Any) -> tuple[QueryDict, MultiValueDict[str, Any]]:
    """Parse the form of a PATCH or PUT, which Django does not parse. The view can read the request's body again.

    Files don't count towards ``DATA_UPLOAD_MAX_MEMORY_SIZE``, as in a POST.
    """
    copy: Any = SpooledTemporaryFile(max_size=settings.FILE_UPLOAD_MAX_MEMORY_SIZE)  # noqa: SIM115  (the view reads it)
    weakref.finalize(request, copy.close)
    shutil.copyfileobj(request, copy)
    copy.seek(0)
    try:
        parsed: tuple[QueryDict, MultiValueDict[str, Any]] = request.parse_file_upload(request.META, copy)
        return parsed
    finally:
        copy.seek(0)
        request._stream, request._read_started = copy, False
