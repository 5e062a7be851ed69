"""Three candidates in separate processes. The leader is killed, or paused and continued."""

import pytest

from tests.election.candidates import stand
from tests.support.processes import ForkedWorker

TTL = 3.0


@pytest.fixture
def leader_of_three(start, redis_url, unique):
    """The worker that leads, its fencing token, and the two others."""
    workers = [start(ForkedWorker(stand, redis_url, unique, TTL)) for _ in range(3)]
    leader, token = elected(workers)
    return leader, token, [each for each in workers if each is not leader]


def elected(workers):
    """Return the first of these workers that is elected, and its fencing token."""
    while True:
        for worker in workers:
            if worker.channel.connection.poll(0.05):
                return worker, worker.expect("elected")["token"]


def test_killed(leader_of_three):
    """After ``kill -9`` of the leader one of the others follows, then the last one, with larger tokens."""
    leader, token, others = leader_of_three
    leader.kill()
    second, second_token = elected(others)
    second.tell("end")
    second.expect("lost")
    second.result()
    (last,) = [each for each in others if each is not second]
    assert token < second_token < last.expect("elected")["token"]


def test_paused(leader_of_three):
    """A paused leader is followed by another. When it continues, it no longer leads, and stands again."""
    leader, token, others = leader_of_three
    leader.pause()
    second, second_token = elected(others)
    leader.resume()
    assert leader.expect("lost") == {"leading": False}
    assert token < second_token
    for each in (second, *others):
        each.kill()
    assert leader.expect("elected")["token"] > second_token
