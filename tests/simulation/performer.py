"""Performs the requests of flows in virtual time, as `django_redlock.backends` does on real connections."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from django_redlock.core.flow.requests import (
    AfterBlock,
    AwaitEvent,
    Batch,
    Block,
    BlockThenEval,
    EvalAndWait,
    EvalScript,
    Fault,
    Flow,
    SendToAll,
    SetIfAbsent,
    Sleep,
)
from django_redlock.core.flow.scripts import Script
from django_redlock.errors import LockError

from .network import Connection, Network, Then, Work
from .replication import Member
from .requests import Request
from .servers import Server, Slots

NEVER = float("inf")
SET = b"""
return redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2], 'NX') and 1
"""


class Performer:
    """A client's side of the network. ``later(event)`` runs an event when the client is not paused."""

    set_script = SET

    def __init__(
        self, network: Network, servers: Sequence[Server], who: str, timeout: float, later: Callable[[Then, Any], None]
    ) -> None:
        self._network = network
        self.world = network.world
        self._servers = servers
        self._who = who
        self.timeout = timeout
        self._later = later
        self._in_flight: dict[tuple[bytes, int], Connection] = {}
        self.passing = not isinstance(servers, list)  # cluster, replicas: another server may take over
        self.unanswered: dict[Request, None] = {}  # in order of their start
        self._alarm = NEVER  # time at which the next request may have to be given up

    def drive(self, flow: Flow[Any], then: Callable[[Any, BaseException | None], None]) -> Callable[[], None]:
        """Drive ``flow``, then call ``then(result, error)``. Returns a function that interrupts the flow as Ctrl-C
        does.
        """
        over = interrupted = False
        self.world.flows.append(flow)
        send = flow.send

        def step(reply: Any) -> None:
            if not over and not interrupted:
                advance(send, reply)

        def advance(go_on: Callable[[Any], Any], value: Any) -> None:
            nonlocal over
            self.world.running = self
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
                for sent in tuple(self.unanswered):
                    sent.give_up()
                advance(flow.throw, KeyboardInterrupt())

        resume = partial(self._later, step)
        step(None)
        return interrupt

    def hang_up(self) -> None:
        self._network.gone.add(self._who)

    def there(self) -> bool:
        return self._who not in self._network.gone

    def perform(self, request: Any, then: Then) -> None:
        _KINDS[type(request)](self, request, then)

    def _place(self, key: bytes, node: int) -> int:
        return self._servers.place(key) if isinstance(self._servers, Slots) else node

    def _batch(self, batch: Batch, then: Then) -> None:
        """Send one pipeline, or in a cluster one pipeline for each server that has some of the keys."""
        shares: dict[int, list[int]] = {}
        for index, run in enumerate(batch.calls):
            shares.setdefault(self._place(run.keys[0], batch.node), []).append(index)
        replies: list[Any] = [None] * len(batch.calls)
        left = len(shares)

        def got(indexes: list[int], reply: Any) -> None:
            nonlocal left
            left -= 1
            for each, index in enumerate(indexes):
                replies[index] = reply if isinstance(reply, Fault) else reply[each]
            if not left:
                then(replies)

        for node, indexes in shares.items():
            self.ask(node, [batch.calls[index] for index in indexes], b"", partial(got, indexes))

    def _run(self, run: EvalScript, then: Then) -> None:
        node = self._place(run.keys[0], run.node)
        self.ask(node, (run,), b"", partial(_only, then))

    def _set(self, request: SetIfAbsent, then: Then) -> None:
        """Run SET NX, as the client does. It is not repeated: the flow sends a script."""
        node = self._place(request.key, request.node)
        script, args = Script.made("set", self.set_script), (request.value, request.ttl_ms)
        run = EvalScript(script, (request.key,), args, node, request.compensation)

        def done(reply: Any) -> None:
            then(True if reply == 1 else reply)

        self.send(self._scripts(self.connect(node), (run,), partial(_only, done)))

    def _sleep(self, request: Sleep, then: Then) -> None:
        self.world.after(request.seconds, then, None)

    def _event(self, request: AwaitEvent, then: Then) -> None:
        event: Any = request.event
        ended = False

        def end() -> None:
            nonlocal ended
            if not ended:
                ended = True
                self.world.after(0.0, then, None)

        event.wake = end
        self.world.after(max(0.0, request.seconds), end)
        if event.was_set:
            end()

    def _signal(self, request: Block, then: Then) -> None:
        keys, seconds, node = request
        connection = self.connect(self._place(keys[0], node))

        def work(reply: Then) -> None:
            connection.server.block(keys, seconds, self.there, reply)

        self.send(Request(self, connection, then, work, seconds))

    def _await(self, request: BlockThenEval, then: Then) -> None:
        run, keys, seconds = request
        connection = self.connect(self._place(run.keys[0], run.node))
        server, ended = connection.server, False

        def work(reply: Then) -> None:
            asked = server.clock.micros()

            def unblocked(_: bytes | None) -> None:
                nonlocal ended
                if not ended:
                    ended = True
                    reply(AfterBlock(server.run(run), (server.clock.micros() - asked) / 1e6))

            server.block(keys, seconds, self.there, unblocked)

        def forget(reply: Then) -> None:
            # A server forgets the pending commands of a blocked client that closes its connection.
            nonlocal ended
            if ended and run.compensation is not None:
                reply(server.run(run.compensation()))
            ended = True

        self.send(Request(self, connection, then, work, seconds, forget))

    def _confirmed(self, request: EvalAndWait, then: Then) -> None:
        runs, replicas, seconds = request
        connection = self.connect(0)
        server = connection.server

        def work(reply: Then) -> None:
            replies = list(map(server.run, runs))
            first = replies[0]
            if isinstance(first, Fault):
                reply(first)
            elif (isinstance(first, list) and first[0] >= 2) or not isinstance(server, Member):
                reply((replies, 0))  # no write, or a server without replicas
            else:
                server.wait(replicas, seconds, lambda count: reply((replies, self.count(count))))

        self.send(Request(self, connection, then, work, seconds, _undoing(server, runs[0])))

    def count(self, count: int) -> int:
        """Returns the number of replicas that are reported to have acknowledged."""
        return count

    def _together(self, request: SendToAll, then: Then) -> None:
        asks, decided, family, *_ = request
        replies: list[Any] = [None] * len(asks)
        left, over = len(asks), False

        def got(place: int, reply: Any) -> None:
            nonlocal left, over
            left -= 1
            ask = asks[place]
            replies[place] = reply if type(reply) is Fault or type(ask) is Batch else reply[0]
            if not over and (decided(replies) or not left):
                over = True
                then(list(replies))

        def certain() -> bool:
            return over and decided(replies)

        for place, ask in enumerate(asks):
            runs = (ask,) if type(ask) is EvalScript else ask.calls
            self.ask(ask.node, runs, family, partial(got, place), certain)
        if not over and decided(replies):
            over = True
            then(list(replies))

    def ask(
        self,
        node: int,
        runs: Sequence[EvalScript],
        family: bytes,
        then: Then,
        certain: Callable[[], bool] | None = None,
    ) -> None:
        """Send a request to a node, on the connection on which this family has a request in flight, if any."""
        connection = self._in_flight.get((family, node)) if family else None
        if connection is None or not connection.open:
            connection = self.connect(node, family)

        def repeat(then: Then, fault: Fault) -> None:
            heard = partial(_doubt, then, fault)
            self.send(self._scripts(self.connect(node, family), runs, heard, certain=certain))

        self.send(self._scripts(connection, runs, then, repeat=repeat, certain=certain))

    def _scripts(self, connection: Connection, runs: Sequence[EvalScript], then: Then, **options: Any) -> Request:
        server = connection.server

        def work(reply: Then) -> None:
            reply(list(map(server.run, runs)))

        return Request(self, connection, then, work, undo=_undoing(server, runs[0]), **options)

    def connect(self, node: int, family: bytes = b"") -> Connection:
        """Returns a new connection, which carries this family's requests from now on."""
        connection = Connection(self._network, self._servers[node], self._who)
        if family:
            self._in_flight[family, node] = connection
        return connection

    def send(self, sent: Request) -> None:
        self.unanswered[sent] = None
        sent.connection.send(sent.work, sent.answered, sent.broken)
        if sent.until < self._alarm:
            self._set_alarm(sent.until)

    def _set_alarm(self, when: float) -> None:
        self._alarm = when
        self.world.at(when, self._look)

    def _look(self) -> None:
        """Give up the requests that are due. One event serves many, because most have been answered by then."""
        now = self.world.now
        if now < self._alarm:  # an earlier alarm has been set since
            return
        self._alarm = upcoming = NEVER
        for sent in list(self.unanswered):
            if sent.until <= now:
                sent.until = NEVER
                self._later(sent.give_up, None)
            elif sent.until < upcoming:
                upcoming = sent.until
        if upcoming < self._alarm:
            self._set_alarm(upcoming)


def _only(then: Then, reply: Any) -> None:
    then(reply if type(reply) is Fault else reply[0])


def _undoing(server: Server, run: EvalScript) -> Work | None:
    return None if run.compensation is None else lambda reply: reply(server.run(run.compensation()))


def _doubt(then: Then, repeated: Fault, reply: Any) -> None:
    """Pass on the reply to a repeated request. A refusal becomes the fault, because the first request may have
    succeeded.
    """
    then(reply if type(reply) is Fault else [repeated if each in (0, -1) else each for each in reply])


_KINDS: dict[type, Callable[[Performer, Any, Then], None]] = {
    EvalScript: Performer._run,
    SetIfAbsent: Performer._set,
    Batch: Performer._batch,
    Sleep: Performer._sleep,
    SendToAll: Performer._together,
    BlockThenEval: Performer._await,
    Block: Performer._signal,
    EvalAndWait: Performer._confirmed,
    AwaitEvent: Performer._event,
}
