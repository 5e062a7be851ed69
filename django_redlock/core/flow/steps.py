"""A request of a flow to call code of users or frameworks, blocking or awaited."""

from __future__ import annotations

from collections.abc import Callable
from inspect import isawaitable
from typing import Any, NamedTuple


class StepOutcome(NamedTuple):
    """The result of a `Step`: a value, or the error that was raised."""

    value: Any = None
    error: BaseException | None = None

    def unwrap(self) -> Any:
        """Return the value, or raise the error."""
        if self.error is None:
            return self.value
        try:
            raise self.error
        finally:
            del self  # the traceback of the error refers to this frame


class Step(NamedTuple):
    """A request: call code outside of the package. The reply is a `StepOutcome`, so that the flow handles an error.

    Blocking code calls ``call``. Under asyncio, ``acall`` is called, and its result is awaited if it is awaitable.
    """

    call: Callable[[], Any]
    acall: Callable[[], Any]

    def perform(self) -> StepOutcome:
        """Call ``call``, and return its outcome. Never raises."""
        try:
            return StepOutcome(self.call())
        except BaseException as error:  # noqa: BLE001  (the flow raises it)
            return StepOutcome(error=error)

    async def aperform(self) -> StepOutcome:
        """`perform` for asyncio, with ``acall``."""
        try:
            value = self.acall()
            return StepOutcome(await value if isawaitable(value) else value)
        except BaseException as error:  # noqa: BLE001  (the flow raises it)
            return StepOutcome(error=error)
