"""The model gives the same answers as a real Redis."""

import random
import re
from collections.abc import Sequence
from typing import Any

import redis

from django_redlock.core.algorithms.quarantine import standalone_quarantine
from django_redlock.core.flow.requests import EvalScript, Fault
from django_redlock.core.flow.scripts import Script, script
from django_redlock.core.keys import keys_for
from django_redlock.core.primitives.base import MUTEX, RLOCK, SEMAPHORE, describe_request
from django_redlock.core.primitives.fair import FAIR, READ, WRITE
from django_redlock.core.primitives.multi import MULTILOCK, STRIPED
from django_redlock.core.values import Claim, Wait
from tests.support.service import poll

from .redis_model import Model

KINDS = (
    MUTEX,
    MUTEX,
    MUTEX,
    FAIR,
    FAIR,
    RLOCK,
    SEMAPHORE,
    SEMAPHORE._replace(limit=2),
    READ,
    WRITE,
    WRITE._replace(queue_order=1),
    STRIPED,
    STRIPED,
    MULTILOCK,
    MULTILOCK,
)
SEVERAL = b"mutex1", b"a", b"b", b"semaphore2"  # includes a name for mutexes, and seldom holds a lock of another kind


_ends = re.compile(rb"(?<=@)\d+")  # of a share, in ms of the server's clock
_where = re.compile(r"^.*(?=WRONGTYPE)|(?<=value) script:.*$")  # in the script the error was: in front, or behind


def runs(chance: random.Random) -> EvalScript:
    """Returns a random request of a kind that flows send."""
    token = b"%016d%08d" % (chance.randrange(3), chance.randrange(2))
    kind = chance.choice(KINDS)
    names: Sequence[bytes] = [b"%b%d" % (kind.kind.encode(), kind.limit)]
    if kind in (STRIPED, MULTILOCK):
        names = chance.sample(SEVERAL[: chance.choice((3, 3, 3, 4))], chance.randint(1, 3))
    places = tuple(keys_for(b"sim", name) for name in names)
    keys = places[0]
    owner, holder = (b'{"label":"%d"}' % chance.randrange(2) for _ in range(2))
    claim = Claim("x", places, token, owner, 20.0, chance.random() < 0.5, holder, kind is MULTILOCK)
    take = kind.acquire_request(claim, chance.choice((Wait.NO, Wait.QUEUE, Wait.QUEUE, Wait.REQUEUE, Wait.LAST_TRY)))
    guard = standalone_quarantine("sim", chance.choice((30.0, 60.0)))
    return chance.choice(
        (
            take,
            take,
            guard.wrap(take),
            guard.wrap(take, "quarantine_restore"),
            kind.extend_request(claim, 25.0),
            kind.release_request(claim, chance.choice((0, 0, 5))),
            EvalScript(script("arm"), (guard.marker,), (guard.args[0],)),
            kind.fencing_request(claim, chance.randrange(10**16)),
            kind.dequeue_request(claim),
            EvalScript(script("force_release"), keys.of_queue, (b"",)),
            describe_request(keys, False),
        )
    )


def lasting(run: EvalScript) -> EvalScript:
    """Returns the request with a longer reservation, which does not end between the clock's reading and the script."""
    source = run.script.source.replace(b"'reserved', 'PX', 100", b"'reserved', 'PX', 60000")
    return run._replace(script=Script.made(run.script.name, source))


def timed(client: redis.Redis, *command: Any) -> tuple[int, Any]:
    """Run ``command``. Returns the server's clock in microseconds at that moment, and the reply or the error."""
    transaction = client.pipeline().time()
    (seconds, micros), reply = transaction.execute_command(*command).execute(raise_on_error=False)
    return seconds * 1_000_000 + micros, reply


def near(one: Any, other: Any) -> bool:
    """Whether two replies are equal, apart from small differences of time."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(near, one, other))
    if isinstance(one, int) and isinstance(other, int) and abs(one) > 10:
        return abs(one - other) < (5_000_000 if one > 10**12 else 3000)
    if isinstance(one, bytes) and isinstance(other, bytes):
        return _ends.sub(b"", one) == _ends.sub(b"", other)
    return bool(one == other)


def test_replies_and_state_agree(own_redis: Any) -> None:
    """Random sequences of script requests give the same replies and leave the same keys in the model and in Redis."""
    client: redis.Redis = own_redis().client()  # in a shared server others write, too
    replid = client.info("replication")["master_replid"]

    now = 0  # microseconds: when the server ran the last command

    def differing(model: Model) -> set[bytes]:
        nonlocal now
        now, theirs = timed(client, "KEYS", "*")
        return set(theirs) ^ set(filter(model.texts, model.keys()))  # without those that have expired

    for seed in range(80):
        chance = random.Random(seed)
        client.flushall()
        model = Model(lambda: now, lambda section: b"# %b\r\nmaster_replid:%b\r\n" % (section, replid.encode()))  # noqa: B023
        for step in range(40):
            run = lasting(runs(chance))
            now, theirs = timed(client, "EVAL", run.script.source, len(run.keys), *run.keys, *run.args)
            theirs = _where.sub("", str(theirs)) if isinstance(theirs, redis.ResponseError) else theirs
            ours = model.run(run.script, run.keys, run.args)
            ours = str(ours.error) if isinstance(ours, Fault) else ours
            assert near(theirs, ours), (seed, step, run.script.name, run.args, theirs, ours)
            # A wake-up may expire between TIME and the command after it.
            assert all(b":wake:" in key for key in differing(model)), (seed, step, run.script.name, differing(model))
            poll(lambda model=model: not differing(model), timeout=20, what="wake-ups to expire")
