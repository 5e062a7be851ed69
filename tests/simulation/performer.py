"""Does what flows ask for, in virtual time, as `django_redlock.backends` does it on real connections."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from django_redlock.core.requests import Await, Batch, Confirmed, Fault, Flow, Run, Signal, Sleep, Together
from django_redlock.core.tickets import Turn
from django_redlock.errors import LockError

from .exchange import Exchange, never
from .network import Connection, Network, Then
from .replication import Member
from .servers import Server, Slots

NEVER = float("inf")


class Performer:
    """A client's side of the network. ``later(event)`` lets the client handle something, when it is not paused."""

    def __init__(
        self, network: Network, servers: Sequence[Server], who: str, timeout: float, later: Callable[[Then, Any], None]
    ) -> None:
        self._network = network
        self._world = network.world
        self._servers = servers
        self._who = who
        self._timeout = timeout
        self._later = later
        self._owing: dict[tuple[bytes, int], Connection] = {}
        self._passing = not isinstance(servers, list)  # a cluster, a primary with replicas: another may take over
        self._unanswered: dict[Exchange, None] = {}  # in the order in which they were begun
        self._alarm = NEVER  # when the next of them may have to be given up

    def drive(self, flow: Flow[Any], then: Callable[[Any, BaseException | None], None]) -> Callable[[], None]:
        """Carry ``flow``; ``then(result, error)``. The function that is returned interrupts it, as Ctrl-C does."""
        over = interrupted = False
        self._world.flows.append(flow)
        send = flow.send

        def step(reply: Any) -> None:
            if not over and not interrupted:
                advance(send, reply)

        def advance(go_on: Callable[[Any], Any], value: Any) -> None:
            nonlocal over
            self._world.running = self
            try:
                request = go_on(value)
            except StopIteration as done:
                over = True
                then(done.value, None)
            except (LockError, KeyboardInterrupt) as error:
                over = True
                then(None, error)
            else:
                self.perform(request, resume)

        def interrupt() -> None:
            nonlocal interrupted
            if not over:
                interrupted = True
                for exchange in tuple(self._unanswered):
                    exchange.give_up()
                advance(flow.throw, KeyboardInterrupt())

        resume = partial(self._later, step)
        step(None)
        return interrupt

    def hang_up(self) -> None:
        """What a kernel does for a process that is gone."""
        self._network.gone.add(self._who)

    def _there(self) -> bool:
        return self._who not in self._network.gone

    def perform(self, request: Any, then: Then) -> None:
        """Carry out one request."""
        _KINDS[type(request)](self, request, then)

    def _place(self, key: bytes, node: int) -> int:
        return self._servers.place(key) if isinstance(self._servers, Slots) else node

    def _batch(self, batch: Batch, then: Then) -> None:
        """One pipeline, or in a cluster one for each server that has some of the keys."""
        shares: dict[int, list[int]] = {}
        for index, run in enumerate(batch.runs):
            shares.setdefault(self._place(run.keys[0], batch.node), []).append(index)
        replies: list[Any] = [None] * len(batch.runs)
        left = len(shares)

        def got(indexes: list[int], reply: Any) -> None:
            nonlocal left
            left -= 1
            for each, index in enumerate(indexes):
                replies[index] = reply if isinstance(reply, Fault) else reply[each]
            if not left:
                then(replies)

        for node, indexes in shares.items():
            self._one(node, [batch.runs[index] for index in indexes], b"", partial(got, indexes))

    def _run(self, run: Run, then: Then) -> None:
        node = self._place(run.keys[0], run.node)
        self._one(node, (run,), b"", partial(_only, then))

    def _sleep(self, request: Sleep, then: Then) -> None:
        self._world.after(request.seconds, then, None)

    def _turn(self, request: Turn, then: Then) -> None:
        ticket: Any = request.ticket
        ended = False

        def end() -> None:
            nonlocal ended
            if not ended:
                ended = True
                self._world.after(0.0, then, None)

        ticket.wake = end
        self._world.after(max(0.0, request.seconds), end)
        if ticket.rung:
            end()

    def _signal(self, request: Signal, then: Then) -> None:
        server = self._servers[self._place(request.key, request.node)]
        self._ask(
            Connection(self._network, server, self._who),
            lambda reply: server.block((request.key, *request.more), request.seconds, self._there, reply),
            self._timeout + request.seconds,
            None,
            then,
        )

    def _await(self, request: Await, then: Then) -> None:
        run = request.run
        server = self._servers[self._place(run.keys[0], run.node)]
        ended = False

        def work(reply: Then) -> None:
            def unblocked(_: bytes | None) -> None:
                nonlocal ended
                if not ended:
                    ended = True
                    reply(server.run(run))

            server.block((request.signal, *request.more), request.seconds, self._there, unblocked)

        def undo(reply: Then) -> None:
            # A server forgets what a blocked client has sent when that closes the connection.
            nonlocal ended
            if ended and run.undo is not None:
                reply(server.run(run.undo))
            ended = True

        connection = Connection(self._network, server, self._who)
        self._ask(connection, work, self._timeout + request.seconds, undo, then)

    def _confirmed(self, request: Confirmed, then: Then) -> None:
        runs, replicas, seconds = request
        server = self._servers[0]

        def work(reply: Then) -> None:
            replies = [server.run(run) for run in runs]
            serving = not (isinstance(replies[0], list) and replies[0][0] >= 2) and isinstance(server, Member)
            if serving and not isinstance(replies[0], Exception):
                server.wait(replicas, seconds, lambda count: reply((replies, self._count(count))))
            else:
                reply((replies, 0))

        def answered(reply: Any) -> None:
            if not isinstance(reply, Fault) and isinstance(reply[0][0], Exception):
                reply = Fault(reply[0][0])
            then(reply)

        undo = partial(_undo, server, runs[0]) if runs[0].undoing is not None else None
        connection = Connection(self._network, server, self._who)
        self._ask(connection, work, self._timeout + seconds, undo, answered)

    def _count(self, count: int) -> int:
        return count

    def _together(self, request: Together, then: Then) -> None:
        asks, decided, family = request
        replies: list[Any] = [None] * len(asks)
        left, over = len(asks), False

        def got(place: int, reply: Any) -> None:
            nonlocal left, over
            left -= 1
            ask = asks[place]
            replies[place] = reply if isinstance(reply, Fault) or isinstance(ask, Batch) else reply[0]
            if not over and (decided(replies) or not left):
                over = True
                then(list(replies))

        def certain() -> bool:
            return over and decided(replies)

        for place, ask in enumerate(asks):
            runs = ask.runs if isinstance(ask, Batch) else (ask,)
            self._one(ask.node, runs, family, partial(got, place), certain)
        if not over and decided(replies):
            over = True
            then(list(replies))

    def _one(
        self,
        node: int,
        runs: Sequence[Run],
        family: bytes,
        then: Then,
        certain: Callable[[], bool] = never,
        repeated: Fault | None = None,
    ) -> None:
        """Ask one node, on the connection that still owes this family an answer if there is one."""
        server = self._servers[node]
        connection = self._owing.get((family, node)) if family and not repeated else None
        if connection is None or not connection.open:
            connection = Connection(self._network, server, self._who)
        if family:
            self._owing[family, node] = connection
        undo = partial(_undo, server, runs[0]) if runs[0].undoing is not None else None
        again = None if repeated else partial(self._one, node, runs, family, then, certain)
        heard = partial(_doubt, then, repeated) if repeated else then
        self._ask(connection, partial(_carry_out, server, runs), self._timeout, undo, heard, certain, again)

    def _ask(
        self,
        connection: Connection,
        work: Callable[[Then], None],
        limit: float,
        undo: Callable[[Then], None] | None,
        then: Then,
        certain: Callable[[], bool] = never,
        again: Then | None = None,
    ) -> None:
        exchange = Exchange(self, connection, work, undo, then, self._world.now + limit, certain, again)
        self._unanswered[exchange] = None
        connection.send(exchange)
        if exchange.until < self._alarm:
            self._set_alarm(exchange.until)

    def _set_alarm(self, when: float) -> None:
        self._alarm = when
        self._world.at(when, self._look)

    def _look(self) -> None:
        """Give up what is due. Nearly all has been answered by then: an event for each would be one for nothing."""
        now = self._world.now
        if now < self._alarm:  # an earlier one has been set since
            return
        for exchange in [exchange for exchange in self._unanswered if exchange.until <= now]:
            exchange.until = NEVER
            self._later(exchange.give_up, None)
        self._alarm = NEVER
        upcoming = min([exchange.until for exchange in self._unanswered], default=NEVER)
        if upcoming < NEVER:
            self._set_alarm(upcoming)


def _carry_out(server: Server, runs: Sequence[Run], reply: Then) -> None:
    reply([Fault(each) if isinstance(each, Exception) else each for each in map(server.run, runs)])


def _undo(server: Server, run: Run, reply: Then) -> None:
    if (undo := run.undo) is not None:
        reply(server.run(undo))


def _doubt(then: Then, repeated: Fault, reply: Any) -> None:
    """A request that was repeated may have been carried out before: what says that it was not is no answer."""
    then(reply if type(reply) is Fault else [repeated if each in (0, -1) else each for each in reply])


def _only(then: Then, reply: Any) -> None:
    then(reply if type(reply) is Fault else reply[0])


_KINDS: dict[type, Callable[[Performer, Any, Then], None]] = {
    Run: Performer._run,
    Batch: Performer._batch,
    Sleep: Performer._sleep,
    Together: Performer._together,
    Await: Performer._await,
    Signal: Performer._signal,
    Confirmed: Performer._confirmed,
    Turn: Performer._turn,
}
