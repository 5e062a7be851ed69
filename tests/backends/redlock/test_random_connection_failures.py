"""Random connection failures of a quorum: bounded waits, and no vote is left over."""

import contextlib
import random
import time

import pytest

from django_redlock.backends.redlock import RedlockBackend
from django_redlock.errors import LockUnavailable
from tests.support.service import poll

NODE_TIMEOUT = 3
SLACK = 2.7  # seconds that a busy machine may take beside
ROUNDS = 10  # in one of them two nodes are unwell
PLIGHTS = {
    "answers late": lambda proxy: proxy.hold("replies"),
    "hears late": lambda proxy: proxy.hold("requests"),
    "slow": lambda proxy: proxy.delay(0.1),
    "byte by byte": lambda proxy: proxy.drip(0.3),
    "cut off": lambda proxy: proxy.drop(),
    "unheard": lambda proxy: proxy.drop("replies"),
    "closed": lambda proxy: proxy.cut(),
    "reply lost": lambda proxy: proxy.lose_next_reply(b"{lock"),
    "refusing": lambda proxy: (proxy.refuse(), proxy.cut()),
}


@pytest.fixture
def three(servers, proxies):
    """The proxies in front of three nodes, and a function that lists the locks on all nodes."""
    backend = RedlockBackend([server.url for server in servers], max_ttl=60, node_timeout=5)
    assert set(backend.arm().values()) == {"armed"}
    backend.close()
    clients = [server.client() for server in servers]
    yield proxies, lambda: [key for client in clients for key in client.scan_iter("redlock:{lock*}")]
    for client in clients:
        client.close()


@pytest.mark.parametrize("seed", range(2))
def test_no_vote_is_left_over(three, client_of, seed):
    """Under random failures a healthy majority grants at once, waits are bounded, and no vote is left over."""
    chance, (proxies, left) = random.Random(seed), three
    backend = RedlockBackend([proxy.url for proxy in proxies], ttl=30, max_ttl=60, node_timeout=NODE_TIMEOUT)
    client, told = client_of(backend), []
    party = backend._executor.fan_out

    def well():
        """Return whether all nodes are connected, and none is marked down."""
        return all(row["ok"] for row in backend.health()) and not any(
            node.keeper.failure(time.monotonic()) for node in party.nodes
        )

    def meet(plights):
        for node, plight in plights.items():
            PLIGHTS[plight](proxies[node])

    def play(name, plights, held, relieved):
        """Acquire and release under ``plights``. Return whether the outcome is as it must be, and in time."""
        poll(well, timeout=60, what="three nodes")
        if not held:
            meet(plights)
        lock, began, granted = client.lock(name, auto_renew=False), time.monotonic(), False
        with contextlib.suppress(LockUnavailable):
            granted = lock.acquire(blocking=False)
        took, majority = time.monotonic() - began, len(plights) == 1 or held
        told.append((plights, held, granted, took))
        if held:
            meet(plights)
        elif relieved:  # else the release meets the same
            restore(proxies)
        if granted:
            with contextlib.suppress(LockUnavailable):
                lock.release()
        restore(proxies)
        return (granted or not majority) and took < SLACK + (0 if majority else 2 * NODE_TIMEOUT)

    again = 0
    for number in range(ROUNDS):
        unwell = chance.sample(range(3), 1 if number else 2)
        plights, held = {node: chance.choice(sorted(PLIGHTS)) for node in unwell}, chance.random() < 0.4
        relieved = not held and chance.random() < 0.5
        # A defect shows each time, a machine that was stopped for a moment does not.
        turns = (play(f"lock{number}:{turn}", plights, held, relieved) for turn in range(3))
        again += next((turn for turn, as_it_must_be in enumerate(turns) if as_it_must_be), 3)
        assert again <= 2, told
    poll(well, timeout=60, what="three nodes")
    poll(lambda: not left(), timeout=20, what=f"nodes on which nothing is left: {told}")


def restore(proxies):
    for proxy in proxies:
        proxy.restore()
