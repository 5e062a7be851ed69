"""wake.lua"""


def test_wake(redis, keys, call):
    """A wake-up expires after some seconds, and a second one is not added."""
    assert call("wake", (keys.wake,)) == 1
    assert call("wake", (keys.wake,)) == 0
    assert redis.llen(keys.wake) == 1
    assert 0 < redis.pttl(keys.wake) <= 10_000
