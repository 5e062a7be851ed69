"""Worker processes, and the checker of the periods in which they believed to hold a lock."""

import os
import signal
import time

import pytest

from tests.support.overlap import Belief, assert_no_overlap, overlaps, read
from tests.support.processes import ForkedWorker, Worker
from tests.support_tests import workers


@pytest.fixture(params=[Worker, ForkedWorker])
def kind(request):
    """A worker in a new process, and in a fork of a process that has imported libraries."""
    return request.param


def test_a_worker_reports_and_is_told(start, kind):
    """Events go both ways, and the function's result is returned."""
    worker = start(kind(workers.greet, "Anna"))
    assert worker.expect("hello") == {"name": "Anna", "pid": worker.pid}
    assert worker.pid != os.getpid()
    worker.tell("go", word="well")
    assert worker.result() == "wellwell"


def test_a_worker_that_fails_says_why(start, kind):
    """The traceback of a failed worker is in the error of expect()."""
    with pytest.raises(AssertionError, match=r"failed before 'hello'(?s:.)*ValueError: on purpose"):
        start(kind(workers.fail)).expect("hello")


def test_no_wait_for_ever(start, kind):
    """expect() raises an error at its timeout, or at once if the worker was killed."""
    worker = start(kind(workers.silence))
    with pytest.raises(AssertionError, match="no 'hello' within"):
        worker.expect("hello", timeout=0.05)
    worker.kill()
    with pytest.raises(AssertionError, match="ended"):
        worker.expect("hello", timeout=30)


def test_a_paused_worker_does_nothing(start, kind):
    """A worker does nothing between pause and resume."""
    worker = start(kind(workers.count))
    worker.expect("count")
    worker.pause()
    worker.tell("next")
    with pytest.raises(AssertionError, match="no 'count' within"):
        worker.expect("count", timeout=0.2)
    resumed = time.monotonic()
    worker.resume()
    assert worker.expect("count")["at"] > resumed


def test_a_fork_is_like_a_new_process(start):
    """A fork has its own session, environment and exit code, only its own files, and has not imported the package."""
    first = start(ForkedWorker(workers.silence))
    worker = start(ForkedWorker(workers.look_around, WORKER="second"))
    facts = worker.result()
    assert facts["session"] == worker.pid
    assert (facts["variable"], facts["package"], facts["libraries"]) == ("second", False, True)
    assert facts["files"] == 4  # three standard ones, and the pipe
    assert worker.child.process.wait(30) == 0
    first.child.signal(signal.SIGTERM)
    assert first.child.process.wait(30) == -signal.SIGTERM


def test_finds_a_planted_overlap(start, tmp_path):
    """The checker finds two processes that hold one name at once, and accepts other names and other times."""
    file = tmp_path / "beliefs"

    def hold(name, worker, *until):
        holder = start(Worker(workers.believe, str(file), name, worker, *until))
        holder.expect("holding")
        return holder

    first, apart = hold("stock", "first"), hold("invoice", "apart")
    for worker in (first, apart):
        worker.tell("let go")
        worker.result()
    second = hold("stock", "second")
    assert_no_overlap(file, at_least=3)
    third = hold("stock", "third", time.monotonic() + 60)
    for worker in (second, third):
        worker.tell("let go")
        worker.result()
    with pytest.raises(AssertionError, match=r"1 overlaps among 4 grants(?s:.)*second\n.*third"):
        assert_no_overlap(file)
    assert_no_overlap(file, limit=2)


def test_the_belief_of_a_killed_worker_counts(start, tmp_path):
    """A killed worker is taken to hold its lock until the end of its lease, or for an instant if that is unknown."""
    file, now = tmp_path / "beliefs", time.monotonic()
    for name, until in (("leased", now + 60), ("open", None)):
        worker = start(Worker(workers.believe, str(file), name, "victim", until))
        worker.expect("holding")
        worker.kill()
    leased, unleased = read(file)
    assert leased.end == now + 60
    assert unleased.end == unleased.start


def test_no_grant_is_no_proof(tmp_path):
    """A check without grants fails."""
    (tmp_path / "beliefs").touch()
    with pytest.raises(AssertionError, match="only 0 grants"):
        assert_no_overlap(tmp_path / "beliefs")


def test_counts_permits():
    """With `limit` 2 the checker allows two holders at a time, and touching periods don't overlap."""
    beliefs = [Belief(0, 2, "a", "x"), Belief(1, 4, "b", "x"), Belief(2, 3, "c", "x"), Belief(2.5, 5, "d", "x")]
    assert overlaps(beliefs, limit=2) == [tuple(beliefs[1:])]
    assert len(overlaps(beliefs)) == 3
