"""The state of backends in the child of a fork."""

import os

from django_redlock.backends.redis import RedisBackend


def test_a_child_asks_the_sentinels_itself(sentinel, unique):
    """The child of a fork asks the Sentinels for the master, because the parent's master may have died."""
    backend = RedisBackend(sentinel.url, node_timeout=10)
    with backend.lock(unique):
        pass
    former = sentinel.master
    former.kill()
    sentinel.wait_for_new_master(former)
    if (child := os.fork()) == 0:  # pragma: no cover
        try:
            os._exit(not backend.lock(unique).acquire(blocking=False))
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    backend.close()
