"""What can be decorated as a view: functions, class-based views, and methods that ``method_decorator()`` passes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from inspect import signature
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.utils.decorators import classonlymethod


def right_place(decorator: str) -> str:
    return (
        f"put {decorator}() on the view function, on the class (@{decorator}(...) above `class`), or on dispatch: "
        f'@method_decorator({decorator}(...), name="dispatch")'
    )


def is_async(view: Any) -> bool:
    # `dispatch` of an async class-based view is a plain method that returns the coroutine of the handler.
    owner = getattr(getattr(view, "func", None), "__self__", None)
    return iscoroutinefunction(view) or bool(getattr(owner, "view_is_async", False))


def decorate_class(view: Any, decorate: Callable[[Any], Any], decorator: str) -> Any:
    if not callable(getattr(view, "as_view", None)):
        raise TypeError(f"{view.__qualname__} has no as_view(): {right_place(decorator)}")
    inherited = view.as_view.__func__

    def as_view(cls: Any, /, *args: Any, **initkwargs: Any) -> Any:
        return decorate(inherited(cls, *args, **initkwargs))

    view.as_view = classonlymethod(wraps(inherited)(as_view))
    return view


def check_view(view: Any, decorator: str) -> None:
    if not callable(view) or isinstance(view, classmethod | staticmethod):
        raise TypeError(f"{view!r} is not a view: {right_place(decorator)}")
    if not poses_as_method(view) and next(iter(signature(view).parameters), "") in ("self", "cls"):
        raise TypeError(f"{view.__qualname__} is a method: {right_place(decorator)}")


def poses_as_method(view: Any) -> bool:
    """Return whether ``view`` takes the request first, although the method in its ``__wrapped__`` takes ``self`` first.

    Examples are the partial that ``method_decorator()`` passes, the function that ``as_view()`` returns when
    ``dispatch`` is decorated, and a view of a ViewSet of Django REST framework.
    """
    return isinstance(view, partial) or hasattr(view, "view_class") or hasattr(view, "cls")
