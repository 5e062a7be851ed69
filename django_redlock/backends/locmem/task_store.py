"""The store for the records of tasks in the memory of one process."""

from __future__ import annotations

import asyncio
from typing import Any

from ...core.algorithms.single_node import SingleNode
from ...core.contract import Algorithm
from ...core.flow.replies import NEVER
from ...core.flow.requests import AwaitTurn, Batch, BlockThenEval, CallFunction, EvalScript, FlowRequest
from ...core.primitives.base import Primitive


class MemoryStore:
    """A store that keeps the records of tasks in the memory of one process, in the table of a `LocMemBackend`.

    The backend lists and releases the records together with its locks.
    """

    adopting: Primitive | None = None
    not_adopting = "a task ends with the process that runs it"

    def __init__(self, backend: Any) -> None:
        self.alias = backend.alias
        self.hook = backend.hook
        self.clock = backend.clock
        self.max_ttl = backend.max_ttl
        self.algorithm: Algorithm = SingleNode(backend.clock)
        self.check_ttl, self.server_of = backend.check_ttl, backend.server_of
        self.local_queue_for = backend.local_queue_for  # none: every change of a record wakes all waiters
        self._backend = backend

    @property
    def key_prefix(self) -> str:
        return str(self._backend.key_prefix)

    def perform(self, request: FlowRequest) -> Any:
        """Perform one request of a flow in the calling thread, blocking. Returns the reply."""
        match request:
            case EvalScript():
                return self._backend.perform(CallFunction(self._run, (request,)))
            case Batch():
                return [self.perform(each) for each in request.script_calls]
            case BlockThenEval():
                return self._run_when_changed(request)
            case _:
                return self._backend.perform(request)

    async def aperform(self, request: FlowRequest) -> Any:
        """Perform one request of a flow without blocking the event loop. Returns the reply."""
        if isinstance(request, AwaitTurn):
            return await request.event.wait_async(request.seconds)
        return await asyncio.to_thread(self.perform, request)

    def _run(self, request: EvalScript) -> Any:
        now = round(self.clock() * 1000)
        return self._backend.tasks.run(request.script.name, now, request.keys, request.args)

    def _run_when_changed(self, request: BlockThenEval) -> Any:
        """Run the script after a change of a record, or at once if it is no longer refused."""
        changed = self._backend.tasks.changed
        with changed:
            reply = self.perform(request.script_call)
            if not isinstance(reply, list) or reply[0] or reply[1] == NEVER:
                return reply
            changed.wait(request.seconds)
        return self.perform(request.script_call)
